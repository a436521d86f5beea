"""What poptorch's functions return shares memory, and lies in it, as when eager calls them."""

import pytest
import torch

import poptorch
from tests.helpers import check_equal_bits, quiet_options


def on_host(function):
    return poptorch.CPU(function, "host")


FUNCTIONS = {
    "nop": poptorch.nop,
    "nop of a mark": lambda x: poptorch.nop(poptorch.set_available_memory(x @ x, 0.5)),
    "ipu_print_tensor": poptorch.ipu_print_tensor,
    "set_available_memory": lambda x: poptorch.set_available_memory(x, 0.5),
    "recomputationCheckpoint": poptorch.recomputationCheckpoint,
    "several checkpoints": lambda x: poptorch.recomputationCheckpoint(x, x)[0],
    "identity_loss": lambda x: poptorch.identity_loss(x, "none"),
    "BlockFunction": poptorch.BlockFunction("block", ipu_id=0)(lambda x: x),
    "for_loop": lambda x: poptorch.for_loop(1, lambda a: a, [x])[0],
    "no round": lambda x: poptorch.for_loop(0, lambda a: a, [x])[0],
    "cond": lambda x: poptorch.cond(x.sum() < 1e9, lambda a: a, [x], lambda a: a, [x])[0],
    "CPU": on_host(lambda x: x),
    "CPU, another result": lambda x: on_host(lambda a: (a, a))(x)[0],
    "CPU, transposed": on_host(lambda x: x.t()),
    "CPU, with gaps": on_host(lambda x: (x * 1).t()[1:]),
    "CPU, columns": on_host(lambda x: x[:, ::2]),
    "CPU, expanded": on_host(lambda x: x[:1].expand(3, 3)),
}
CHANGES = {
    "argument": lambda x, y: x.mul_(2),
    "result": lambda x, y: y.mul_(2),
    "argument's sizes": lambda x, y: x.unsqueeze_(0),
    "result's sizes": lambda x, y: y.unsqueeze_(0),
}


@pytest.mark.sampled
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_changes_are_seen_where_eager_sees_them(name, change):
    class Changed(torch.nn.Module):
        def forward(self, x):
            x = x * 1
            y = FUNCTIONS[name](x)
            CHANGES[change](x, y)
            strides = torch.tensor(y.stride(), dtype=torch.int32)
            return x * 1, y * 1, y.as_strided((2,), (1,)) * 1, strides

    x = torch.rand(3, 3)
    check_equal_bits(poptorch.inferenceModel(Changed(), quiet_options())(x), Changed()(x))


def test_results_of_a_host_function_share_no_memory():
    class Twice(torch.nn.Module):
        def forward(self, x):
            first, second = on_host(lambda a: (a, a))(x * 1)
            first.add_(1)
            return first, second

    x = torch.rand(3)
    check_equal_bits(poptorch.inferenceModel(Twice(), quiet_options())(x), Twice()(x))

"""What cannot be captured is a poptorch.Error that names the place and says what to do."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import CheckpointFunction

import poptorch
from poptorch._capture import capture
from tests.capture.common import Function, check_inference, check_training
from tests.helpers import quiet_options


def branch(m, x):
    if x.sum() > 0:
        return x
    return -x


VALUES = {
    "if": branch,
    "item": lambda m, x: x * x[0].item(),
    "float": lambda m, x: x * float(x[0]),
    "int": lambda m, x: x[: int(x.sum())],
    "tolist": lambda m, x: torch.tensor(x.tolist()),
    "numpy": lambda m, x: x * x.numpy().sum(),
    "asarray": lambda m, x: np.asarray(x).sum() * x,
    "range": lambda m, x: [x for _ in range(x[0].long())],
    "buffer that changes": lambda m, x: x * m.buffer.add_(1).item(),
}


@pytest.mark.parametrize("name", VALUES)
def test_python_code_that_needs_values(name):
    module = Function(VALUES[name], buffers={"buffer": torch.ones(())})
    with pytest.raises(poptorch.Error) as raised:
        capture(module, (torch.ones(3),), training=False)
    text = str(raised.value)
    assert "needs the value of a tensor" in text and "torch.where" in text
    assert "test_errors.py:" in raised.value.location and "test_errors.py:" in text
    assert capture(Function(lambda m, x: x + 1), (torch.ones(3),), training=False)


def test_the_place_names_the_module():
    class Inner(nn.Module):
        def forward(self, x):
            return x * x.max().item()

    with pytest.raises(poptorch.Error, match=r'test_errors.py:\d+, module "1"$'):
        capture(nn.Sequential(nn.ReLU(), Inner()), (torch.ones(3),), training=False)


def test_a_value_of_a_known_tensor_is_no_problem():
    module = Function(lambda m, x: x * m.constant.item() * torch.tensor(2.0).item())
    module.constant = torch.tensor(3.0)
    assert capture(module, (torch.ones(3),), training=False)


def test_errors_of_forward_are_unchanged(capfd):
    class Mine(Exception):
        pass

    error = Mine("words")

    def forward(m, x):
        raise error

    with pytest.raises(Mine) as raised:
        capture(Function(forward), (torch.ones(3),), training=False)
    assert raised.value is error
    assert capfd.readouterr().err == ""


def removed(m, x):
    del m.y
    return x


def emptied(m, x):
    m.y = None
    return x


def reassigned(m, x):
    m.y = m.y * 0.5
    return x


def replaced_parameter(m, x):
    m.p = nn.Parameter(x)
    return x


REMOVED = "Buffer y is removed from the model when calling the forward method."


@pytest.mark.parametrize("forward, words", [
    (removed, REMOVED), (emptied, REMOVED),
    (reassigned, "Buffer y is reassigned within the model when calling the forward method. This is "
     "not supported. Consider using self.y.copy_\\(src\\) to copy data from a source tensor"),
    (replaced_parameter, "Parameter p is reassigned within the model"),
])
def test_state_that_forward_replaces(forward, words):
    module = Function(forward, {"p": torch.ones(3)}, {"y": torch.ones(3)})
    with pytest.raises(poptorch.Error, match=words) as raised:
        capture(module, (torch.ones(3),), training=False)
    line = forward.__code__.co_firstlineno + 1
    assert raised.value.location == f"{__file__}:{line}"
    assert torch.equal(module.y, torch.ones(3)) and isinstance(module.p, nn.Parameter)


def test_state_that_forward_reshapes_in_place():
    def forward(m, x):
        m.y.squeeze_()  # it stays as it is
        m.y.unsqueeze_(0)
        return m.y + x

    words = r"shape of y in place from \[3\] to \[1, 3\]"
    with pytest.raises(poptorch.Error, match=words) as raised:
        capture(Function(forward, {}, {"y": torch.ones(3)}), (torch.ones(3),), training=False)
    assert raised.value.location == f"{__file__}:{forward.__code__.co_firstlineno + 2}"


def gives_memory(m, x):
    m.y.set_(x * 3)
    return x


def gives_a_parameter(m, x):
    with torch.no_grad():
        m.p.set_(m.p * 2)
    return x


def gives_an_argument(m, x):
    x.set_(m.y + 1)
    return x


def swaps(m, x):
    torch.utils.swap_tensors(m.y, other := m.y * 2)
    return x + other


@pytest.mark.parametrize("forward, words", [
    *((forward, r"the memory of another tensor or of a storage \(Tensor.set_\)\. .*, or copy the "
                r"values: `x\.copy_\(value\)`\.\n  at .*test_errors\.py:")
      for forward in (gives_memory, gives_a_parameter, gives_an_argument)),
    (swaps, r"forward gives y the memory of another tensor \(torch.utils.swap_tensors\)\. Copy the "
            r"values: `y.copy_\(value\)`")])
def test_state_that_forward_gives_other_memory(forward, words):
    module = Function(forward, {"p": torch.ones(3)}, {"y": torch.ones(3)})
    with pytest.raises(poptorch.Error, match=words):
        capture(module, (torch.ones(3),), training=False)
    assert torch.equal(module.y, torch.ones(3)) and torch.equal(module.p, torch.ones(3))


@pytest.mark.parametrize("now", [True, False])
def test_what_is_trained_is_changed_in_forward(now):
    def forward(m, x):
        m.p.requires_grad_(now)
        return poptorch.identity_loss((x * m.p * m.q).sum(), "sum")

    module = Function(forward, {"p": torch.ones(3), "q": torch.ones(3)})
    module.p.requires_grad_(not now)
    with pytest.raises(poptorch.Error, match=(
            f"forward gives p requires_grad={now}, when it was captured it had requires_grad="
            f"{not now}, .*Set it before the model is compiled")):
        capture(module, (torch.ones(3),), training=True)
    module.p.requires_grad_(now)
    assert capture(module, (torch.ones(3),), training=True)


def test_a_parameter_that_is_frozen_for_a_while():
    def forward(m, x):
        m.p.requires_grad_(False)
        y = x * m.p
        m.p.requires_grad_(True)
        return y, poptorch.identity_loss((y * m.p).sum(), "sum")

    check_training(Function(forward, {"p": torch.ones(3).double()}), torch.ones(3).double())


def traces(m, x):
    return make_fx(lambda y: y * 2)(x)(x)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's own import
@pytest.mark.parametrize("forward", [
    traces, lambda m, x: torch.func.linearize(lambda y: y * y, x)[1](x)])
def test_a_graph_within_the_graph(forward):
    with pytest.raises(poptorch.Error, match=(
            r"traces a function into a graph of its own \(make_fx, torch.func.linearize\)")):
        capture(Function(forward), (torch.ones(3),), training=False)


def test_a_tensor_of_another_capture():
    kept = []

    def forward(m, x):
        kept.append(x * 2)
        return x + kept[0]

    captured = capture(Function(forward), (torch.ones(3),), training=False)
    with pytest.raises(poptorch.Error, match="a tensor of another capture was used: .*Keep nothing "
                                             "outside of the module that forward makes"):
        capture(Function(forward), (torch.ones(3),), training=False)
    assert captured.graph


def test_data_assignment():
    def forward(m, x):
        m.p.data = m.p.data * 2
        return m.p * x

    with pytest.raises(poptorch.Error, match=r"`.data`.*copy_\(value\)"):
        capture(Function(forward, {"p": torch.ones(3)}), (torch.ones(3),), training=False)


@pytest.mark.parametrize("value", [lambda p: p.data[:2], lambda p: p.data.t(), lambda p: p.data + 0,
                                   lambda p: torch.ones(3, 3)])
def test_data_assignment_of_another_tensor(value):
    def forward(m, x):
        m.p.data = value(m.p)
        return m.p * x

    with pytest.raises(poptorch.Error, match=r"`.data`.*copy_\(value\)"):
        capture(Function(forward, {"p": torch.ones(3, 3)}), (torch.ones(3),), training=False)


def test_data_assignment_after_a_change_in_place():
    """``x.data -= y`` changes what ``.data`` gives, and assigns that."""
    def forward(m, x):
        m.p.data -= 0.5 * x
        m.b.data[1:] *= 2
        y = x * m.p
        y.data += m.b
        y.data.mul_(3)
        return y, poptorch.identity_loss(y.pow(2).sum(), "none")

    torch.manual_seed(1)
    module = Function(forward, {"p": torch.rand(3, dtype=torch.float64)},
                      {"b": torch.rand(3, dtype=torch.float64)})
    x = torch.rand(3, dtype=torch.float64)
    check_inference(module, x)
    check_training(module, x)


@pytest.mark.parametrize("forward, args", [
    (lambda m, x: x, [torch.ones(3, device="meta")]),
    (lambda m, x: x + m.other, [torch.ones(3)]),
])
def test_other_devices(forward, args):
    module = Function(forward)
    module.other = torch.ones(3, device="meta")
    with pytest.raises(poptorch.Error, match="expected a tensor on the CPU but got one on meta"):
        capture(module, args, training=False)


def test_moving_to_another_device():
    with pytest.raises(poptorch.Error, match="(?s)meta.*test_errors.py"):
        capture(Function(lambda m, x: x.to("meta")), (torch.ones(3),), training=False)


def test_parameters_on_another_device_and_lazy_ones():
    with pytest.raises(poptorch.Error, match="weight: expected a tensor on the CPU but got one on"):
        capture(nn.Linear(2, 2, device="meta"), (torch.ones(2),), training=False)
    with pytest.raises(poptorch.Error, match="weight has no shape yet.*Call the module once"):
        capture(nn.LazyLinear(2), (torch.ones(1, 2),), training=False)


def test_parameter_whose_elements_are_one_cannot_be_trained():
    layer = torch.nn.Linear(3, 2)
    layer.weight = torch.nn.Parameter(torch.ones(2, 1).expand(2, 3))
    with pytest.raises(poptorch.Error, match=r"weight is to be trained and has sizes \[2, 3\] and "
                                             r"strides \[1, 0\].*Make it of a copy"):
        capture(layer, (torch.zeros(1, 3),), training=True)


def test_the_function_of_reentrant_checkpoints():
    def forward(m, x):
        y = CheckpointFunction.apply(lambda x: x * m.w, True, x * m.w)
        return y, F.mse_loss(y, x)

    module = Function(forward, {"w": torch.ones(3)})
    with pytest.raises(poptorch.Error, match="CheckpointFunction was called by itself"):
        capture(module, (torch.ones(2, 3),), training=True)


def test_changes_that_no_schema_tells():
    module = Function(None, buffers={"y": torch.ones(3)})
    module.forward = lambda x: module.outside.unsqueeze_(0) + x
    module.outside = torch.ones(3)
    with pytest.raises(poptorch.Error, match="shape of a tensor from outside"):
        capture(module, (torch.ones(2, 3),), training=False)


@pytest.mark.parametrize("sizes", [(4, 0, 5, 5), (0, 3, 5, 5)])
def test_native_batch_norm_of_nothing(sizes):
    """Rules for fake tensors take it, and the kernel of its gradient ends the process."""
    def forward(m, x):
        y = torch.native_batch_norm(x, m.w, m.w, None, None, True, 0.1, 1e-5)[0]
        return F.mse_loss(y, x)

    module = Function(forward, {"w": torch.ones(sizes[1])})
    with pytest.raises(poptorch.Error) as raised:
        capture(module, (torch.ones(sizes),), training=True)
    assert str(raised.value).startswith(
        f"[native_batch_norm] the input of shape {list(sizes)} has no elements, which PyTorch does "
        f"not take here. Call torch.nn.functional.batch_norm, or pass at least one.")
    assert raised.value.location.startswith(__file__)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_without_channels(training):
    def forward(m, x):
        return F.batch_norm(x, m.w.detach(), m.w.detach(), m.w, training=training)

    module = Function(forward, {"w": torch.ones(0)})
    with pytest.raises(poptorch.Error, match="PyTorch refuses.*change the arguments"):
        capture(module, (torch.ones(4, 0, 5, 5),), training=False)


def test_backward_inside_forward():
    def forward(m, x):
        loss = F.mse_loss(x * m.p, x)
        loss.backward()
        return loss

    with pytest.raises(poptorch.Error, match="forward calls backward.*Return the loss"):
        capture(Function(forward, {"p": torch.ones(3)}), (torch.ones(3),), training=True)


def test_capture_inside_capture():
    inner = nn.Linear(3, 3)
    with pytest.raises(poptorch.Error, match="compiled inside the forward of another"):
        capture(Function(lambda m, x: capture(inner, (x,), training=False)), (torch.ones(3),),
                training=False)


def test_an_output_from_outside_warns():
    outside = torch.ones(3)
    with pytest.warns(UserWarning, match="Output expected to be on the IPU but is on cpu") as seen:
        captured = capture(Function(lambda m, x: (x, outside)), (torch.ones(3),), training=False)
    assert len(seen) == 1
    assert [s.node.op for s in captured.outputs] == ["placeholder"] * 2


def test_error_classes():
    error = poptorch.RecoverableError("[x] words", recovery_action="IPU_RESET", location="a.py:1")
    assert (error.message, error.type, error.location, error.recovery_action) == (
        "[x] words", "poptorch_error", "a.py:1", "IPU_RESET")
    assert isinstance(error, poptorch.Error) and isinstance(error, RuntimeError)
    assert issubclass(poptorch.UnrecoverableError, poptorch.Error)


def nested(value, depth, kind):
    """The value within so many containers of a kind."""
    for _ in range(depth):
        value = {"inner": value} if kind is dict else kind([value])
    return value


@pytest.mark.parametrize("kind", [list, tuple, dict])
@pytest.mark.parametrize("depth", [5000, 100_000])
def test_deeply_nested_results(kind, depth):
    model = poptorch.inferenceModel(Function(lambda m, x: (nested(x, depth, kind), x)),
                                    poptorch.Options().showCompilationProgressBar(False))
    with pytest.raises(poptorch.Error, match="or is nested more than 100 levels deep"):
        model(torch.ones(2))


HALF_A_PAIR = "w\ud800"


def with_name(register, value):
    def make():
        module = Function(lambda m, x: x * 2)
        getattr(module, register)(HALF_A_PAIR, value)
        return module, (torch.ones(2),), {}

    return make


@pytest.mark.parametrize("make", [
    with_name("register_parameter", nn.Parameter(torch.ones(2))),
    with_name("register_buffer", torch.ones(2)), with_name("add_module", nn.ReLU()),
    lambda: (Function(lambda m, **inputs: inputs[HALF_A_PAIR] * 2), (),
             {HALF_A_PAIR: torch.ones(2)})])
def test_names_that_are_no_text(make):
    module, args, kwargs = make()
    words = (r"^\[capture\] the name '.*w\\ud800' of an argument, a layer, a parameter or a buffer "
             r"holds half a surrogate pair: UTF-8 has no form of it\. Rename it\.$")
    with pytest.raises(poptorch.Error, match=words):
        capture(module, args, kwargs, training=False)


def test_half_a_surrogate_pair_in_other_names():
    module = Function(lambda m, x: {HALF_A_PAIR: x * getattr(m, HALF_A_PAIR)})
    setattr(module, HALF_A_PAIR, torch.full((2,), 3.0))
    result = poptorch.inferenceModel(module, quiet_options())(torch.ones(2))
    assert result[HALF_A_PAIR].tolist() == [3, 3]

"""Arguments that change their shape in ``forward``: the caller's tensors change it as in eager."""

import random
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.capture.common import Function
from tests.fuzz.judge import budget
from tests.helpers import quiet_options

OF_SHAPE = ["squeeze_()", "squeeze_({dim})", "unsqueeze_({dim})", "transpose_({dim}, {other})",
            "swapaxes_({dim}, -1)", "swapdims_(0, {dim})", "t_()"]
BESIDE = ["{a}.mul_(2)", "{a}.add_(1.5)", "{a}.view(-1)[0] = 7", "{a}[..., -1] += 1"]
READ = ["{a}.unsqueeze(0)", "{a}[:1]", "{a}.mT", "{a}.flatten()", "{a}.detach()", "{a} * 2"]
SHAPES = [(1, 3), (3, 3), (2, 1, 3), (4,), (1, 1), (2, 3)]


def drawn(rng: random.Random) -> list[str]:
    """Lines that change the shapes of ``x`` and ``y``, and of views of them."""
    lines = []
    for number in range(rng.randint(1, 5)):
        a = rng.choice("xy")
        dims = {"dim": rng.randint(-1, 1), "other": rng.randint(-2, 1)}
        change = rng.choice(OF_SHAPE).format(**dims)
        kind = rng.random()
        if kind < 0.5:
            lines.append(f"{a}.{change}")
        elif kind < 0.7:
            lines.append(rng.choice(BESIDE).format(a=a))
        else:  # of a view or a copy, which the caller does not see
            lines += [f"v{number} = {rng.choice(READ).format(a=a)}", f"v{number}.{change}"]
    return lines


def module(lines: list[str]) -> Function:
    def forward(m, x, y):
        names = {"x": x, "y": y}
        exec("\n".join(lines), names)
        return [part * 1 for name, part in names.items() if name[0] in "xyv"]

    return Function(forward)


def looks(tensors) -> list:
    return [(t.shape, t.stride(), t.tolist()) for t in tensors]


@given(seed=st.integers(0, 2**32))
@budget(20)
def test_callers_tensors_change_as_in_eager(seed):
    rng = random.Random(seed)
    while True:  # torch refuses some dimensions
        lines = drawn(rng)
        tensors = [torch.randn(rng.choice(SHAPES)) for _ in "xy"]
        theirs, ours = ([t.clone() for t in tensors] for _ in range(2))
        try:
            expected = module(lines)(*theirs)
        except (IndexError, RuntimeError):
            continue
        break
    model = poptorch.inferenceModel(module(lines), quiet_options())
    try:
        found = model(*ours)
        assert looks(ours) == looks(theirs)
        assert [t.tolist() for t in found] == [t.tolist() for t in expected]
    except Exception as error:
        error.add_note(f"seed {seed}, {[t.shape for t in tensors]}:\n" + "\n".join(lines))
        raise
    finally:
        model.destroy()


def test_an_argument_that_is_not_contiguous():
    lines = ["x.mul_(2)", "x.t_().unsqueeze_(-1)"]
    model = poptorch.inferenceModel(module(lines), quiet_options())
    x = torch.arange(6.0).view(2, 3).t()
    found, _ = model(x, torch.zeros(2))
    assert x.shape == (2, 3, 1) and torch.equal(x, 2 * torch.arange(6.0).view(2, 3, 1))
    assert torch.equal(found, x)
    model.destroy()


class Squeezes(torch.nn.Module):
    def forward(self, x):
        x.squeeze_((0, 2)).t_()
        return x + 1


def test_a_program_from_a_file_changes_shapes(tmp_path):
    model = poptorch.inferenceModel(Squeezes(), quiet_options())
    model.compileAndExport(tmp_path / "file.poptorch", torch.ones(1, 2, 1, 3))
    model.destroy()
    x = torch.arange(6.0).view(1, 2, 1, 3)
    loaded = poptorch.load(tmp_path / "file.poptorch")
    assert torch.equal(loaded(x), torch.arange(6.0).view(2, 3).t() + 1)
    assert torch.equal(x, torch.arange(6.0).view(2, 3).t())
    loaded.destroy()


@pytest.mark.parametrize("line", ("x.as_strided_((3, 2), (1, 3))", "x.resize_(2, 2)"))
def test_changes_that_name_places_in_memory_are_refused(line):
    model = poptorch.inferenceModel(module([line]), quiet_options())
    with pytest.raises(poptorch.Error, match=r"changes the shape of the argument args\.0 in place "
                                             r"\(as_strided_ or resize_\)\. Change a view"):
        model(torch.ones(2, 3), torch.ones(1))


def test_several_micro_batches_in_one_tensor():
    options = quiet_options().deviceIterations(2)
    model = poptorch.inferenceModel(module(["x.unsqueeze_(0)"]), options)
    with pytest.raises(poptorch.Error, match=re.escape(
            "forward changes the shape of args.0 in place, and a call passes 2 micro-batches in "
            "one tensor. Change a view")):
        model(torch.ones(2, 3), torch.ones(2))


def test_one_tensor_that_is_passed_twice():
    model = poptorch.inferenceModel(module(["x.t_()"]), quiet_options())
    x = torch.ones(2, 2)
    with pytest.raises(poptorch.Error, match=re.escape(
            "changes the shape of args.0 in place, which is also passed as args.1. Pass args.1.v")):
        model(x, x)
    model.destroy()

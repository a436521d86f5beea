"""compare(): planted differences are found, named and placed; equal numbers are none."""

import inspect
import re

import pytest
import torch
from torch.nn import functional

import poptorch
from poptorch.__main__ import main
from poptorch._translate.rules.table import RULES
from tests.helpers import quiet_options
from tests.networks.zoo import NETWORKS, build

compare = poptorch.testing.compare


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.second = torch.nn.Linear(8, 3)

    def hidden(self, x):
        return functional.silu(self.first(x)).exp2()

    def forward(self, x):
        y = self.second(self.hidden(x))
        return y, poptorch.identity_loss((y * y).mean(), "none")


LINE = inspect.getsourcelines(Net.hidden)[1] + 1


def plant(monkeypatch, name, rule):
    """Lets the translation of an operation do something else."""
    monkeypatch.setitem(RULES, f"aten::{name}", rule)


def wrong_exp2(e, node, x):
    """An error that is small, in one element."""
    factor = torch.ones(node.meta["val"].shape)
    factor[1, 2] = 1.001
    return e.op("mul", e.op("exp2", x), e.constant(factor, torch.float32))


@pytest.mark.parametrize("training", [False, True])
def test_nothing_differs(training):
    found = compare(Net(), torch.randn(3, 4), training=training, steps=3)
    assert found and found.first is None and not found.results and found.steps == 3
    assert found.compared > 3 * (20 if training else 5)
    assert str(found).endswith("of 3 steps compared one by one: the same numbers as PyTorch.")


@pytest.mark.parametrize("training", [False, True])
def test_a_wrong_operation_is_named(training, monkeypatch):
    plant(monkeypatch, "exp2", wrong_exp2)
    found = compare(Net(), torch.randn(3, 4), training=training)
    first = found.first
    assert not found and (first.operation, first.name) == ("exp2", "exp2")
    assert first.location == f"{__file__}:{LINE}" and first.index == (1, 2)
    assert first.ours == pytest.approx(1.001 * first.expected, rel=1e-4)
    assert first.limit < 1e-5 < first.error < 1e-2 and "a fault of its kernel" in first.cause
    # Its consequences are reported, and are not taken for its cause.
    assert "result 0" in [result.name for result in found.results]
    assert f"at {__file__}:{LINE}" in str(found) and "So does result 0" in str(found)


def test_a_wrong_gradient_is_named(monkeypatch):
    """Of silu, whose backward pass computes the sigmoid; forward does not."""
    plant(monkeypatch, "sigmoid", lambda e, node, x: e.op("hardsigmoid", x))
    assert compare(Net(), torch.randn(3, 4), training=False)
    first = compare(Net(), torch.randn(3, 4), training=True).first
    assert first.name == "backward/sigmoid" and first.operation == "sigmoid"
    assert first.location == f"{__file__}:{LINE}"


def test_the_module_is_named(monkeypatch):
    def wrong(e, node, bias, x, weight, **more):
        return e.op("matmul", x, weight)

    plant(monkeypatch, "addmm", wrong)
    first = compare(Net(), torch.randn(3, 4), training=False).first
    assert (first.module, first.name) == ("first", "first/addmm")
    assert 'module "first"' in str(first)


def test_the_step_is_named(monkeypatch):
    class Late(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(2))

        def forward(self, x):
            self.calls += 1
            return torch.ceil(self.calls / 3 - 0.5) * x

    def wrong(e, node, x):
        return e.op("relu", x)

    plant(monkeypatch, "ceil", wrong)
    found = compare(Late(), torch.ones(2), steps=5, training=False)
    # The buffer is 1, 2, 3: -1/6 and 1/6 and 1/2 before ceil; relu is right for the first.
    assert found.first.step == 1 and found.steps == 2


def test_whole_numbers_must_be_equal(monkeypatch):
    plant(monkeypatch, "argmax", lambda e, node, x, *more: e.op(
        "argmin", x, dim=1, index_dtype=_index_dtype()))

    class Choice(torch.nn.Module):
        def forward(self, x):
            return x.argmax(1)

    first = compare(Choice(), torch.randn(3, 4), training=False).first
    assert first.operation == "argmax" and "nearly equal numbers" in first.cause


def _index_dtype():
    return poptorch._C.DType("i32")


def test_what_only_the_whole_model_shows():
    class Asks(torch.nn.Module):
        def forward(self, x):
            return x * 2 if poptorch.isRunningOnIpu() else x * 2.01

    found = compare(Asks(), torch.ones(3), training=False)
    assert not found and found.first is None
    assert "no single operation differs: the recorded graph" in found.results[0].cause


def other_gradient(y):
    return y.detach() if poptorch.isRunningOnIpu() else y


class Here(torch.nn.Module):
    """Computes something else here than in PyTorch."""

    def __init__(self, here, there):
        super().__init__()
        self.weight, self.other = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
        self.here, self.there = here, there

    def forward(self, x):
        x = x * self.weight
        y = self.here(x) if poptorch.isRunningOnIpu() else self.there(x)
        if not self.training:
            return y
        return y, poptorch.identity_loss((x * other_gradient(self.other)).sum(), "sum")


@pytest.mark.parametrize(("here", "there", "words"), [
    (lambda x: x * 0, lambda x: x * torch.nan, r"result 0 differs in step 0: error inf, limit .*; "
                                               r"element \[0\] is 0, expected nan"),
    (lambda x: x * torch.nan, lambda x: x * 0, r"result 0 .* error nan.*\[0\] is nan, expected 0"),
    (lambda x: x / 0, lambda x: x * 2, r"result 0 .*\[0\] is inf, expected 2"),
    (lambda x: x[None], lambda x: x, r"result 0 differs in step 0: torch.float32 of shape \[1, 3\] "
                                     r"here, torch.float32 of shape \[3\] in PyTorch\."),
    (lambda x: x.half(), lambda x: x, r"torch.float16 of shape \[3\] here, torch.float32 of"),
    (lambda x: x, lambda x: (x, x + 1), r"result 1 differs in step 0: nothing here, torch.float32 "
                                        r"of shape \[3\] in PyTorch"),
    (lambda x: (x, x + 1), lambda x: x, r"result 1 .*: torch.float32 of .* here, nothing in")])
def test_results_of_another_form(here, there, words):
    found = compare(Here(here, there).eval(), torch.ones(3))
    assert not found and found.first is None and len(found.results) == 1
    assert re.search(words, str(found)) and "no single operation differs" in str(found)


def test_a_gradient_that_is_missing():
    found = compare(Here(torch.neg, torch.neg), torch.ones(3))
    assert not found and [one.name for one in found.results] == ["gradient of other"]
    assert ("gradient of other differs in step 0: nothing here, torch.float32 of shape [3] in "
            "PyTorch.") in str(found)


def test_gradients_of_what_is_not_trained():
    net = Net()
    net.first.requires_grad_(False)
    for parts in (net.second.parameters(), [net.second.weight]):
        assert compare(net, torch.randn(3, 4), training=True,
                       optimizer=torch.optim.SGD(parts, lr=0.1))


def test_equal_infinities_and_what_is_no_number_are_the_same():
    assert compare(Here(*[lambda x: x / torch.tensor([0.0, torch.nan, 1.0])] * 2).eval(),
                   torch.ones(3))


@pytest.mark.parametrize("steps", [0, -3])
def test_there_is_at_least_one_step(steps):
    with pytest.raises(ValueError, match=r"\[compare steps\] expected an int of at least 1, got "):
        compare(Net(), torch.randn(3, 4), steps=steps)


@pytest.mark.parametrize("training", [None, False, True])
@pytest.mark.parametrize("model, words", [
    (torch.nn.Linear, "the class Linear"), (Net, "the class Net"), (None, "NoneType"),
    (poptorch.inferenceModel(Net()), "PoplarExecutor")], ids=str)
def test_only_modules_are_compared(model, words, training):
    with pytest.raises(TypeError, match=rf"^\[compare\] model must be a torch.nn.Module, got "
                                        rf"{words}\. Pass an object"):
        compare(model, torch.ones(3, 4), training=training)


def test_nothing_to_train():
    for module, training in ((torch.nn.ReLU(), None), (torch.nn.ReLU().eval(), True)):
        with pytest.raises(poptorch.Error, match=(
                r"^\[compare\] no parameter of the ReLU requires grad: there is nothing to train. "
                r"Pass training=False; on the command line leave out --training\.$")):
            compare(module, torch.ones(3), training=training)
    assert compare(torch.nn.ReLU(), torch.ones(3), training=False)


def test_random_operations_are_not_compared_and_the_rest_is(monkeypatch):
    class Drops(torch.nn.Module):
        def forward(self, x):
            return functional.dropout(x, 0.5).exp2() + torch.rand(3, 4)

    found = compare(Drops().train(), torch.randn(3, 4), training=False)
    assert found and found.compared == 2
    assert "Not compared, they draw random numbers: dropout, rand." in str(found)
    plant(monkeypatch, "exp2", wrong_exp2)
    assert compare(Drops().train(), torch.ones(3, 4), training=False).first.operation == "exp2"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves(dtype, monkeypatch):
    net, x = Net().to(dtype), torch.randn(3, 4).to(dtype)
    assert compare(net, x, training=True, steps=2)

    # A few units in the last place of the type.
    off = 1 + 8 * torch.finfo(dtype).eps
    plant(monkeypatch, "exp2", lambda e, node, x: e.op(
        "mul", e.op("exp2", x), e.constant(torch.tensor(off, dtype=dtype), dtype)))
    first = compare(net, x, training=False).first
    assert first.operation == "exp2" and "rounding to 16 bits" in first.cause


@pytest.mark.parametrize("name", ["lstm_tagger", "unet", "bert_encoder", "nested_structures"])
def test_networks(name, seed):
    assert name in NETWORKS
    network = build(name, seed)
    found = compare(network.module.train(), *network.batches(1, seed)[0], steps=2)
    assert found, str(found)


def test_the_model_stays_what_it_is():
    net = Net().train()
    net.register_buffer("calls", torch.zeros(1))
    before = {name: value.clone() for name, value in net.state_dict().items()}
    compare(net, torch.randn(3, 4), training=False, optimizer=None)
    compare(net, torch.randn(3, 4), optimizer=torch.optim.AdamW(net.parameters(), lr=0.1))
    assert net.training and all(torch.equal(before[k], v) for k, v in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.parametrize("setter, value", [
    ("deviceIterations", 2), ("Training__gradientAccumulation", 3), ("replicationFactor", 2)])
def test_several_steps_of_a_call(setter, value):
    name = setter.rpartition("__")[2]
    with pytest.raises(poptorch.Error, match=rf"\[compare\] the options have {name}\({value}\)"):
        compare(Net(), torch.randn(3, 4), options=quiet_options(**{setter: value}))


# -- python -m poptorch compare --------------------------------------------------------------------

SOURCE = """
import torch
import poptorch

class Double(torch.nn.Module):
    def forward(self, x):
        return x.exp2() * {factor}

class Trained(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)

    def forward(self, words):
        return poptorch.identity_loss(self.table(words).sin().sum(), "none")

def inputs():
    return torch.ones(2, 3)

class Sized(torch.nn.Linear):
    pass

def number():
    return 3

name = "net"
"""


@pytest.fixture
def source(tmp_path):
    def write(factor="2"):
        path = tmp_path / "user_net.py"
        path.write_text(SOURCE.replace("{factor}", factor))
        return path

    return write


def test_command(source, capsys):
    path = source()
    assert main(["compare", f"{path}:Double"]) == 0
    assert "the same numbers as PyTorch" in capsys.readouterr().out
    assert main(["compare", f"{path}:Trained", "--input", "i64[8,2]:10", "--training",
                 "--steps", "2"]) == 0
    assert "of 2 steps compared" in capsys.readouterr().out


def test_command_that_finds_something(source, capsys):
    path = source("(2 if poptorch.isRunningOnIpu() else 3)")
    assert main(["compare", f"{path}:Double", "--input", "f32[2,3]"]) == 2
    assert "result 0 differs in step 0" in capsys.readouterr().out


@pytest.mark.parametrize("words, message", [
    (["net.py"], "[compare] expected file.py:Name, got 'net.py'."),
    (["no/such.py:Net"], "[compare] there is no file no/such.py."),
    (["{path}:Tripple"], "does not define Tripple. It defines Double, Trained, inputs, "),
    (["{path}:Sized"], "Sized needs arguments to make the model (missing a required argument: "
                       "'in_features'). Name a function without any, such as `def make(): "
                       "return Sized(...)`, or the model."),
    (["{path}:name"], "name is an object of str. Name a torch.nn.Module, its class, or a function"),
    (["{path}:number"], "number returned an object of int. It must return a torch.nn.Module."),
    (["{path}:Double", "--training"], "no parameter of the Double requires grad: there is nothing "
                                      "to train. Pass training=False; on the command line leave "),
    (["{path}:Double", "--input", "f32[2,x]"], "[compare] expected an input like f32[8,3,224,224]"),
    (["{path}:Double", "--input", "i64[2]:float"], "[compare] expected an input like f32[8,64] or, "
     "for whole numbers below 10, i64[8]:10, got 'i64[2]:float'."),
    (["{path}:Double", "--input", "f32[2]:10"], "i64[8]:10, got 'f32[2]:10'."),
    (["{path}:Double", "--input", "u8[2]:1000"], "[compare] the type of 'u8[2]:1000' does not have "
                                                 "whole numbers up to 1000: "),
])
def test_mistakes_of_the_command(words, message, source, capsys):
    words = [word.replace("{path}", str(source())) for word in words]
    assert main(["compare", *words]) == 1
    assert message in capsys.readouterr().err

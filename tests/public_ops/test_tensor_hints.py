"""Functions that annotate a tensor, and the annotation in the program."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import poptorch
from poptorch import nop, set_available_memory
from tests.capture.common import Function
from tests.helpers import quiet_options


def inference(forward, *args, **parameters):
    """Checks the values against eager; the program."""
    module = Function(forward, parameters)
    model = poptorch.inferenceModel(module, quiet_options())
    copies = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
    found = model(*args)
    with torch.no_grad():
        torch.testing.assert_close(found, module(*copies))
    return model


def limited(model, step="rewrite"):
    """The ops with a limit, by name, and the limit."""
    lines = [line for line in model.ir(step).splitlines() if "available_memory=" in line]
    return [(line.split(" = ")[1].split()[0],
             float(line.split("available_memory=")[1].split("}")[0].split(",")[0]))
            for line in lines]


X, W, BIAS = torch.randn(4, 6), torch.randn(8, 6), torch.randn(8)
IMAGE, KERNEL = torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3)
I = torch.tensor([[0, 1, 2, 3, 0, 1]])
CASES = {
    "mm": (lambda m, x: x @ m.w.t(), "matmul"),
    "bmm": (lambda m, x: x.expand(2, 4, 6) @ m.w.t().expand(2, 6, 8), "matmul"),
    "linear": (lambda m, x: F.linear(x, m.w, m.b), "addmm"),
    "linear3d": (lambda m, x: F.linear(x.reshape(2, 2, 6), m.w, m.b), "addmm"),
    "bias": (lambda m, x: (x @ m.w.t()) + m.b, "matmul"),
    "bias_in_place": (lambda m, x: (x @ m.w.t()).add_(m.b), "matmul"),
    "cast": (lambda m, x: (x @ m.w.t()).half(), "matmul"),
    "view": (lambda m, x: (x @ m.w.t()).flatten(), "matmul"),
    "part": (lambda m, x: (x @ m.w.t()).chunk(2)[1], "matmul"),
    "baddbmm": (lambda m, x: torch.baddbmm(m.b, x.expand(2, 4, 6), m.w.t().expand(2, 6, 8)),
                "baddbmm"),
    "embedding": (lambda m, x: F.embedding(I, m.w), "embedding"),
    "index": (lambda m, x: x[I[0, :4]], "index"),
    "index_select": (lambda m, x: x.index_select(0, I[0, :4]), "index_select"),
    "gather": (lambda m, x: x.gather(0, I), "gather"),
    "scatter": (lambda m, x: x.scatter(0, I, m.w[:1]), "scatter"),
    "scatter_add": (lambda m, x: x.scatter_add(0, I, m.w[:1]), "scatter_add"),
    "scatter_reduce": (lambda m, x: x.scatter_reduce(0, I, m.w[:1], "amax"), "scatter_reduce"),
    "index_add_": (lambda m, x: x.clone().index_add_(0, I[0, :2], m.w[:2]), "index_add"),
    "index_put_": (lambda m, x: x.clone().index_put_((I[0, :2],), m.w[0]), "index_put"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_limit_is_on_the_operation_that_gave_the_tensor(name):
    operation, op = CASES[name]
    model = inference(lambda m, x: set_available_memory(operation(m, x), 0.2), X, w=W, b=BIAS)
    assert limited(model, "translate") == limited(model) == [(op, 0.2)]


def test_convolutions_keep_it_when_they_are_packed_and_fused():
    def forward(m, x):
        return set_available_memory(F.conv2d(x, m.w), 0.25).relu() + 1

    model = inference(forward, IMAGE, w=KERNEL)
    assert limited(model, "translate") == [("convolution", 0.25)]
    assert [share for _, share in limited(model)] == [0.25]


def test_the_gradient_has_it_too():
    def forward(m, x):
        y = set_available_memory(F.linear(x.tanh(), m.w, m.b).tanh() @ m.w, 0.3)
        return y, F.mse_loss(y, x)

    model = poptorch.trainingModel(Function(forward, {"w": W.clone(), "b": BIAS.clone()}),
                                   quiet_options())
    model(X)
    lines = [line for line in model.ir("translate").splitlines() if "available_memory=0.3" in line]
    assert ['part="backward"' in line for line in lines] == [False, True, True]


def test_parts_of_a_product_have_it():
    def forward(m, x):
        mode = poptorch.MatMulSerializationMode.ReducingDim
        return set_available_memory(poptorch.serializedMatMul(x, m.w.t(), mode, 2), 0.2)

    assert limited(inference(forward, X, w=W)) == [("matmul", 0.2), ("addmm", 0.2)]


def test_in_a_recomputation_it_is_said_again():
    def inner(w, x):
        return set_available_memory((x @ w).sin() @ w, 0.2).sin()

    def forward(m, x):
        x = checkpoint(inner, m.w, x, use_reentrant=False)
        return x, F.mse_loss(x, torch.zeros_like(x))

    model = poptorch.trainingModel(Function(forward, {"w": torch.randn(6, 6)}), quiet_options())
    model(X)
    lines = [line for line in model.ir("translate").splitlines() if "available_memory=0.2" in line]
    assert sum("recompute=1" in line for line in lines) == 1
    assert len(lines) == 4


def test_the_last_one_counts():
    def forward(m, x):
        y = set_available_memory(x @ m.w.t(), 0.2)
        return set_available_memory(y, 0)

    assert limited(inference(forward, X, w=W)) == [("matmul", 0.0)]


@pytest.mark.parametrize("operation", [
    lambda m, x: x, lambda m, x: (x @ m.w.t()).relu(), lambda m, x: x.sin() + x @ m.w.t() @ m.w],
    ids=["input", "relu", "residual"])
def test_of_other_operations_nothing_is_said(operation, caplog):
    model = inference(lambda m, x: set_available_memory(operation(m, x), 0.2), X, w=W)
    assert limited(model) == []
    assert "[set_available_memory] the tensor is not what" in caplog.text


@pytest.mark.parametrize(("arguments", "kind", "words"), [
    (([1.0], 0.2), TypeError, r"^\[set_available_memory\] tensor .* tensor, got list"),
    ((X, "0.2"), TypeError, "available_memory_proportion .* number from 0 to 1, got str '0.2'"),
    ((X, True), TypeError, "got bool True"),
    ((X, 1.1), ValueError, "from 0 to 1, got 1.1"),
    ((X, -0.1), ValueError, "got -0.1"),
    ((X, float("nan")), ValueError, "got nan"),
])
def test_what_is_no_limit(arguments, kind, words):
    with pytest.raises(kind, match=words):
        set_available_memory(*arguments)


def test_outside_of_poptorch_it_is_the_same_tensor():
    assert set_available_memory(X, 0.2) is X


def test_a_product_in_a_region():
    def forward(m, x):
        part = torch.compiler.nested_compile_region(lambda x: x @ m.w.t())
        return set_available_memory(part(x), 0.2)

    assert limited(inference(forward, X, w=W)) == [("matmul", 0.2)]


def ops_of(model, step="lower"):
    """The names of the ops of a step, in order."""
    lines = [line for line in model.ir(step).splitlines() if " = " in line]
    return [line.split(" = ")[1].split()[0] for line in lines]


def test_a_nop_stays_in_the_program():
    def forward(m, x):
        return nop(nop(x) * 2) + nop(nop(x) * 2)

    model = inference(forward, X)
    assert ops_of(model).count("nop") == 4
    assert "fused" not in ops_of(inference(lambda m, x: nop(x * 2).relu(), X))
    assert "fused" in ops_of(inference(lambda m, x: (x * 2).relu(), X))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.uint8,
                                   torch.bool])
def test_a_nop_of_any_type_and_layout(dtype):
    x = torch.randint(0, 2, (3, 1, 4)).to(dtype)
    inference(lambda m, x: (nop(x.mT.expand(3, 4, 5)), nop(x[0, 0, 1]), nop(x[:0])), x)


def test_the_gradient_passes_a_nop():
    def forward(m, x):
        y = nop(nop(m.w) @ x).sin()
        return y, F.mse_loss(y, x)

    module = Function(forward, {"w": torch.randn(4, 4)})
    x = torch.randn(4, 4)
    module(x)[1].backward()
    model = poptorch.trainingModel(Function(forward, {"w": module.w.detach().clone()}),
                                   quiet_options())
    with poptorch.testing.keep_gradients():
        model(x)
    torch.testing.assert_close(poptorch.testing.gradients(model)["w"], module.w.grad)
    assert ops_of(model).count("nop") == 2


def test_changes_in_place_pass_a_nop():
    """Outside of poptorch it is the same tensor."""
    def forward(m, x):
        y = x * 1
        z = nop(y)
        z.add_(1)
        y.mul_(2)
        nop(x)[1].zero_()
        return y, z, x

    ours, theirs = X.clone(), X.clone()
    model = poptorch.inferenceModel(Function(forward), quiet_options())
    torch.testing.assert_close(model(ours), forward(None, theirs))
    torch.testing.assert_close(ours, theirs)


def test_a_nop_of_no_tensor_is_refused():
    with pytest.raises(TypeError, match=r"^\[nop\] tensor .* expected to be a tensor, got int 3"):
        nop(3)
    assert nop(X)._base is X


@pytest.mark.parametrize(("forward", "words"), [
    (lambda x: poptorch.nop(3), r"^\[nop\] tensor is expected to be a tensor, got int 3\.\n"),
    (lambda x: poptorch.Block("A", -1), r"^\[Block ipu_id\] expected an int of at least 0, got -1"),
    (lambda x: poptorch.set_overlap_for_input(x, 3), r"^\[set_overlap_for_input\] expected one of"),
    (lambda x: poptorch.MultiConv().cycleBackOff(9),
     r"from 0 to 1, got 9\. It is a share of the fastest plan's time\.\n")])
def test_what_functions_of_poptorch_refuse_in_forward_is_said_by_them_alone(forward, words):
    class Net(torch.nn.Module):
        def forward(self, x):
            return forward(x)

    model = poptorch.inferenceModel(Net(), poptorch.Options().showCompilationProgressBar(False))
    with pytest.raises((ValueError, TypeError), match=words) as raised:
        model(torch.ones(2))
    assert isinstance(raised.value, poptorch.Error) and "PyTorch" not in str(raised.value)
    assert "test_tensor_hints.py" in raised.value.location

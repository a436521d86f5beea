"""``poptorch.analyze``: operations of a model that is not run."""

import json

import pytest
import torch
import torch.nn.functional as F

import poptorch
from tests.helpers import quiet_options

X, TARGET = torch.ones(5, 4), torch.tensor([0, 1, 2, 0, 1])


class Refused(torch.nn.Module):
    """A refused call of each kind, before and after native ones."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.out = torch.nn.Linear(3, 3)

    def forward(self, x):
        y = self.fc(x)
        torch.nonzero(y)
        if y.sum() > 0:
            y = y * y.mean().item()
        torch.fft.fft(y).abs()
        y.relu_()
        y = y + y.to(torch.float8_e5m2).float()
        return self.out(y + torch.unique(y).sum())


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.unused = torch.nn.Linear(4, 3), torch.nn.Linear(2, 2)
        self.scale = torch.nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, x, target):
        y = self.fc(x) * self.scale
        return y, F.cross_entropy(y, target)


def names(rows):
    return [row.operation for row in rows]


def line_of(module, text):
    code = module.forward.__code__
    with open(code.co_filename) as file:
        lines = file.read().splitlines()
    return next(f"{code.co_filename}:{i}" for i, line in enumerate(lines, 1)
                if i > code.co_firstlineno and text in line)


def test_all_refused_operations_are_listed():
    found = poptorch.analyze(Refused(), X)
    assert isinstance(found, poptorch.Analysis)
    assert names(found.refused) == ["torch.nonzero", "torch.Tensor.__bool__", "torch.Tensor.item",
                                    "torch.functional.unique", "aten._to_copy", "aten._to_copy"]
    nonzero = found.refused[0]
    assert nonzero.location == line_of(Refused, "torch.nonzero") and nonzero.count == 1
    assert nonzero.reason.startswith("the shape of the result depends on the values of a tensor")
    assert nonzero.alternative.startswith("Keep the shape (torch.where")
    assert "an operand is of type float8_e5m2" in found.refused[-1].reason
    last = [row for row in found.rows if row.module == "out" and row.operation == "aten.addmm"]
    assert [row.status for row in last] == ["native"]
    with pytest.raises(poptorch.Error, match="nonzero"):
        poptorch.inferenceModel(Refused(), quiet_options())(X)


def test_gradients_flow_through_refused_operations():
    class Trained(Refused):
        def forward(self, x):
            return poptorch.identity_loss(super().forward(x), "mean")

    net = Trained()
    found = poptorch.analyze(net, X, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    assert found.loss == line_of(Trained, "identity_loss") and found.not_trained == {}
    assert "torch.functional.unique" in names(found.refused)
    assert {row.part for row in found.rows} == {"forward", "backward"}


def test_forward_raises_because_of_a_refused_call():
    class Checked(torch.nn.Module):
        def forward(self, x):
            y = x.exp()
            if y.isnan().any():
                raise ValueError("y has NaN")
            return y

    found = poptorch.analyze(Checked(), X)
    assert names(found.refused) == ["capture", "torch.Tensor.__bool__"]
    assert found.refused[0].reason == ("forward raises ValueError: y has NaN, maybe because of the "
                                       "value that a refused call got")
    assert found.refused[0].alternative == ("Change the refused calls first. The analysis ends "
                                            "here.")
    assert "aten.exp" in names(found.rows)


def test_equal_refused_calls_are_one_row():
    found = poptorch.analyze(lambda x: x + sum(map(float, x[0])), X)
    (row,) = found.refused
    assert row.operation == "torch.Tensor.__float__" and row.count == 4
    assert found.counts["refused"] == 4


def test_functions():
    def scaled(x, factor=2.0):
        return torch.linalg.qr(x * factor)[0]

    found = poptorch.analyze(scaled, X, factor=3.0)
    assert found.title == "scaled, inference"
    assert found.counts == {"native": 1, "opaque": 1, "refused": 0}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * gradient.mean().item()


def test_refused_operations_of_the_backward_pass():
    class Trained(Net):
        def forward(self, x, target):
            y = Doubled.apply(self.fc(x))
            y = torch.special.zeta(y.abs() + 2, y.abs() + 1)
            q = torch.geqrf(y)[0]
            return F.cross_entropy(q + y, target)

    net = Trained()
    found = poptorch.analyze(net, X, TARGET, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    rows = {row.operation: row for row in found.refused}
    assert set(rows) == {"torch.special.zeta", "torch.geqrf", "torch.Tensor.item"}
    assert {row.part for row in found.refused} == {"backward"}
    assert rows["torch.geqrf"].location == line_of(Trained, "geqrf")
    assert rows["torch.special.zeta"].reason == "the derivative for 'zeta' is not implemented"
    assert found.loss == line_of(Trained, "F.cross_entropy")
    assert "fc.weight" not in found.not_trained
    products = [row.part for row in found.rows if row.operation in ("aten.mm", "aten.addmm")]
    assert products == ["forward", "backward"]


def test_native_and_opaque_operations_and_their_work():
    class Opaque(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            return torch.linalg.svdvals(self.b(self.a(x)))

    with torch.device("meta"):
        net, x = Opaque(), torch.empty(5, 4)
    found = poptorch.analyze(net, x)
    products = [row for row in found.rows if row.operation == "aten.addmm"]
    assert [row.module for row in products] == ["a", "b"]
    assert products[0].flops == products[1].flops >= 2 * 5 * 4 * 4
    assert products[0].bytes >= 4 * (5 * 4 + 4 * 4 + 4 + 5 * 4)
    (svd,) = [row for row in found.rows if row.status == "opaque"]
    assert (svd.operation, svd.flops) == ("aten._linalg_svd", None)
    assert found.flops == sum(row.flops or 0 for row in found.rows)
    assert found.counts["opaque"] == 1 and found.counts["refused"] == 0


def test_loss_and_parameters_that_are_not_trained():
    net = Net()
    optimizer = torch.optim.SGD([net.fc.weight, net.scale], lr=0.1)
    found = poptorch.analyze(net, X, TARGET, optimizer=optimizer)
    assert found.title == "Net, training" and found.loss == line_of(Net, "F.cross_entropy")
    assert found.not_trained == {
        "fc.bias": "the optimizer does not have it",
        "unused.weight": "the optimizer does not have it",
        "unused.bias": "the optimizer does not have it",
        "scale": "requires_grad is False"}
    whole = poptorch.analyze(net, X, TARGET, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    assert whole.not_trained["unused.weight"] == "the loss does not depend on it"
    assert poptorch.analyze(net, X, TARGET).loss is None


def test_a_missing_loss_is_refused():
    net = torch.nn.Linear(4, 3)
    found = poptorch.analyze(net, X, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    assert names(found.refused) == ["loss"] and found.loss is None
    assert "Couldn't find a loss in graph" in found.refused[0].reason
    assert found.not_trained == dict.fromkeys(["weight", "bias"], "no loss was found")
    assert "loss: not found" in str(found)


def test_an_executor_with_its_loss_and_options():
    net = torch.nn.Linear(4, 3)
    opts = quiet_options()
    opts.Training.gradientAccumulation(5)
    model = poptorch.trainingModel(net, opts, loss=torch.nn.CrossEntropyLoss())
    found = poptorch.analyze(model, X, TARGET)
    assert found.title == "Linear, training" and not found.refused and found.not_trained == {}
    (product,) = [row for row in found.rows if row.operation == "aten.addmm"]
    assert product.flops < 2 * (2 * 4 * 3 + 3)  # one row
    assert not model.isCompiled()


def test_an_optimizer_without_an_update():
    net = Net()
    found = poptorch.analyze(net, X, TARGET, optimizer=torch.optim.LBFGS(net.parameters()))
    assert names(found.refused) == ["LBFGS"] and found.loss
    assert "has no update on the device" in found.refused[0].reason


def test_where_the_analysis_ends():
    class Ends(torch.nn.Module):
        def forward(self, x):
            y = torch.linalg.svdvals(x.clone().mul_(2))
            return y.relu() @ torch.ones(9, 9)

    found = poptorch.analyze(Ends(), X)
    assert names(found.refused) == ["capture"]
    assert found.refused[0].location == line_of(Ends, "torch.ones")
    assert "cannot be multiplied" in found.refused[0].reason
    assert found.refused[0].alternative.endswith("The analysis ends here.")
    status = {row.operation: row.status for row in found.rows}
    assert status["aten.mul_"] == status["aten.relu"] == "native"
    assert status["aten._linalg_svd"] == "opaque"


def test_what_forward_raises():
    class Raises(torch.nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        poptorch.analyze(Raises(), X)
    with pytest.raises(TypeError, match=r"\[analyze\] model must be a torch.nn.Module, got int"):
        poptorch.analyze(1, X)


def test_bodies_of_loops():
    class Loop(torch.nn.Module):
        def forward(self, x):
            return poptorch.for_loop(3, lambda a: [a + torch.linalg.svdvals(a)[:1]], [x])

    found = poptorch.analyze(Loop(), X)
    status = {row.operation: row.status for row in found.rows}
    assert status["for_loop"] == status["aten.add"] == "native"
    assert status["aten._linalg_svd"] == "opaque"


def test_text_html_and_json(tmp_path):
    found = poptorch.analyze(Refused(), X)
    text = str(found).splitlines()
    assert text[0].startswith("Refused, inference: ") and text[0].endswith(", 6 refused")
    assert text[1].split()[:4] == ["operation", "status", "count", "FLOPs"]
    assert text[2].split()[:4] == ["torch.nonzero", "refused", "1", "?"]
    assert text[-1].startswith("aten._to_copy is refused at ")
    assert found._repr_html_().startswith("<table><tr><th>operation</th>")
    assert "Keep the shape" in found._repr_html_()
    data = json.loads(found.to_json(str(tmp_path / "a.json")))
    assert json.loads((tmp_path / "a.json").read_text()) == data
    assert data["counts"] == found.counts and len(data["rows"]) == len(found.rows)
    assert data["rows"][0]["operation"] == found.rows[0].operation

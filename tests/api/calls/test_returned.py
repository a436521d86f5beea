"""The tensors that a call returns."""

import copy
import io
import pickle

import pytest
import torch

import poptorch
from tests.helpers import quiet_options

X = torch.arange(6.0).reshape(2, 3)


@pytest.fixture
def result():
    return poptorch.inferenceModel(torch.nn.Linear(3, 1), quiet_options())(X)


@pytest.fixture
def number():
    net = torch.nn.Module()
    net.forward = lambda x: x.mean()
    return poptorch.inferenceModel(net, quiet_options())(X)


def test_results_have_no_history(result):
    assert type(result) is torch.Tensor and not vars(result) and not result.requires_grad
    net = torch.nn.Linear(3, 1)
    net.forward = lambda x: poptorch.identity_loss(torch.nn.functional.linear(x, net.weight),
                                                   "mean")
    loss = poptorch.trainingModel(net, quiet_options())(X)
    assert type(loss) is torch.Tensor
    for tensor in (result.sum(), loss):
        with pytest.raises(RuntimeError, match="does not require grad"):
            tensor.backward()


@pytest.mark.parametrize("wrap", [poptorch.inferenceModel, poptorch.trainingModel])
def test_an_argument_that_requires_grad_is_warned_of_once(wrap, capsys):
    net = torch.nn.Linear(3, 1)
    net.forward = lambda x: poptorch.identity_loss(torch.nn.functional.linear(x, net.weight),
                                                   "mean")
    model, x = wrap(net, quiet_options()), X.clone().requires_grad_()
    words = "[executor] x requires grad, but the results of an executor carry no gradient"
    model(X)
    with torch.no_grad():
        model(x)
    assert words not in capsys.readouterr().err
    for _ in range(2):
        assert not model(x).requires_grad
    err = capsys.readouterr().err
    assert err.count(words) == 1 and "wrap the module with trainingModel" in err
    assert "pass x.detach()" in err and x.grad is None


def test_uses(result):
    assert isinstance(result, torch.Tensor) and not result.requires_grad
    assert result.numpy().shape == (2, 1)
    assert (result == result.clone()).all() and torch.equal(result.detach(), result)
    assert repr(result).startswith("tensor([[") and str(result) == str(result.clone())
    assert f"{result[0, 0]:.3f}" == f"{result[0, 0].item():.3f}"
    with pytest.raises(TypeError, match="unsupported format string"):
        f"{result:.3f}"  # a matrix: as a plain one


def test_numbers(number):
    plain = number.clone()
    assert f"{number:.3f}" == f"{plain.item():.3f}" and f"{number}" == f"{plain}"
    assert "{:8.2e} {!r}".format(number, number) == "{:8.2e} {!r}".format(plain, plain)
    assert "%.3f" % number == "%.3f" % plain and f"{number.round():.0f}" == f"{plain.round():.0f}"
    assert round(float(number), 2) == round(plain.item(), 2) and int(number) == int(plain)


def test_parameters_and_buffers():
    model = poptorch.inferenceModel(torch.nn.Linear(3, 1), quiet_options())
    result = model(X)

    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(result)
            self.fixed = torch.nn.Parameter(model(X), requires_grad=False)
            self.marked = torch.nn.Buffer(model(X))
            self.register_buffer("given", model(X))
            self.register_buffer("other", model(X).detach())

        def forward(self, x):
            y = x * self.weight * self.fixed + self.marked + self.given + self.other
            return y, poptorch.identity_loss(y, "mean")

    net = Own()
    assert type(net.weight) is type(net.fixed) is torch.nn.Parameter
    assert type(net.marked) is torch.Tensor and isinstance(net.marked, torch.nn.Buffer)
    assert list(dict(net.named_parameters())) == ["weight", "fixed"]
    assert list(dict(net.named_buffers())) == ["marked", "given", "other"]
    assert net.weight.data_ptr() == result.data_ptr() and not result.requires_grad
    reference = copy.deepcopy(net)
    reference(X[:, :1])[1].backward()
    assert reference.weight.grad is not None and reference.fixed.grad is None
    torch.optim.SGD([reference.weight], lr=0.5).step()
    trained = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD([net.weight], lr=0.5))
    trained(X[:, :1])
    for name, value in net.state_dict().items():
        assert torch.allclose(value, reference.state_dict()[name], rtol=1e-5), name


def test_statistics_that_were_results(tmp_path):
    """A result that becomes a buffer is one in every way: trained, watched, written to files."""
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    reference = copy.deepcopy(net)
    net[1].running_mean = poptorch.inferenceModel(net[0], quiet_options())(torch.zeros(3))
    reference[1].running_mean = net[1].running_mean.clone()
    held, forward = net[1].running_mean, net.forward
    net.forward = lambda x: poptorch.identity_loss(forward(x), "mean")
    trained = poptorch.trainingModel(net, quiet_options())
    trained(X)
    reference.train()(X)
    assert torch.allclose(held, reference[1].running_mean, rtol=1e-5)
    stream = io.BytesIO()
    torch.save(net.state_dict(), stream)
    stream.seek(0)
    assert torch.equal(torch.load(stream, weights_only=True)["1.running_mean"], held)
    net.eval().forward = forward
    del net.forward
    trained.destroy()
    path = poptorch.inferenceModel(net, quiet_options()).compileAndExport(tmp_path / "net", X)
    assert torch.equal(poptorch.load(path).model[1].running_mean, held)


def test_a_history_of_its_own(number):
    number.requires_grad_().backward()  # a tensor that the user made a leaf is one
    assert number.grad.item() == 1.0


def test_loaders_and_processes(result):
    collated = torch.utils.data.default_collate([{"y": result}, {"y": result}])
    assert type(collated["y"]) is torch.Tensor and torch.equal(collated["y"][1], result)
    data = torch.utils.data.TensorDataset(result, result.clone())
    for loader in (torch.utils.data.DataLoader(data, batch_size=2),
                   torch.utils.data.DataLoader(data, batch_size=2, num_workers=1)):
        (a, b), = loader
        assert type(a) is torch.Tensor and torch.equal(a, b) and torch.equal(a, result)


@pytest.mark.parametrize("rows", [3, 300_000])
def test_results_can_be_resized(rows):
    model = poptorch.inferenceModel(torch.nn.ReLU(), quiet_options())
    for _ in range(2):
        y = model(torch.ones(rows)).resize_(2 * rows)
        assert torch.equal(torch.add(torch.ones(2 * rows), 1, out=y), torch.full((2 * rows,), 2.0))
        z = model(torch.ones(rows))
        z.untyped_storage().resize_(0)
        assert z.untyped_storage().nbytes() == 0
        y.resize_(rows // 2)
        assert torch.equal(y, torch.full((rows // 2,), 2.0))


def test_queues(result):
    queue = torch.multiprocessing.get_context("fork").SimpleQueue()
    queue.put({"y": result, "detached": result.detach()})
    for value in queue.get().values():
        assert type(value) is torch.Tensor and torch.equal(value, result)
    assert result.is_shared()  # as a plain tensor that goes through a queue


def test_computed_results_are_plain(result):
    weight = torch.ones(1, requires_grad=True)
    for computed in (result + 1, result[0], result.data, result.clone(), result * weight,
                     torch.cat([result, result])):
        assert type(computed) is torch.Tensor
    (result * weight).sum().backward()
    assert torch.allclose(weight.grad, result.sum())


def test_copies_are_plain(result):
    stream = io.BytesIO()
    torch.save({"y": result}, stream)
    stream.seek(0)
    for copied in (copy.deepcopy(result), pickle.loads(pickle.dumps(result)),
                   torch.load(stream, weights_only=True)["y"]):
        assert type(copied) is torch.Tensor and torch.equal(copied, result)


def test_results_are_inputs_of_other_models(result):
    again = poptorch.inferenceModel(torch.nn.ReLU(), quiet_options())
    for _ in range(2):
        assert torch.equal(again(result), result.relu())


@pytest.mark.parametrize("name", ["max", "min", "sort", "topk", "median", "cummax"])
def test_operations_with_several_results_give_tuples(name):
    def forward(x):
        return getattr(x, name)(2, dim=1) if name == "topk" else getattr(x, name)(dim=1)

    module = torch.nn.Module()
    module.forward = lambda x: {"found": forward(x), "first": forward(x)[0]}
    x = torch.randperm(12).reshape(3, 4).float()  # without ties
    result = poptorch.inferenceModel(module, quiet_options())(x)
    values, indices = result["found"]
    assert isinstance(result["found"], tuple) and indices.dtype is torch.int32
    assert torch.equal(values, forward(x)[0]) and torch.equal(indices.long(), forward(x)[1])
    assert torch.equal(result["first"], values)


@pytest.mark.parametrize("right, equal", [(torch.float32, True), (torch.float16, False)])
def test_numbers_are_compared_after_narrowing(right, equal):
    module = torch.nn.Module()
    module.forward = lambda a, b: a == b
    left = torch.tensor(550.4, dtype=torch.float64)
    model = poptorch.inferenceModel(module, quiet_options())
    assert model(left, torch.tensor(550.4, dtype=right)).item() is equal

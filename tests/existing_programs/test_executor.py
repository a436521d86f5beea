"""What programs do with executors beyond calling them."""

import copy
import inspect
import math

import pytest
import torch

import poptorch
import poptorch._poplar_executor
from tests.helpers import quiet_options

X, T = torch.arange(6.0).reshape(2, 3), torch.ones(2, 2)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x, target=None, return_dict=False, mode="plain"):
        y = self.fc(x)
        if target is None:
            return y
        return y, torch.nn.functional.mse_loss(y, target)


def wrapped(net, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1)
    return poptorch.trainingModel(net, quiet_options(), optimizer)


class Lightning(poptorch._poplar_executor.PoplarExecutor):
    """An executor as a framework subclasses it."""

    @property
    def training(self):
        return self._training

    def detachFromDevice(self):
        self._was_detached = self._is_attached
        super().detachFromDevice()

    def attachToDevice(self):
        self._was_compiled = bool(self._executable)
        super().attachToDevice()


def test_subclasses():
    net = Net()
    model = Lightning(model=net, training=True, options=quiet_options(), user_model=net,
                      optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
                      poptorch_version=poptorch.__version__)
    assert isinstance(model, poptorch.PoplarExecutor) and model.training
    model(X, T)
    model.detachFromDevice()
    assert model._was_detached and not model._is_attached
    model.attachToDevice()
    assert model._was_compiled and model._is_attached and model(X, T)[1].shape == ()


def test_attributes_that_are_read():
    net = Net()
    model = wrapped(net)
    assert not model._executable and model._is_attached is False and model._training is True
    assert model._executable_inputs is None and model._args_parser is None
    assert model._user_model.__class__.__bases__[0].__name__ == "Net" and model._model is net
    assert model._options.output_mode is poptorch.OutputMode.Final
    model(X, T)
    assert model._executable and model._is_attached is True
    assert isinstance(model._debugGetPopartIR(), str)
    assert [t.shape for t in model._executable_inputs.args] == [(2, 3), (2, 2)]
    model.detachFromDevice()
    assert model._executable and model._is_attached is False, "compiled before, so attach"
    assert isinstance(model._debugGetPopartIR(), str) and model._executable_inputs
    model.attachToDevice()
    assert model._executable and model._is_attached is True
    model.destroy()
    assert not model._executable and model._is_attached is False


def test_results_from_the_model_and_attributes_from_the_users():
    class Loss(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.net = net

        def forward(self, x, target):
            return self.net(x, target)[1]

    net = Net()
    net.answer = 42
    model = poptorch.PoplarExecutor(
        Loss(net), quiet_options(), True, poptorch.__version__,
        torch.optim.SGD(net.parameters(), lr=0.5), user_model=net)
    before = net.fc.weight.detach().clone()
    assert model(X, T).shape == () and model.answer == 42
    assert not torch.equal(net.fc.weight, before)


def test_as_a_plain_module():
    net = Net()
    model = wrapped(net)
    state = {name: torch.zeros_like(value) for name, value in model.model.state_dict().items()}
    model.model.load_state_dict(state)
    assert model.model.eval() is net
    model.model.train()
    assert [name for name, _ in model.named_parameters()] == ["fc.weight", "fc.bias"]
    assert len(list(model.parameters())) == 2 and model.state_dict().keys() == state.keys()
    assert [type(part) for part in model.modules()][1:] == [torch.nn.Linear]
    assert model(X, T)[0].abs().sum() == 0


def test_the_mode_between_wrapping_and_the_first_call():
    class Branches(torch.nn.Module):
        def forward(self, x):
            return x if self.training else x + 100

    model = poptorch.inferenceModel(Branches(), quiet_options())
    assert torch.equal(model.eval()(X), X + 100)
    model.destroy()
    assert torch.equal(model.train()(X), X)


def test_attributes_of_the_users_module():
    """They are read and set through the executor; missing attributes are the executor's."""
    class Named(Net):
        def __init__(self):
            super().__init__()
            self.label = "first"

        def get_label(self):
            return self.label

    net = Named()
    model = wrapped(net)
    assert model.get_label() == model.label == "first" and model.fc is net.fc
    model.label = "second"
    assert model.get_label() == net.label == model.label == "second"
    model.note = 3
    assert model.note == 3 and not hasattr(net, "note")
    net._hidden, model._hidden = 1, 2
    assert model._hidden == 2 and net._hidden == 1


def test_weights_of_each_replica():
    """``per_replica_params``, the old spelling, and ``replicaGrouping`` through the executor."""
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor([[1.0], [10.0]]))

        def forward(self, x):
            return x * self.scale

    grouping = (poptorch.CommGroupType.NoGrouping, 0, poptorch.VariableRetrievalMode.OnePerGroup)
    old, new = (poptorch.inferenceModel(Scaled(), quiet_options(replicationFactor=2))
                for _ in range(2))
    old.per_replica_params["scale"] = grouping
    new.scale.replicaGrouping(*grouping)
    for model in (old, new):
        assert torch.equal(model(torch.ones(2, 1)), torch.tensor([[1.0], [10.0]]))


def test_compile_with_zeros_then_run():
    model = wrapped(Net())
    model.compile(torch.zeros(2, 3), torch.zeros(2, 2))
    expected = torch.nn.functional.mse_loss(model.model(X), T)
    torch.testing.assert_close(model(X, T)[1], expected, rtol=1e-5, atol=1e-6)


def test_the_optimizer_is_set_after_every_step():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.0)
    model = wrapped(net, optimizer)
    model(X, T)
    moved = net.fc.weight.detach().clone()
    optimizer.zero_grad()
    optimizer.step()
    schedule.step()
    model.setOptimizer(optimizer)
    model(X, T)
    assert torch.equal(net.fc.weight, moved), "the new learning rate, 0, was not used"


def test_an_executor_as_a_model():
    net = Net()
    training = wrapped(net)
    training(X, T)
    inference = poptorch.inferenceModel(training, quiet_options())
    torch.testing.assert_close(inference(X), net(X), rtol=1e-5, atol=1e-6)
    assert [name for name, _ in inference.named_modules()] == ["", "fc"]


def test_keywords_that_are_no_tensors():
    model = wrapped(Net())
    y, _ = model(X, target=T, return_dict=False, mode="plain")
    assert y.shape == (2, 2)


def test_one_tuple_as_the_argument():
    module = torch.nn.Module()
    module.forward = lambda pair: pair[0] + pair[1]
    model = poptorch.inferenceModel(module, quiet_options())
    for _ in range(2):
        assert torch.equal(model((X, X)), X + X)


@pytest.mark.parametrize("layer, sizes", [
    (torch.nn.Linear(3, 2), (2, 3)),
    (torch.nn.PReLU(3), (2, 3)),
    (torch.nn.Conv2d(3, 4, 3), (2, 3, 5, 5)),
    (torch.nn.ConvTranspose1d(3, 4, 3), (2, 3, 5)),
    (torch.nn.Sequential(torch.nn.Conv1d(3, 4, 1, bias=False), torch.nn.BatchNorm1d(4)),
     (2, 3, 5)),
    (torch.nn.LayerNorm(3), (2, 3)),
    (torch.nn.GroupNorm(1, 3), (2, 3)),
    (torch.nn.LSTM(3, 2, num_layers=2), (4, 2, 3)),
    (torch.nn.GRU(3, 2, bidirectional=True), (4, 2, 3)),
    (torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 3, 8)),
], ids=lambda part: type(part).__name__ if isinstance(part, torch.nn.Module) else "")
def test_half_weights_with_float_inputs(layer, sizes):
    """Eager refuses most of them; here the weights are cast, and the activation stays float."""
    net, x = copy.deepcopy(layer).half().eval(), torch.linspace(-1, 1, math.prod(sizes))
    y = poptorch.inferenceModel(net, quiet_options())(x.reshape(sizes))
    expected = net.float()(x.reshape(sizes))
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)
    assert "check_input" not in vars(net)


def test_a_layer_with_half_weights_trains():
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv1d(3, 2, 1).half()

        def forward(self, x):
            return poptorch.identity_loss(self.conv(x), "sum")

    net = Mixed()
    before = net.conv.weight.detach().clone()
    wrapped(net)(torch.ones(2, 3, 4))
    torch.testing.assert_close(net.conv.weight, before - 0.1 * 8, rtol=1e-2, atol=1e-2)


def test_several_marked_losses_and_numbers():
    """(total, parts..., accuracies): the loss is the one that the others flow into."""
    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)

        def forward(self, x, target):
            first = torch.nn.functional.mse_loss(self.a(x), target)
            second = torch.nn.functional.mse_loss(self.b(x), target)
            total = poptorch.identity_loss(first + second, reduction="none")
            return total, first, second, (self.a(x) > 0).float().mean(), x.sum()

    net = Heads()
    before = [p.detach().clone() for p in net.parameters()]
    total, first, second, *_ = wrapped(net)(X, T)
    torch.testing.assert_close(total, first + second)
    assert not any(torch.equal(p, q) for p, q in zip(net.parameters(), before))


def test_training_and_validation_take_turns():
    """As frameworks do it: each detaches before the other one runs, on one device."""
    net = Net()
    options = quiet_options(useIpuId=0)
    training = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.01))
    validation = poptorch.inferenceModel(net, options)
    losses = []
    for _ in range(3):
        for model in (training, validation):
            if model._executable and not model._is_attached:
                model.attachToDevice()
            losses.append(model(X, T)[1].item())
            model.detachFromDevice()
            assert not model.isAttachedToDevice()
    assert losses == sorted(losses, reverse=True) and len(set(losses)) > 3
    with pytest.raises(poptorch.Error, match="Device is not attached"):
        training.detachFromDevice()


def test_blocks_as_statements_and_by_keywords():
    """Results of BeginBlock are ignored; items of a Sequential and embeddings are annotated."""
    net = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 2))
    poptorch.BeginBlock(net[0], "embedding", ipu_id=0)
    poptorch.BeginBlock(layer_to_call=net[1], ipu_id=1)
    model = poptorch.inferenceModel(net, quiet_options(deviceIterations=2))
    tokens = torch.tensor([1, 4])
    torch.testing.assert_close(model(tokens), net(tokens), rtol=1e-5, atol=1e-6)


def test_anchors_of_a_model_that_is_compiled_first():
    """Short name = long name; the weight is that before the update."""
    net, options = Net(), quiet_options()
    names = ["fc.weight", "Gradient___fc.weight", "UpdatedVar___fc.weight"]
    for name in names:
        options.anchorTensor(name, name)
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.1))
    weight = net.fc.weight.detach().clone()
    model.compile(X, T)
    model(X, T)
    before, gradient, after = map(model.getAnchoredTensor, names)
    assert torch.equal(before, weight) and torch.equal(after, net.fc.weight)
    torch.testing.assert_close(after, before - 0.1 * gradient, rtol=1e-5, atol=1e-6)


def test_a_checkpoint_is_a_plain_function():
    """FX takes it as the target of a call; what it does comes later."""
    assert inspect.isfunction(poptorch.recomputationCheckpoint)
    graph = torch.fx.Graph()
    node = graph.call_function(poptorch.recomputationCheckpoint, (graph.placeholder("x"),))
    assert node.target is poptorch.recomputationCheckpoint

"""PoplarExecutor: calls, weights on host and device, life time, errors that leave it usable."""

import copy
import pickle
import re

import pytest
import torch

import poptorch
from tests.helpers import quiet_options as options


class Classifier(torch.nn.Module):
    """A small model with its loss; `scale` is a compiled-in Python value."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
        self.steps = 17

    def forward(self, x, target=None, scale=1.0):
        y = self.fc(x) * scale
        if target is None:
            return y
        return y, torch.nn.functional.cross_entropy(y, target)

    def answer(self):
        return 42


def batch(n=6):
    return torch.randn(n, 4), torch.randint(0, 3, (n,))


def test_inference_equals_eager():
    net = Classifier()
    x, _ = batch()
    torch.testing.assert_close(poptorch.inferenceModel(net, options())(x), net(x))


def test_training_changes_the_module():
    net = Classifier()
    before = net.fc.weight.detach().clone()
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.1))
    x, target = batch()
    first = model(x, target)[1]
    for _ in range(20):
        last = model(x, target)[1]
    assert last < first
    assert not torch.equal(net.fc.weight, before)
    assert torch.equal(model.state_dict()["fc.weight"], net.fc.weight)


def test_weights_are_read_back_once(monkeypatch):
    net = Classifier()
    model = poptorch.trainingModel(net, options())
    model(*batch())
    count = []
    original = model.copyWeightsToHost
    monkeypatch.setattr(model, "copyWeightsToHost", lambda: (count.append(1), original()))
    net.fc.weight.sum(), list(net.parameters()), net.state_dict()
    assert len(count) == 1
    assert model.copyWeightsToHostIfNeeded() is False
    model(*batch())
    assert model.copyWeightsToHostIfNeeded() is True
    assert len(count) == 2


def test_inference_sees_trained_weights():
    net = Classifier()
    training = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.5))
    inference = poptorch.inferenceModel(training, options())
    x, target = batch()
    before = inference(x)
    training(x, target)
    after = inference(x)
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, net(x))


def test_host_changes_need_copy_to_device():
    net = Classifier()
    x, target = batch()
    trained = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.0))
    trained(x, target)
    model = poptorch.inferenceModel(net, options())
    before = model(x)
    assert before.any()
    with torch.no_grad():
        net.fc.weight.zero_()
        net.fc.bias.zero_()
    assert torch.equal(model(x), before)
    model.copyWeightsToDevice()
    assert torch.equal(model(x), torch.zeros(6, 3))


def test_load_state_dict_reaches_the_device():
    net = Classifier()
    model = poptorch.inferenceModel(net, options())
    x, _ = batch()
    model(x)
    zeros = {k: torch.zeros_like(v) for k, v in net.state_dict().items()}
    result = model.load_state_dict(zeros)
    assert (result.missing_keys, result.unexpected_keys) == ([], [])
    assert torch.equal(model(x), torch.zeros(6, 3))


def test_what_load_state_dict_gave_the_device_comes_back():
    net = Classifier()
    model = poptorch.trainingModel(net, options())
    model(*batch())
    zeros = {k: torch.zeros_like(v) for k, v in net.state_dict().items()}
    model.load_state_dict(zeros)
    model.copyWeightsToHost()  # no call in between
    assert not any(value.any() for value in net.state_dict().values())


def test_attributes_are_the_modules():
    model = poptorch.inferenceModel(Classifier(), options())
    assert model.answer() == 42 and model.steps == 17
    assert model.fc.weight.shape == (3, 4)
    with pytest.raises(AttributeError, match="no_such_thing"):
        model.no_such_thing
    assert isinstance(model.model, Classifier) and model.training is False
    assert model.options.output_mode is poptorch.OutputMode.All


def test_destroy_and_wrap_again():
    net = Classifier()
    model = poptorch.trainingModel(net, options())
    x, target = batch()
    model(x, target)
    assert model.isCompiled()
    with pytest.raises(RuntimeError, match="already been wrapped in 'poptorch.trainingModel'.* "
                       r"Call model.destroy\(\) on the model to unwrap before wrapping again\."):
        poptorch.trainingModel(net, options())
    model.destroy()
    assert not model.isCompiled() and type(net) is Classifier
    with pytest.raises(poptorch.Error, match="has not been compiled or has been destroyed"):
        model.copyWeightsToHost()
    again = poptorch.trainingModel(net, options())
    again(x[:3], target[:3])


def test_copies_and_pickles_are_plain_modules():
    net = Classifier()
    model = poptorch.trainingModel(net, options())
    model(*batch())
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert type(other) is Classifier
        assert torch.equal(other.fc.weight, net.fc.weight)


def test_compile_without_running():
    net = Classifier()
    model = poptorch.trainingModel(net, options())
    before = net.fc.weight.detach().clone()
    model.compile(*batch())
    assert model.isCompiled() and torch.equal(net.fc.weight, before)


@pytest.mark.parametrize("call", [
    (torch.randn(6, 5), torch.zeros(6, dtype=torch.long)),
    (torch.randn(6, 4).half(), torch.zeros(6, dtype=torch.long)),
    (torch.randn(6, 4), 3),
])
def test_usable_after_a_wrong_call(call):
    model = poptorch.trainingModel(Classifier(), options())
    x, target = batch()
    model(x, target)
    with pytest.raises(poptorch.Error, match="expected"):
        model(*call)
    model(x, target)


class Branches(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind

    def forward(self, x):
        if self.kind == "bool" and x.sum() > 0:
            return x
        if self.kind == "item":
            return x * x.sum().item()
        return x + 1


@pytest.mark.parametrize("kind", ["bool", "item"])
def test_data_dependent_python(kind):
    net = Branches(kind)
    model = poptorch.inferenceModel(net, options())
    with pytest.raises(poptorch.Error, match=re.escape("test_executor.py")):
        model(torch.ones(3))
    net.kind = "none"
    assert torch.equal(model(torch.ones(3)), torch.full((3,), 2.0))


def test_error_of_forward_keeps_its_type():
    class Broken(torch.nn.Module):
        def forward(self, x):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        poptorch.inferenceModel(Broken(), options())(torch.ones(1))


def test_input_changed_in_place_is_written_back():
    class Doubles(torch.nn.Module):
        def forward(self, x):
            x.mul_(2)
            return x + 1

    x = torch.ones(4)
    model = poptorch.inferenceModel(Doubles(), options(deviceIterations=2))
    assert torch.equal(model(x), torch.full((4,), 3.0))
    assert torch.equal(x, torch.full((4,), 2.0))
    model(x)
    assert torch.equal(x, torch.full((4,), 4.0))


def test_buffer_updates_stay():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.tensor(1))

        def forward(self):
            self.n += 1
            return self.n

    net = Counter()
    model = poptorch.inferenceModel(net, options())
    assert [int(model()) for _ in range(3)] == [2, 3, 4]
    model.copyWeightsToHost()
    assert int(net.n) == 4 and net.n.dtype == torch.int64


MODES = poptorch.OutputMode


def test_every_n_must_divide():
    opts = options(deviceIterations=3).outputMode(MODES.EveryN, 2)
    with pytest.raises(poptorch.Error, match="2 does not divide 3"):
        poptorch.inferenceModel(torch.nn.ReLU(), opts)(torch.ones(3))


def test_set_optimizer_changes_the_learning_rate():
    net = Classifier()
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.1))
    x, target = batch()
    model(x, target)
    before = net.fc.weight.detach().clone()
    model.setOptimizer(torch.optim.SGD(net.parameters(), lr=0.0))
    model(x, target)
    assert torch.equal(net.fc.weight, before)
    with pytest.raises(ValueError, match="is already compiled"):
        model.setOptimizer(torch.optim.Adam(net.parameters()))
    with pytest.raises(ValueError, match="nesterov=False of parameter group 0 is already compiled"):
        model.setOptimizer(torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True))
    model.destroy()
    model.setOptimizer(torch.optim.Adam(net.parameters(), lr=0.0))
    model(x, target)
    assert torch.equal(net.fc.weight, before)


def test_set_optimizer_with_other_parameters():
    net = Classifier()
    model = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.1))
    model(*batch())
    weight, bias = net.fc.parameters()
    for groups, words in (
            ([{"params": [weight]}, {"params": [bias]}],
             "a number of 1 parameter groups is already compiled, got 2"),
            ([weight], "fc.bias in parameter group 0 is already compiled"),
            (Classifier().parameters(), "fc.weight in parameter group 0 is already compiled")):
        with pytest.raises(ValueError, match=words):
            model.setOptimizer(torch.optim.SGD(groups, lr=0.1))


def test_optimizer_without_an_update():
    net = Classifier()
    with pytest.raises(poptorch.Error, match="LBFGS has no update on the device.*SGD, Adam, AdamW"):
        poptorch.trainingModel(net, options(), torch.optim.LBFGS(net.parameters()))


@pytest.mark.parametrize("optimizer, words", [
    (3, r"int\. Create one from the model's parameters\(\)"), ([1], r"list\. Create one"),
    (torch.optim.SGD, r"the class SGD\. Create one: SGD\(model\.parameters\(\), \.\.\.\)"),
    (torch.optim.lr_scheduler.StepLR(torch.optim.SGD(Classifier().parameters(), lr=0.1), 1),
     r"the scheduler StepLR\. Pass the optimizer that it schedules")],
    ids=["number", "list", "class", "scheduler"])
def test_what_is_no_optimizer(optimizer, words):
    words = rf"^\[optimizer\] expected an optimizer of poptorch.optim or torch.optim, got {words}"
    net = torch.nn.Linear(2, 2)
    with pytest.raises(poptorch.Error, match=words):
        poptorch.trainingModel(net, options(), optimizer)
    model = poptorch.trainingModel(net, options())
    with pytest.raises(poptorch.Error, match=words):
        model.setOptimizer(optimizer)


def test_inference_refuses_accumulation():
    opts = options()
    opts.Training.gradientAccumulation(2)
    with pytest.raises(ValueError, match="must be 1 for inference, got 2"):
        poptorch.inferenceModel(Classifier(), opts)


def test_exported_program():
    net = Classifier().eval()
    x, _ = batch()
    program = torch.export.export(net, (x,))
    torch.testing.assert_close(poptorch.inferenceModel(program, options())(x), net(x))
    with pytest.raises(poptorch.Error, match="ExportedProgram"):
        poptorch.trainingModel(program, options())


def test_is_running_on_ipu():
    class Asks(torch.nn.Module):
        def forward(self, x):
            return x + (1 if poptorch.isRunningOnIpu() else 2)

    net = Asks()
    assert net(torch.zeros(1)) == 2 and not poptorch.isRunningOnIpu()
    assert poptorch.inferenceModel(net, options())(torch.zeros(1)) == 1
    assert not poptorch.isRunningOnIpu()


def test_reports():
    net = Classifier()
    model = poptorch.trainingModel(net, options())
    model(*batch())
    assert model.memory_report()["parameters"] >= 4 * (12 + 3)
    assert "sgd_update" in model.op_report()["update"]
    assert model.work_report()["phases"]["update"]["sgd_update"]["flops"] > 0
    assert "graph main" in model.ir("plan")

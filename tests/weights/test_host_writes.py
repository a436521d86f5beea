"""What the host writes after compilation: pending where a program trains it, and told of once."""

import pytest
import torch
from torch import nn

import poptorch
from tests.helpers import quiet_options

X = torch.ones(1, 2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[1.0, 2.0]]))
        self.register_buffer("offset", torch.zeros(()))

    def forward(self, x):
        y = (x * self.weight).sum() + self.offset
        return y, poptorch.identity_loss(y * 0, "none")


def inference(net):
    return poptorch.inferenceModel(net, quiet_options())


def training(net):
    return poptorch.trainingModel(net, quiet_options(),
                                  torch.optim.SGD(net.parameters(), lr=0.0))


def in_place(net):
    with torch.no_grad():
        net.weight.fill_(5.0)


def by_data(net):
    net.weight.data.fill_(5.0)


def by_held_data(net):
    net.held.fill_(5.0)


def other_data(net):
    net.weight.data = torch.full((1, 2), 5.0)


def by_numpy(net):
    net.weight.data.numpy()[:] = 5.0


def by_state_dict(net):
    net.load_state_dict({"weight": torch.full((1, 2), 5.0), "offset": torch.zeros(())})


def by_optimizer(net):
    net.weight.grad = torch.tensor([[-4.0, -3.0]])
    torch.optim.SGD([net.weight], lr=1.0).step()


WRITES = [in_place, by_data, other_data, by_numpy, by_state_dict, by_optimizer]
PENDING = [in_place, by_data, other_data, by_numpy, by_optimizer]
# The others are not noticed where nothing watches the module.
SEEN = [in_place, other_data, by_state_dict, by_optimizer]


@pytest.mark.parametrize("write", PENDING)
def test_a_write_to_what_is_trained_is_pending(write, caplog):
    net = Net()
    model = training(net)
    assert model(X)[0] == 3.0
    write(net)
    assert net.weight.sum() == 10.0, "the host reads what it wrote"
    for _ in range(2):
        assert model(X)[0] == 3.0
    meanwhile = inference(net)
    assert meanwhile(X)[0] == 3.0, "an executor compiled meanwhile has the others' value"
    assert net.weight.sum() == 3.0, "what was trained is newer"
    (told,) = [record.getMessage() for record in caplog.records
               if "written on the host" in record.getMessage()]
    assert "weight was written" in told and "copyWeightsToDevice()" in told
    write(net)
    model.copyWeightsToDevice()
    assert model(X)[0] == 10.0 and meanwhile(X)[0] == 10.0


@pytest.mark.parametrize("wraps", [lambda net: net, torch.nn.Sequential])
def test_load_state_dict_of_a_module_or_a_part_takes_effect(wraps, caplog):
    net = Net()
    model, meanwhile = training(wraps(net)), inference(net)
    assert model(X)[0] == meanwhile(X)[0] == 3.0
    poptorch.setLogLevel("INFO")
    try:
        by_state_dict(net)
    finally:
        poptorch.setLogLevel("WARN")
    assert model(X)[0] == meanwhile(X)[0] == net.weight.sum() == 10.0
    told = [record for record in caplog.records if "load_state_dict" in record.getMessage()]
    assert told and all(record.levelname == "INFO" for record in told)
    assert any("weight. The next call uses the new value" in record.getMessage()
               for record in told)


@pytest.mark.parametrize("write", WRITES)
def test_a_write_to_what_no_program_changes_is_taken(write, caplog):
    net = Net()
    model, other = inference(net), inference(net)
    assert model(X)[0] == other(X)[0] == 3.0
    poptorch.setLogLevel("INFO")
    try:
        write(net)
        if write in SEEN:
            assert model(X)[0] == other(X)[0] == 10.0
    finally:
        poptorch.setLogLevel("WARN")
    meanwhile = inference(net)
    assert meanwhile(X)[0] == model(X)[0] == other(X)[0] == 10.0
    told = [record for record in caplog.records if "written on the host" in record.getMessage()]
    assert all(record.levelname == "INFO" for record in told) and (told or write not in SEEN)


@pytest.mark.parametrize("write", [in_place, other_data, by_optimizer],
                         ids=lambda write: write.__name__)
def test_it_is_told_of_at_the_next_call(write, caplog):
    net = Net()
    model = training(net)
    model(X)
    write(net)
    assert not caplog.records
    model(X)
    assert len(caplog.records) == 1
    write(net)
    model(X)
    assert len(caplog.records) == 1, "once"


def test_another_place_in_the_same_memory_is_a_write(caplog):
    net, memory = Net(), torch.tensor([[1.0, 2.0, 4.0]])
    net.weight = nn.Parameter(memory[:, :2])
    model = training(net)
    assert model(X)[0] == 3.0
    net.weight.data = memory[:, 1:]
    assert model(X)[0] == 3.0
    assert len(caplog.records) == 1 and "weight was written" in caplog.records[0].getMessage()


def test_several_are_one_warning(caplog):
    net = Net()
    net.more = nn.Parameter(torch.ones(2))
    net.forward = lambda x: ((y := (x * net.weight * net.more).sum()),
                             poptorch.identity_loss(y * 0, "none"))
    model = training(net)
    model(X)
    with torch.no_grad():
        net.weight.fill_(5.0), net.more.fill_(1.0)
    model(X)
    assert len(caplog.records) == 1
    assert "weight and 1 more were written" in caplog.records[0].getMessage()


def test_reading_by_data_is_no_write(caplog):
    net = Net()
    model = training(net)
    model(X)
    assert net.weight.data.sum() == 3.0
    model(X)
    assert not caplog.records


def test_loading_by_the_executor_is_not_pending(caplog):
    net = Net()
    model, other = inference(net), inference(net)
    model(X), other(X)
    model.load_state_dict({"weight": torch.full((1, 2), 5.0), "offset": torch.ones(())})
    assert model(X)[0] == 11.0 and other(X)[0] == 11.0
    other.destroy()
    other.load_state_dict({"weight": torch.full((1, 2), 6.0), "offset": torch.ones(())})
    assert model(X)[0] == 13.0 and not caplog.records


def test_named_buffers_alone_are_copied():
    net = Net()
    options = quiet_options()
    options.updatableNamedBuffers(["offset"])
    model, trained = poptorch.inferenceModel(net, options), training(net)
    trained(X), model(X)
    with torch.no_grad():
        net.weight.fill_(5.0), net.offset.fill_(1.0)
    model.copyNamedBuffersToDevice()
    assert model(X)[0] == 4.0 and trained(X)[0] == 4.0
    with torch.no_grad():
        net.weight.fill_(5.0)
    trained.copyWeightsToDevice()
    assert model(X)[0] == 11.0


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self):
        self.calls += 1
        return self.calls + 0


def test_a_buffer_that_inference_changes():
    net = Counter()
    model, other = inference(net), inference(net)
    assert [model().item() for _ in range(3)] == [1.0, 2.0, 3.0]
    assert net.calls == 0, "without a watch, the host is asked for a copy"
    model.copyWeightsToHost()
    assert net.calls == 3
    assert other() == 4 and model() == 5
    with torch.no_grad():
        net.calls.fill_(20.0)
    assert other() == 6
    assert net.calls == 20.0, "what the host wrote stays until it is copied either way"
    other.copyWeightsToDevice()
    assert model() == 21


def test_a_write_past_the_watch_is_told_of(caplog):
    net = Counter()
    model = inference(net)
    model()
    with torch.no_grad():
        net.calls.fill_(20.0)
    model.copyWeightsToHost()
    assert net.calls == 1
    assert "calls was written on the host by way of another tensor" in caplog.text


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = torch.zeros(())

    def forward(self):
        self.count += 1
        return self.count + 0


def test_a_plain_attribute_that_forward_changes_is_told_of(caplog):
    net = Plain()
    model = inference(net)
    assert [model().item() for _ in range(3)] == [1.0, 1.0, 1.0] and net.count == 1
    told = [r.getMessage() for r in caplog.records if "plain attribute" in r.getMessage()]
    assert len(told) == 1
    assert "tensor count in place" in told[0] and "register_buffer" in told[0]


_GLOBAL = torch.zeros(3)


class Hidden(nn.Module):
    """Changes tensors in an attribute's containers, and one that no module has."""

    def __init__(self):
        super().__init__()
        self.kept = {"counts": [torch.zeros(2), torch.zeros(2)]}

    def forward(self):
        self.kept["counts"][1].add_(1)
        return self.kept["counts"][1] + _GLOBAL.add_(1)[0]


def test_plain_tensors_elsewhere_that_forward_changes_are_told_of(caplog):
    model = inference(Hidden())
    assert [model()[0].item() for _ in range(2)] == [2.0, 2.0]
    assert "changes the tensor kept['counts'][1] in place, which is a plain attr" in caplog.text
    assert "a tensor of the sizes [3] in place that is no argument, parameter or" in caplog.text


def test_loading_into_tensors_that_were_given_other_memory():
    net = Net()
    model = training(net)
    model(X)
    net.weight.data = torch.full((1, 2), 2.0)
    model.load_state_dict({"weight": torch.full((1, 2), 5.0), "offset": torch.zeros(())})
    assert model(X)[0] == 10.0 and net.weight.tolist() == [[5.0, 5.0]]


def test_copying_from_other_memory_while_detached():
    net = Net()
    model, other = inference(net), training(net)
    model(X), other(X)
    model.detachFromDevice()
    net.weight.data = torch.full((1, 2), 5.0)
    model.copyWeightsToDevice()
    assert model(X)[0] == 10.0 and other(X)[0] == 10.0


def test_two_tensors_that_swap_their_memory():
    net = Net()
    net.register_buffer("offset", torch.ones(1, 2))
    net.forward = lambda x: (x * net.weight).sum() - (x * net.offset).sum() * 10
    model = inference(net)
    with torch.no_grad():
        net.weight.fill_(3.0)
    assert model(X) == -14.0
    net.weight.data, net.offset.data = net.offset.data, net.weight.data
    model.copyWeightsToDevice()
    assert model(X) == -58.0


def test_a_pending_write_stays_pending_when_the_training_program_is_gone():
    net = Net()
    model = training(net)
    model.compile(X)
    in_place(net)
    other = inference(net)
    assert other(X)[0] == 3.0
    model.destroy()
    net.state_dict()
    model = training(net)
    assert model(X)[0] == other(X)[0] == 3.0

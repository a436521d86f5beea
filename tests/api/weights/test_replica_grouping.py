"""``replicaGrouping``: weights that differ between groups of replicas."""

import copy
import re

import pytest
import torch

import poptorch
from poptorch import CommGroupType, Error, VariableRetrievalMode, testing
from tests.helpers import check_equal_bits, check_narrow, check_wide, quiet_options, to_dtype

ONE, ALL = VariableRetrievalMode.OnePerGroup, VariableRetrievalMode.AllReplicas
REPLICAS = 4
# What is declared, and the replicas of each group.
GROUPS = {
    "consecutive": ((CommGroupType.Consecutive, 2), [[0, 1], [2, 3]]),
    "orthogonal": ((CommGroupType.Orthogonal, 2), [[0, 2], [1, 3]]),
    "none": ((CommGroupType.NoGrouping, 0), [[0], [1], [2], [3]]),
    "one": ((CommGroupType.Consecutive, 4), [[0, 1, 2, 3]]),
}
INPUT_GROUPS = {CommGroupType.Consecutive: [[0, 1], [2, 3]],
                CommGroupType.Orthogonal: [[0, 2], [1, 3]]}


class Net(torch.nn.Module):
    """A layer with a value for each group, and one that all replicas share."""

    def __init__(self, groups=None):
        super().__init__()
        self.fc = torch.nn.Linear(3, 5)
        self.head = torch.nn.Linear(5, 2)
        if groups is not None:
            self.fc.weight = torch.nn.Parameter(torch.randn(groups, 5, 3))
            self.fc.bias = torch.nn.Parameter(torch.randn(groups, 5))

    def forward(self, x, target=None):
        y = self.head(torch.tanh(self.fc(x)))
        return y if target is None else (y, torch.nn.functional.mse_loss(y, target))


GROUPED = ("fc.weight", "fc.bias")


def group(model, declared, mode=ONE):
    for parameter in (model.fc.weight, model.fc.bias):
        parameter.replicaGrouping(*declared, mode)


def options(**settings):
    return quiet_options(**{"replicationFactor": REPLICAS, **settings})


def optimizer_of(name, parameters):
    if name == "adam":
        # An eps that makes the update smooth where a gradient is near zero.
        return torch.optim.Adam(parameters, lr=0.01, eps=0.01)
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def of_replica(values, groups, replica):
    """The parameters that a replica sees."""
    [number] = [i for i, members in enumerate(groups) if replica in members]
    return {name: value[number] if name in GROUPED else value for name, value in values.items()}


def on_cpu(net, groups, batches, optimizer, *, mean=True):
    """Losses of all replicas, step by step, and the weights, of eager training of the groups.

    ``batches[step]`` is a list of micro-batches for each replica.
    """
    values = dict(net.named_parameters())
    inner = Net().to(net.head.weight.dtype)
    update = optimizer_of(optimizer, list(values.values()))
    losses = []
    for step in batches:
        last = []
        update.zero_grad()
        for replica, micro_batches in enumerate(step):
            for x, target in micro_batches:
                _, loss = torch.func.functional_call(
                    inner, of_replica(values, groups, replica), (x, target))
                loss.backward()
            last.append(loss.detach())
        for value in values.values():
            if mean:
                value.grad /= REPLICAS * len(step[0])
        update.step()
        losses.append(torch.stack(last))
    return {"losses": losses, "weights": {n: v.detach() for n, v in values.items()}}


def draw(steps, micro_batches=1, streams=REPLICAS):
    """For each step and stream of inputs a list of micro-batches."""
    return [[[(torch.randn(2, 3), torch.randn(2, 2)) for _ in range(micro_batches)]
             for _ in range(streams)] for _ in range(steps)]


def on_device(net, batches, optimizer, opts, declared, mode=ONE):
    """The same on the device; returns also the executor."""
    model = poptorch.trainingModel(net, opts, optimizer_of(optimizer, net.parameters()))
    group(model, declared, mode)
    losses = []
    for step in batches:
        parts = [micro for replica in step for micro in replica]
        _, loss = model(torch.cat([x for x, _ in parts]), torch.cat([t for _, t in parts]))
        losses.append(loss.detach().clone())
    weights = {name: value.detach().clone() for name, value in model.named_parameters()}
    return {"losses": losses, "weights": weights}, model


def check_training(kind, *, optimizer="sgd", micro_batches=1, opts=options, mean=True):
    declared, groups = GROUPS[kind]
    net, batches = Net(len(groups)), draw(3, micro_batches)
    wide = copy.deepcopy(net).double()
    with testing.wide():
        ours64, _ = on_device(copy.deepcopy(wide), to_dtype(batches, torch.float64), optimizer,
                              opts(), declared)
    ours, _ = on_device(copy.deepcopy(net), batches, optimizer, opts(), declared)
    eager = on_cpu(copy.deepcopy(net), groups, batches, optimizer, mean=mean)
    reference = on_cpu(wide, groups, to_dtype(batches, torch.float64), optimizer, mean=mean)
    check_wide(ours64, reference)
    check_narrow(ours, [eager], reference)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("kind", GROUPS)
def test_training_equals_the_groups_on_the_cpu(kind, optimizer):
    check_training(kind, optimizer=optimizer)


@pytest.mark.parametrize("kind", ["consecutive", "orthogonal", "none"])
@pytest.mark.parametrize("strategy", poptorch.MeanReductionStrategy)
@pytest.mark.filterwarnings("ignore:.*PostAndLoss is deprecated")
def test_the_mean_is_over_all_replicas(kind, strategy):
    def opts():
        out = options()
        out.Training.gradientAccumulation(3)
        out.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
        return out

    check_training(kind, micro_batches=3, opts=opts)


def test_the_sum_is_over_the_group():
    def opts():
        out = options()
        out.Training.gradientAccumulation(2)
        kind = poptorch.ReductionType.Sum
        out.Training.accumulationAndReplicationReductionType(kind)
        return out

    check_training("orthogonal", micro_batches=2, opts=opts, mean=False)


@pytest.mark.parametrize("kind", ["consecutive", "orthogonal"])
@pytest.mark.parametrize("input_type", INPUT_GROUPS)
def test_input_groups_and_weight_groups(kind, input_type):
    declared, groups = GROUPS[kind]
    net, batches = Net(2), draw(3, streams=2)
    input_groups = INPUT_GROUPS[input_type]
    each = [[step[0 if replica in input_groups[0] else 1] for replica in range(REPLICAS)]
            for step in batches]
    opts = options().inputReplicaGrouping(2, input_type)
    ours, _ = on_device(copy.deepcopy(net), batches, "sgd", opts, declared)
    reference = on_cpu(copy.deepcopy(net).double(), groups, to_dtype(each, torch.float64), "sgd")
    check_narrow(ours, [on_cpu(copy.deepcopy(net), groups, each, "sgd")], reference)


@pytest.mark.parametrize("kind", ["consecutive", "orthogonal", "none"])
def test_all_replicas_are_read(kind):
    declared, groups = GROUPS[kind]
    net, batches = Net(len(groups)), draw(2)
    held = net.fc.weight
    one, _ = on_device(copy.deepcopy(net), batches, "sgd", options(), declared, ONE)
    every, model = on_device(net, batches, "sgd", options(), declared, ALL)
    for name in GROUPED:
        expected = torch.stack([of_replica(one["weights"], groups, r)[name]
                                for r in range(REPLICAS)])
        check_equal_bits(every["weights"][name], expected)
    check_equal_bits(every["weights"]["head.weight"], one["weights"]["head.weight"])
    assert net.fc.weight is held
    # Each replica gets the entry of its own when the host has changed it.
    with torch.no_grad():
        held.zero_()
        held[1] = 100.0
    model.copyWeightsToDevice()
    model(torch.zeros(8, 3), torch.zeros(8, 2))
    assert [bool(value.abs().sum() > 500) for value in held] == [False, True, False, False]
    model.destroy()
    again = poptorch.inferenceModel(net, options())
    again.fc.weight.replicaGrouping(*declared, ALL)
    assert again(torch.zeros(8, 3)).shape == (8, 2)


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("mode", [ONE, ALL])
def test_inference(kind, mode):
    declared, groups = GROUPS[kind]
    net, x = Net(len(groups)).eval(), torch.randn(8, 3)
    values = {name: value.detach().clone() for name, value in net.named_parameters()}
    model = poptorch.inferenceModel(net, options())
    group(model, declared, mode)
    ours = model(x)
    expected = torch.cat([torch.func.functional_call(
        Net(), of_replica(values, groups, replica), (part,))
        for replica, part in enumerate(x.chunk(REPLICAS))])
    torch.testing.assert_close(ours, expected)
    with torch.no_grad():
        net.fc.weight.zero_()
        net.fc.bias.zero_()
    model.copyWeightsToDevice()
    torch.testing.assert_close(model(x), net.head.bias.expand(8, 2))


def test_validation_follows_training():
    declared, _ = GROUPS["consecutive"]
    net = Net(2)
    training = poptorch.trainingModel(net, options(), torch.optim.SGD(net.parameters(), lr=0.1))
    group(training, declared)
    validation = poptorch.inferenceModel(training, options())
    x, target = torch.randn(8, 3), torch.randn(8, 2)
    before = validation(x)
    y, _ = training(x, target)
    check_equal_bits(y, before)
    after = validation(x)
    assert not torch.equal(after, before)
    check_equal_bits(training(x, target)[0], after)


def test_gradients_are_those_of_the_groups():
    declared, groups = GROUPS["orthogonal"]
    net, batches = Net(2), draw(1)
    values = {name: value.detach().clone() for name, value in net.named_parameters()}
    with testing.keep_gradients():
        _, model = on_device(net, batches, "sgd", options(), declared)
    found = testing.gradients(model)
    for number, members in enumerate(groups):
        inner = {name: value.clone().requires_grad_() for name, value
                 in of_replica(values, groups, members[0]).items()}
        for replica in members:
            _, loss = torch.func.functional_call(Net(), inner, batches[0][replica][0])
            (loss / REPLICAS).backward()
        torch.testing.assert_close(found["fc.weight"][number], inner["fc.weight"].grad)
    assert found["head.weight"].shape == net.head.weight.shape


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_optimizer_state_of_the_host_goes_to_the_groups(kind):
    declared, groups = GROUPS["orthogonal"]
    net, batches = Net(2), draw(3)
    expected = on_cpu(copy.deepcopy(net).double(), groups, to_dtype(batches, torch.float64), kind)
    eager = on_cpu(copy.deepcopy(net), groups, batches, kind)
    # The first step on the CPU, the others on the device with the state that it left.
    optimizer = optimizer_of(kind, net.parameters())
    first = copy.deepcopy(net)
    on_cpu_state = dict(first.named_parameters())
    update = optimizer_of(kind, first.parameters())
    for replica in range(REPLICAS):
        inner = of_replica(on_cpu_state, groups, replica)
        torch.func.functional_call(Net(), inner, batches[0][replica][0])[1].backward()
    for value in on_cpu_state.values():
        value.grad /= REPLICAS
    update.step()
    net.load_state_dict(first.state_dict())
    optimizer.load_state_dict(update.state_dict())
    model = poptorch.trainingModel(net, options(), optimizer)
    group(model, declared)
    for step in batches[1:]:
        parts = [replica[0] for replica in step]
        model(torch.cat([x for x, _ in parts]), torch.cat([t for _, t in parts]))
    weights = {name: value.detach().clone() for name, value in net.named_parameters()}
    check_narrow(weights, [eager["weights"]], expected["weights"])


def test_no_group_of_all():
    net, x = Net(), torch.randn(8, 3)
    expected = net(x).detach()
    model = poptorch.inferenceModel(net, options())
    model.fc.weight.replicaGrouping(CommGroupType.Consecutive, 2, ONE)
    model.fc.weight.replicaGrouping(CommGroupType.All, 0, ONE)
    assert dict(model.per_replica_params) == {}
    torch.testing.assert_close(model(x), expected)


def test_copies_of_an_executor_keep_their_groups():
    declared, _ = GROUPS["consecutive"]
    model = poptorch.inferenceModel(Net(2), options())
    group(model, declared)
    x = torch.randn(8, 3)
    check_equal_bits(copy.deepcopy(model)(x), model(x))


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [ONE, ALL])
@pytest.mark.parametrize("kind", ["consecutive", "orthogonal", "none"])
def test_a_file_keeps_the_groups(tmp_path, kind, mode):
    declared, groups = GROUPS[kind]
    net, batches = Net(len(groups)), draw(4)
    _, model = on_device(net, batches[:2], "adam", options(), declared, mode)
    path = model.save(str(tmp_path / "grouped.poptorch"))
    again = poptorch.load(path)
    assert dict(again.per_replica_params) == dict(model.per_replica_params)
    for step in batches[2:]:
        parts = [replica[0] for replica in step]
        data = torch.cat([x for x, _ in parts]), torch.cat([t for _, t in parts])
        check_equal_bits(again(*data), model(*data))
    check_equal_bits(again.state_dict(), model.state_dict())


def test_an_executable_takes_the_weights_of_the_module(tmp_path):
    declared, groups = GROUPS["orthogonal"]
    net, batches = Net(2), draw(2)
    _, model = on_device(net, batches, "sgd", options(), declared)
    path = model.save(str(tmp_path / "grouped.poptorch"), export_model=False)
    other = Net(2)
    values = {name: value.detach().clone() for name, value in other.named_parameters()}
    again = poptorch.trainingModel(other, options(), optimizer_of("sgd", other.parameters()))
    group(again, declared)
    again.loadExecutable(path)
    x = torch.randn(8, 3)
    y, _ = again(x, torch.randn(8, 2))
    expected = torch.cat([torch.func.functional_call(
        Net(), of_replica(values, groups, replica), (part,))
        for replica, part in enumerate(x.chunk(REPLICAS))])
    torch.testing.assert_close(y, expected)


def test_an_executable_for_other_groups(tmp_path):
    model = poptorch.inferenceModel(Net(2), options())
    group(model, GROUPS["orthogonal"][0])
    path = model.compileAndExport(str(tmp_path / "grouped.poptorch"), torch.ones(8, 3))
    other = poptorch.inferenceModel(Net(2), options())
    group(other, GROUPS["consecutive"][0])
    with pytest.raises(Error, match="compiled with weight_groups=.*is_orthogonal=True.*specifies "
                                    "weight_groups=.*is_orthogonal=False.*same replicaGrouping"):
        other.loadExecutable(path)


# -- errors ----------------------------------------------------------------------------------------


BAD_ARGUMENTS = [
    (("Consecutive", 2, ONE), TypeError, "CommGroupType.*got 'Consecutive'"),
    ((CommGroupType.Consecutive, 2.0, ONE), TypeError, "an int of at least 1, got float 2.0"),
    ((CommGroupType.Consecutive, 0, ONE), ValueError, "an int of at least 1, got 0"),
    ((CommGroupType.NoGrouping, 0, 1), TypeError, "VariableRetrievalMode.*got 1"),
]


@pytest.mark.parametrize(("arguments", "kind", "words"), BAD_ARGUMENTS,
                         ids=[words for *_, words in BAD_ARGUMENTS])
def test_bad_arguments(arguments, kind, words):
    model = poptorch.inferenceModel(Net(2), options())
    with pytest.raises(kind, match=r"\[replicaGrouping\] expected .*" + words):
        model.fc.weight.replicaGrouping(*arguments)


BAD_GROUPS = [
    (2, (CommGroupType.Consecutive, 3, ONE),
     "[replicaGrouping] fc.weight: groups of 3 replicas do not divide replicationFactor(4)"),
    (3, (CommGroupType.Orthogonal, 2, ONE), "fc.weight has the shape (3, 5, 3); its 4 replicas in "
     "groups of 2 need a first dimension of 2, one entry for each group. "),
    (3, (CommGroupType.Orthogonal, 2, ALL), "need a first dimension of 2, one entry for each "
     "group, or of 4, one for each replica. "),
    (2, (CommGroupType.NoGrouping, 2, ONE), "in groups of 1 need a first dimension of 4"),
]


@pytest.mark.parametrize(("groups", "arguments", "words"), BAD_GROUPS,
                         ids=[words for *_, words in BAD_GROUPS])
@pytest.mark.parametrize("training", [False, True])
def test_groups_that_do_not_fit(groups, arguments, words, training):
    net = Net(groups)
    wrap = poptorch.trainingModel if training else poptorch.inferenceModel
    model = wrap(net, options())
    model.fc.weight.replicaGrouping(*arguments)
    with pytest.raises(Error, match=re.escape(words)):
        model(torch.ones(8, 3), torch.ones(8, 2))


def test_entries_that_change_after_compiling():
    model = poptorch.inferenceModel(Net(2), options())
    group(model, GROUPS["consecutive"][0])
    model(torch.ones(8, 3))
    model.fc.bias.data = torch.ones(3, 5)
    with pytest.raises(Error, match=re.escape("fc.bias has the shape (3, 5)")):
        model.copyWeightsToDevice()


def test_a_parameter_of_no_wrapped_module():
    with pytest.raises(Error, match=r"shape \(2, 5, 3\) is not part of a wrapped module"):
        Net(2).fc.weight.replicaGrouping(CommGroupType.Consecutive, 2, ONE)


def test_a_compiled_model():
    net = Net()
    model = poptorch.inferenceModel(net, options())
    model(torch.ones(8, 3))
    with pytest.raises(Error, match="is compiled already, without Consecutive groups of 2"):
        net.fc.weight.replicaGrouping(CommGroupType.Consecutive, 2, ONE)


def _adds_sum(group_size, orthogonal):
    def change(x):
        attributes = {"group_size": group_size, "orthogonal": orthogonal}
        (total,) = poptorch.custom_op([x], "ReplicatedAllReduceTP", "ai.graphcore", 1, [x],
                                      attributes)
        return total
    return change


@pytest.mark.parametrize("kind, change, input_groups, expected", [
    ("Consecutive", lambda x: x * 0 + 1, (1, "Consecutive"), None),
    ("Consecutive", lambda x: 1, (1, "Consecutive"), [1, 1, 1, 1]),
    ("Consecutive", lambda x: x, (2, "Consecutive"), [1, 1, 10, 10]),
    ("Consecutive", lambda x: x, (2, "Orthogonal"), None),
    ("Orthogonal", lambda x: x, (2, "Orthogonal"), [1, 10, 1, 10]),
    ("NoGrouping", lambda x: x, (1, "Consecutive"), [1, 10, 100, 1000]),
    ("Consecutive", _adds_sum(2, 0), (1, "Consecutive"), [11, 11, 1100, 1100]),
    ("Consecutive", _adds_sum(2, 1), (1, "Consecutive"), None),
    ("Orthogonal", _adds_sum(0, 0), (1, "Consecutive"), [1111] * 4),
    ("Orthogonal", torch.rand_like, (4, "Consecutive"), None)])
def test_replicas_of_a_group_change_it_alike(kind, change, input_groups, expected):
    class Changing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            groups = 4 if kind == "NoGrouping" else 2
            self.w = torch.nn.Parameter(torch.zeros(groups, 1), requires_grad=False)

        def forward(self, x):
            self.w += change(x)
            return self.w * 1

    size, of_inputs = input_groups
    opts = quiet_options(replicationFactor=4).inputReplicaGrouping(
        size, getattr(poptorch.CommGroupType, of_inputs))
    model = poptorch.inferenceModel(Changing(), opts)
    model.w.replicaGrouping(getattr(poptorch.CommGroupType, kind), 2,
                            poptorch.VariableRetrievalMode.OnePerGroup)
    x = torch.tensor([1.0, 10.0, 100.0, 1000.0])[:4 // size]
    if expected is None:
        with pytest.raises(poptorch.Error, match=r"(?s)\[replicaGrouping\] forward changes the "
                                                 r"parameter w in place by values that differ.*"
                                                 r"2 replicas of a group.*at .*test_replica"):
            model(x)
    else:
        assert model(x).tolist() == expected

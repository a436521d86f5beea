"""Replicated tensor sharding: the same bits as without it, and what of which tensor is sharded."""

import itertools
import random

import pytest
import torch

import poptorch
from poptorch.optim import LAMB
from tests.helpers import check_equal_bits

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1),
    "Adam": lambda p: torch.optim.Adam(p, amsgrad=True),
    "AdamW": lambda p: poptorch.optim.AdamW(p, lr=0.01),
    "LAMB": lambda p: LAMB(p, lr=0.1, weight_decay=0.1),
    "LAMB of halves": lambda p: LAMB(p, lr=0.1, max_weight_norm=1.0,
                                     first_order_momentum_accum_type=torch.float16),
    "RMSprop": lambda p: poptorch.optim.RMSprop(p, momentum=0.9, use_tf_variant=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, initial_accumulator_value=0.1),
    "Adadelta": torch.optim.Adadelta, "Adamax": torch.optim.Adamax, "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam, "Rprop": torch.optim.Rprop, "ASGD": torch.optim.ASGD,
    "Adafactor": torch.optim.Adafactor,
}


class Model(torch.nn.Module):
    def __init__(self, hidden=7):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 3, 3)
        self.fc = torch.nn.Linear(12, hidden)
        self.out = torch.nn.Linear(hidden, 3)

    def forward(self, x, y):
        out = self.out(torch.relu(self.fc(torch.relu(self.conv(x)).flatten(1))))
        return out, torch.nn.functional.mse_loss(out, y)


def options_of(replicas, accumulation, sharded=(), least=None):
    """``sharded`` are of "Optimizer" and "Weight"."""
    options = poptorch.Options().replicationFactor(replicas).autoRoundNumIPUs()
    options.showCompilationProgressBar(False).Training.gradientAccumulation(accumulation)
    location = poptorch.TensorLocationSettings().useReplicatedTensorSharding()
    if least is not None:
        location.minElementsForReplicatedTensorSharding(least)
    for kind in sharded:
        getattr(options.TensorLocations, f"set{kind}Location")(location)
    return options


def batches(replicas, accumulation, count):
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        size = 2 * replicas * accumulation
        yield (torch.randn(size, 2, 4, 4, generator=generator),
               torch.randn(size, 3, generator=generator))


def trained(options, optimizer="Adam", hidden=7, steps=2):
    """What some steps of training give."""
    torch.manual_seed(0)
    model = Model(hidden)
    own = OPTIMIZERS[optimizer](model.parameters())
    trainer = poptorch.trainingModel(model, options, own)
    replicas, accumulation = options.replication_factor, options.Training.gradient_accumulation
    results = [trainer(*batch) for batch in batches(replicas, accumulation, steps)]
    report = trainer.memory_report()
    return {"results": results, "weights": dict(model.state_dict()),
            "states": own.state_dict()["state"]}, report


@pytest.mark.sampled
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_same_bits(optimizer, seed):
    """With any number of replicas and micro-batches, and any tensors whole."""
    rng = random.Random(seed)
    replicas, accumulation = rng.choice([2, 3, 4]), rng.choice([1, 3])
    expected, _ = trained(options_of(replicas, accumulation), optimizer)
    for sharded in (["Optimizer"], ["Weight"], ["Optimizer", "Weight"]):
        least = rng.choice([None, 5, 50])
        ours, _ = trained(options_of(replicas, accumulation, sharded, least), optimizer)
        check_equal_bits(ours, expected)


@pytest.mark.parametrize("replicas", [2, 4])
def test_each_replica_has_a_part_of_the_states(replicas):
    _, whole = trained(options_of(replicas, 1), hidden=64)
    _, ours = trained(options_of(replicas, 1, ["Optimizer"]), hidden=64)
    assert ours["parameters"] == whole["parameters"]
    least = whole["optimizer_state"] / replicas
    assert least <= ours["optimizer_state"] < least + 8 * 4 * 6
    _, ours = trained(options_of(replicas, 2, ["Weight"]), hidden=64)
    assert ours["parameters"] < whole["parameters"] / replicas + 4 * 6
    assert ours["optimizer_state"] == whole["optimizer_state"]


def test_small_tensors_stay_whole():
    """Those of more elements than the limit are sharded."""
    _, report = trained(options_of(2, 1, ["Optimizer"], 54))
    assert {path: row["optimizer"] for path, row in report["sharding"].items()} == {
        "conv.weight": "whole: it has 54 elements, and only more than 54 are sharded",
        "conv.bias": "whole: it has 3 elements, and only more than 54 are sharded",
        "fc.weight": "42 of 84 elements",
        "fc.bias": "whole: it has 7 elements, and only more than 54 are sharded",
        "out.weight": "whole: it has 21 elements, and only more than 54 are sharded",
        "out.bias": "whole: it has 3 elements, and only more than 54 are sharded"}


def reason(options, optimizer=torch.optim.Adam, model=None, kind="optimizer"):
    """Why the tensors of a model are whole."""
    model = model or Model()
    trainer = poptorch.trainingModel(model, options, optimizer(model.parameters()))
    trainer.compile(*next(batches(options.replication_factor,
                                  options.Training.gradient_accumulation, 1)))
    report = trainer.memory_report()["sharding"]
    trainer.destroy()
    return report["fc.weight"][kind].removeprefix("whole: ")


class Changing(Model):
    def forward(self, x, y):
        with torch.no_grad():
            self.fc.weight *= 0.99
        return super().forward(x, y)


def test_why_tensors_are_whole():
    options = options_of(2, 1, ["Optimizer", "Weight"])
    assert reason(options, torch.optim.Adafactor) == \
        "the update of Adafactor needs the whole tensor"
    assert reason(options, lambda p: torch.optim.SGD(p, lr=0.1)) == "there are no states"
    assert reason(options_of(1, 1, ["Optimizer"])) == "there is one replica"
    combined = poptorch.optim.SGD
    assert reason(options, lambda p: combined(p, lr=0.1, momentum=0.9, use_combined_accum=True)) \
        == "gradients are added to it (use_combined_accum)"
    assert reason(options, lambda p: torch.optim.Adam(list(p)[:2])) == \
        "it is not a parameter of the optimizer"
    assert reason(options, model=Changing()) == "forward changes it"
    assert reason(options, model=Changing(), kind="weight") == "forward changes it"
    frozen = Model()
    frozen.fc.weight.requires_grad_(False)
    assert reason(options, model=frozen) == "no gradient"
    assert reason(options, model=frozen, kind="weight") == "42 of 84 elements"
    model = Model()
    poptorch.BeginBlock(model.fc, "second", ipu_id=1)
    options = options_of(2, 1, ["Optimizer", "Weight"])
    options.setExecutionStrategy(poptorch.ShardedExecution())
    assert reason(options, model=model, kind="weight") == "the model runs on several IPUs"
    assert reason(options, model=model) == "42 of 84 elements"


@pytest.mark.parametrize("kind", ["Accumulator", "Activation"])
def test_what_differs_between_replicas_is_never_sharded(kind, capsys, monkeypatch):
    monkeypatch.setattr("poptorch.options._group._said", set())
    expected, whole = trained(options_of(2, 2))
    ours, report = trained(options_of(2, 2, [kind]))
    check_equal_bits(ours, expected)
    assert report == whole
    assert capsys.readouterr().err.count(
        f"[TensorLocations.set{kind}Location] useReplicatedTensorSharding has no effect on these "
        f"tensors: each replica has values of its own.") == 1


def test_states_that_round_by_chance_are_whole():
    options = options_of(2, 1, ["Optimizer"])
    options.Precision.enableStochasticRounding(True)
    model = Model().half()
    trainer = poptorch.trainingModel(model, options, torch.optim.Adam(model.parameters()))
    trainer.compile(*(x.half() for x in next(batches(2, 1, 1))))
    assert trainer.memory_report()["sharding"]["fc.weight"]["optimizer"] == \
        "whole: its update rounds by chance"


@pytest.mark.parametrize("sharded", [["Optimizer"], ["Optimizer", "Weight"]])
@pytest.mark.parametrize("around", ["norm", "value", "loss_scale", "anchors"])
def test_what_is_around_the_update(sharded, around):
    runs = []
    for kinds in ([], sharded):
        options = options_of(3, 2, kinds)
        if around in ("norm", "value"):
            options.Training.gradientClipping(**{around: 0.01})
        if around == "loss_scale":
            options.Training.setAutomaticLossScaling(True)
        if around == "anchors":
            for name in ("Gradient___fc.weight", "UpdatedVar___fc.weight", "Accl1___fc.weight"):
                options.anchorTensor(name, name)
        torch.manual_seed(0)
        model = Model()
        own = poptorch.optim.Adam(model.parameters(), lr=0.01, loss_scaling=4.0)
        trainer = poptorch.trainingModel(model, options, own)
        results = [trainer(*batch) for batch in batches(3, 2, 2)]
        if around == "anchors":
            results += [trainer.getAnchoredTensor(name) for name in options.anchored_tensors]
        runs.append({"results": results, "weights": dict(model.state_dict()),
                     "states": own.state_dict()["state"]})
    check_equal_bits(*runs)


def test_inference_gathers_weights():
    torch.manual_seed(0)
    model = Model().eval()
    x, y = next(batches(4, 1, 1))
    runs = [poptorch.inferenceModel(model, options_of(4, 1, kinds)) for kinds in ([], ["Weight"])]
    check_equal_bits(*(run(x, y) for run in runs))
    assert "all_gather" in runs[1].op_report()["forward"]
    assert runs[1].memory_report()["parameters"] < runs[0].memory_report()["parameters"] / 3


def test_copies_to_the_device_and_back():
    torch.manual_seed(0)
    model = Model()
    options = options_of(3, 1, ["Optimizer", "Weight"])
    trainer = poptorch.trainingModel(model, options, torch.optim.Adam(model.parameters()))
    trainer.compile(*next(batches(3, 1, 1)))
    value = torch.randn(7, 12)
    with torch.no_grad():
        model.fc.weight.copy_(value)
    trainer.copyWeightsToDevice()
    with torch.no_grad():
        model.fc.weight.zero_()
    trainer.copyWeightsToHost()
    assert torch.equal(model.fc.weight, value)


def test_detach_and_attach_keep_parts():
    options = options_of(3, 1, ["Optimizer", "Weight"])
    expected, _ = trained(options_of(3, 1), steps=2)
    torch.manual_seed(0)
    model = Model()
    own = torch.optim.Adam(model.parameters(), amsgrad=True)
    trainer = poptorch.trainingModel(model, options, own)
    results = []
    for batch in batches(3, 1, 2):
        results.append(trainer(*batch))
        trainer.detachFromDevice()
        trainer.attachToDevice()
    check_equal_bits({"results": results, "weights": dict(model.state_dict()),
                      "states": own.state_dict()["state"]}, expected)


def train_on(trainer, skipped=0):
    return [trainer(*batch) for batch in itertools.islice(batches(3, 1, 4), skipped, None)]


@pytest.mark.parametrize("sharded", [[], ["Optimizer"], ["Optimizer", "Weight"]])
def test_a_state_goes_on_in_any_program(sharded):
    """The state of an optimizer is that of whole tensors."""
    expected, _ = trained(options_of(3, 1), steps=4)
    torch.manual_seed(0)
    model = Model()
    own = torch.optim.Adam(model.parameters(), amsgrad=True)
    first = poptorch.trainingModel(model, options_of(3, 1, ["Optimizer"]), own)
    for batch in itertools.islice(batches(3, 1, 4), 2):
        first(*batch)
    weights, state = model.state_dict(), own.state_dict()
    first.destroy()
    model = Model()
    model.load_state_dict(weights)
    own = torch.optim.Adam(model.parameters(), amsgrad=True)
    own.load_state_dict(state)
    train_on(poptorch.trainingModel(model, options_of(3, 1, sharded), own), 2)
    check_equal_bits({"weights": dict(model.state_dict()), "states": own.state_dict()["state"]},
                     {key: expected[key] for key in ("weights", "states")})


def test_a_file_goes_on_with_the_same_bits(tmp_path):
    expected, _ = trained(options_of(3, 1), steps=4)
    options = options_of(3, 1, ["Optimizer", "Weight"])
    torch.manual_seed(0)
    model = Model()
    own = torch.optim.Adam(model.parameters(), amsgrad=True)
    first = poptorch.trainingModel(model, options, own)
    for batch in itertools.islice(batches(3, 1, 4), 2):
        first(*batch)
    first.save(str(tmp_path / "model"), save_rng_state=True)
    loaded = poptorch.load(str(tmp_path / "model"))
    assert loaded.memory_report()["sharding"] == first.memory_report()["sharding"]
    first.destroy()
    results = train_on(loaded, 2)
    check_equal_bits({"results": results, "weights": dict(loaded.state_dict())},
                     {"results": expected["results"][2:], "weights": expected["weights"]})


@pytest.mark.parametrize("accumulation", [1, 4])
def test_several_ipus(accumulation):
    """States of a stage are sharded over the replicas of that stage; weights stay whole."""
    runs = []
    for sharded in ([], ["Optimizer", "Weight"]):
        torch.manual_seed(0)
        model = Model()
        poptorch.BeginBlock(model.fc, "second", ipu_id=1)
        options = options_of(2, accumulation, sharded)
        options.setExecutionStrategy(poptorch.ShardedExecution())
        own = torch.optim.Adam(model.parameters(), amsgrad=True)
        trainer = poptorch.trainingModel(model, options, own)
        results = [trainer(*batch) for batch in batches(2, accumulation, 2)]
        runs.append({"results": results, "weights": dict(model.state_dict()),
                     "states": own.state_dict()["state"]})
    check_equal_bits(*runs)


def test_one_op_reduces_all_gradients():
    options = options_of(2, 1)
    torch.manual_seed(0)
    model = Model()
    trainer = poptorch.trainingModel(model, options, torch.optim.Adam(model.parameters()))
    trainer.compile(*next(batches(2, 1, 1)))
    assert trainer.op_report()["backward"]["all_reduce"] == 1


def test_merging_changes_no_bit(monkeypatch):
    expected, _ = trained(options_of(2, 2))
    monkeypatch.setenv("POPTORCH_OFF", "merge_all_reduces")
    ours, _ = trained(options_of(2, 2))
    check_equal_bits(ours, expected)


@pytest.mark.parametrize("form", ["replicas", "micro"])
def test_any_form_of_the_host(form, monkeypatch):
    expected, _ = trained(options_of(3, 2))
    monkeypatch.setenv("POPTORCH_HOST", form)
    ours, _ = trained(options_of(3, 2, ["Optimizer", "Weight"]))
    check_equal_bits(ours, expected)

"""Effects of options on what a call computes: results, gradients, buffers, random numbers."""

import copy

import pytest
import torch

import poptorch
from tests.api.options.effects import Counter, Scale, gradient, ir
from tests.helpers import quiet_options as quiet

MODES = poptorch.OutputMode
MEAN = poptorch.MeanReductionStrategy


class Identity(torch.nn.Module):
    """Returns its input."""

    def forward(self, x):
        return x * 1.0


def run(options, x, module=None):
    return poptorch.inferenceModel(module or Identity(), options)(x)


def test_device_iterations_divide_the_batch():
    text = ir(quiet(deviceIterations=3), Identity(), torch.ones(6, 2))
    assert "loop {body=@iteration, count=3}" in text and "f32[2,2]" in text


def test_replication_divides_the_batch():
    assert "f32[3,2]" in ir(quiet(replicationFactor=2), Identity(), torch.ones(6, 2))


def test_input_groups():
    module = Counter()
    x = torch.arange(1.0, 5.0).reshape(4, 1)

    def totals(**settings):
        options = quiet(replicationFactor=4, broadcastBuffers=False, **settings)
        return run(options, x, Counter()).tolist()

    assert totals() == [1, 2, 3, 4]
    # Two groups of two replicas: each group reads half of the input.
    assert totals(inputReplicaGrouping=(2, poptorch.CommGroupType.Consecutive)) == [3, 3, 7, 7]
    assert totals(inputReplicaGrouping=(2, poptorch.CommGroupType.Orthogonal)) == [3, 7, 3, 7]
    assert totals(inputReplicaGrouping=(2, poptorch.CommGroupType.NoGrouping)) == [1, 2, 3, 4]
    with pytest.raises(poptorch.Error, match=r"groups of 3 .* replicationFactor\(4\)"):
        poptorch.inferenceModel(module, quiet(replicationFactor=4, inputReplicaGrouping=3))


def test_input_groups_refuse_changed_inputs():
    class Change(torch.nn.Module):
        def forward(self, x):
            return x.add_(1)

    options = quiet(replicationFactor=2, inputReplicaGrouping=2)
    with pytest.raises(poptorch.Error, match="changes an input in place"):
        run(options, torch.ones(2), Change())


@pytest.mark.parametrize(("mode", "expected"), [
    ((MODES.All,), [0, 1, 2, 3, 4, 5, 6, 7]), ((MODES.Final,), [6, 7]),
    ((MODES.Sum,), [12, 16]), ((MODES.EveryN, 2), [2, 3, 6, 7]), ((MODES.EveryN, 4), [6, 7]),
    ((MODES.Default,), [0, 1, 2, 3, 4, 5, 6, 7])])
def test_output_modes(mode, expected):
    options = quiet(deviceIterations=4, replicationFactor=2, outputMode=mode)
    assert run(options, torch.arange(8.0)).tolist() == expected


def test_every_n_needs_a_divisor():
    with pytest.raises(poptorch.Error, match="every 3-th of 4 device iterations"):
        run(quiet(deviceIterations=4, outputMode=(MODES.EveryN, 3)), torch.ones(4))
    # All micro-batches of the iterations that are kept come back.
    options = quiet(deviceIterations=4, outputMode=(MODES.EveryN, 2),
                    Training__gradientAccumulation=3)
    y, loss = poptorch.trainingModel(Scale(size=1), options)(torch.ones(12, 1))
    assert y.shape == (6, 1) and loss.shape == (6,)
    options = quiet(deviceIterations=1, outputMode=(MODES.EveryN, 3),
                    Training__gradientAccumulation=3)
    with pytest.raises(poptorch.Error, match="3 does not divide 1"):
        poptorch.trainingModel(Scale(size=1), options)(torch.ones(3, 1))


def test_random_seed():
    def draw(seed):
        torch.manual_seed(0)
        torch.rand(3)
        options = quiet() if seed is None else quiet(randomSeed=seed)
        torch.manual_seed(1)
        return run(options, torch.ones(64), torch.nn.Dropout(0.5).train())

    assert torch.equal(draw(5), draw(5))
    assert not torch.equal(draw(5), draw(6)) and not torch.equal(draw(5), draw(None))


def test_synthetic_data():
    module = torch.nn.BatchNorm1d(3, momentum=1.0).train()
    module.register_buffer("counts", torch.zeros(2, dtype=torch.int32))
    module.forward = lambda x, n: (module.counts.add_(n),
                                   torch.nn.BatchNorm1d.forward(module, x))[1]
    model = poptorch.inferenceModel(module, quiet(enableSyntheticData=True))
    y = model(torch.full((4096, 3), 7.0), torch.full((2,), 9, dtype=torch.int32))
    assert torch.equal(y, torch.zeros(4096, 3))
    # The device saw N(0, 1) and zeros, not what was passed: eight standard errors.
    model.copyWeightsToHost()
    assert module.running_mean.abs().max() < 8 / 64
    assert (module.running_var - 1).abs().max() < 8 * 2**0.5 / 64
    assert torch.equal(module.counts, torch.zeros(2, dtype=torch.int32))
    assert "stream_in" not in model.ir("translate")


def test_synthetic_data_trains():
    net = Scale()
    model = poptorch.trainingModel(net, quiet(enableSyntheticData=True, deviceIterations=2))
    y, loss = model(torch.ones(2, 2))
    assert y.shape == (1, 2) and loss.shape == () and not loss
    assert not torch.equal(net.w.detach(), torch.ones(2))


@pytest.mark.parametrize("mode, size", [(MODES.All, 6), (MODES.Final, 1), (MODES.Sum, 1)])
def test_anchors_and_gradients_under_synthetic_data(mode, size):
    """They are zeros, as results are, of the shape that they have otherwise."""
    net = Scale()
    options = quiet(enableSyntheticData=True, deviceIterations=2, Training__gradientAccumulation=3)
    options.anchorTensor("x", "mul", mode).anchorTensor("gradient", "Gradient___w", mode)
    with poptorch.testing.keep_gradients():
        model = poptorch.trainingModel(net, options)
        model.compile(torch.ones(6, 2))
    with pytest.raises(poptorch.Error, match="has not run"):
        model.getAnchoredTensor("x")
    for _ in range(2):
        model(torch.ones(6, 2))
    assert torch.equal(model.getAnchoredTensor("x"), torch.zeros(size, 2))
    assert not model.getAnchoredTensor("gradient").any()
    assert torch.equal(poptorch.testing.gradients(model)["w"], torch.zeros(2))


def test_broadcast_buffers():
    x = torch.tensor([9.0, 2.0])
    with pytest.raises(poptorch.Error, match=r"changes total on 2 replicas. PopTorch does not "
                       r"support broadcasting buffers\. If your model is able to tolerate buffers "
                       r"becoming out of sync between replicas, you can disable buffer "
                       r"broadcasting using poptorch.Options.broadcastBuffers\(False\)\."):
        run(quiet(replicationFactor=2), x, Counter())
    model = poptorch.inferenceModel(Counter(), quiet(replicationFactor=2, broadcastBuffers=False))
    for _ in range(50):
        totals = model(x)
    assert totals.tolist() == [450, 100]
    # One that forward only reads is the same everywhere anyhow.
    run(quiet(replicationFactor=2), torch.ones(4, 3), torch.nn.BatchNorm1d(3).eval())


def summed(x):
    """The sum of all replicas' values."""
    return poptorch.custom_op([x], "ReplicatedAllReduceTP", "ai.graphcore", 1,
                              example_outputs=[x])[0]


CHANGES = {
    "input": (lambda w, x: w.add_(x.sum()), False),
    "places": (lambda w, x: w.index_put_((torch.tensor([-1, -1]),), x, accumulate=True), False),
    "random": (lambda w, x: w.add_(torch.randn(2)), False),
    "random in a loop": (lambda w, x: w.add_(poptorch.for_loop(
        2, lambda a: poptorch.for_loop(1, lambda b: b + torch.randn(2), [a])[0], [w * 0])[0]),
        False),
    "host": (lambda w, x: w.add_(poptorch.CPU(torch.rand_like, "drawn")(w)), False),
    "host in a loop": (lambda w, x: w.add_(poptorch.for_loop(
        2, lambda a: poptorch.CPU(torch.rand_like, "drawn")(a), [w * 0])[0]), False),
    "buffer": (lambda w, x: w.add_(x.new_ones(2) * 2), True),
    "limits": (lambda w, x: w.clamp_(0.5, 2.0), True),
    "sum": (lambda w, x: w.add_(summed(x.sum())), True),
}


@pytest.mark.parametrize("training", (False, True))
@pytest.mark.parametrize("name", CHANGES)
def test_replicas_share_parameters(name, training):
    change, is_same = CHANGES[name]

    class Changing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([0.25, 3.0]))

        def forward(self, x):
            change(self.w.detach(), x)
            y = self.w * x
            return poptorch.identity_loss(y, "sum")

    module, options = Changing(), quiet(replicationFactor=2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.0)
    model = (poptorch.trainingModel(module, options, optimizer) if training
             else poptorch.inferenceModel(module, options))
    x = torch.tensor([[1.0, 2.0], [4.0, 3.0]])[:, 0]
    if is_same:
        model(x)
        expected = torch.tensor([0.25, 3.0])
        expected = {"limits": expected.clamp(0.5, 2.0), "sum": expected + 5}.get(name, expected + 2)
        model.copyWeightsToHost()
        assert torch.equal(module.w.detach(), expected)
    else:
        with pytest.raises(poptorch.Error, match="(?s)parameter w in place.*broadcastBuffers.*at "
                                                 ".*test_effects_data.py:"):
            model(x)


def test_updatable_named_buffers():
    module = Counter()
    model = poptorch.inferenceModel(module, quiet(updatableNamedBuffers=(["offset"],)))
    with pytest.raises(poptorch.Error, match="has not been compiled"):
        model.copyNamedBuffersToDevice()
    assert model(torch.ones(1)).item() == 1
    module.offset += 10
    module.total += 100  # is not copied
    model.copyNamedBuffersToDevice()
    assert model(torch.ones(1)).item() == 12
    with pytest.raises(poptorch.Error, match="the options name no buffers"):
        other = poptorch.inferenceModel(Counter(), quiet())
        other(torch.ones(1))
        other.copyNamedBuffersToDevice()
    with pytest.raises(poptorch.Error, match="no buffer 'offsets'. .*total, offset"):
        run(quiet(updatableNamedBuffers=(["offsets"],)), torch.ones(1), Counter())


def test_accumulation():
    x = torch.arange(6.0).reshape(3, 2)
    found, model = gradient(quiet(Training__gradientAccumulation=3), x)
    torch.testing.assert_close(found, x.mean(0))
    assert "@micro, count=3" in model.ir("translate")


@pytest.mark.parametrize("replicas", [1, 2])
def test_reduction_type(replicas):
    x = torch.arange(1.0, 9.0).reshape(4, 2)
    options = quiet(Training__gradientAccumulation=4 // replicas, replicationFactor=replicas)
    torch.testing.assert_close(gradient(options.clone(), x)[0], x.mean(0))
    options.Training.accumulationAndReplicationReductionType(poptorch.ReductionType.Sum)
    torch.testing.assert_close(gradient(options, x)[0], x.sum(0))


@pytest.mark.parametrize("strategy", [None, *MEAN])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.filterwarnings("ignore:.*PostAndLoss is deprecated")
def test_mean_strategies_give_the_mean(strategy, dtype):
    x = torch.arange(1.0, 13.0, dtype=dtype).reshape(6, 2)
    options = quiet(Training__gradientAccumulation=3, replicationFactor=2)
    if strategy is not None:
        options.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
    found, _ = gradient(options, x, dtype)
    torch.testing.assert_close(found, x.float().mean(0).to(dtype), rtol=2e-3, atol=0)


def test_running_mean_does_not_overflow_in_half():
    x = torch.full((4, 2), 40000.0, dtype=torch.float16)

    def found(strategy):
        options = quiet(Training__gradientAccumulation=4)
        if strategy is not None:
            options.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
        return gradient(options, x, torch.float16)[0]

    assert found(MEAN.Post).isinf().all()
    assert torch.equal(found(MEAN.Running), x[0]) and torch.equal(found(None), x[0])


@pytest.mark.parametrize("dtypes, is_frozen, expected", [
    (["float32"], False, MEAN.Post), (["float16"], False, MEAN.Running),
    (["float32", "bfloat16"], False, MEAN.Running), (["float32", "float16"], True, MEAN.Post)])
def test_the_executor_names_its_mean_strategy(dtypes, is_frozen, expected):
    name = "mean_accumulation_and_replication_reduction_strategy"
    net = torch.nn.Sequential(*(torch.nn.Linear(1, 1, dtype=getattr(torch, t)) for t in dtypes))
    if is_frozen:
        net[-1].requires_grad_(False)
    options = quiet(Training__gradientAccumulation=3)
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.1))
    assert getattr(model.options.Training, name) is expected
    assert getattr(options.Training, name) is None
    model.destroy()
    options = quiet()
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(MEAN.Running)
    model = poptorch.trainingModel(net, options, torch.optim.SGD(net.parameters(), lr=0.1))
    assert getattr(model.options.Training, name) is MEAN.Running


F16, BF16, F32 = torch.float16, torch.bfloat16, torch.float32


@pytest.mark.parametrize("make, dtype, settings, expected", [
    (poptorch.optim.SGD, F32, {"accum_type": F16}, MEAN.Running),
    (poptorch.optim.AdamW, F32, {"accum_type": BF16}, MEAN.Running),
    (poptorch.optim.AdamW, F32, {"first_order_momentum_accum_type": F16}, MEAN.Post),
    (poptorch.optim.SGD, F16, {}, MEAN.Post),
    (poptorch.optim.SGD, F16, {"accum_type": F16}, MEAN.Running),
    (poptorch.optim.SGD, F32, {"accum_type": F16, "use_combined_accum": True, "momentum": 0.9},
     MEAN.Post),
    (poptorch.optim.SGD, F32, {"accum_type": F16, "use_combined_accum": True}, MEAN.Running),
    (torch.optim.SGD, F16, {}, MEAN.Running)])
def test_the_mean_strategy_follows_the_type_of_the_sums(make, dtype, settings, expected):
    net = Scale(dtype)
    model = poptorch.trainingModel(net, quiet(), make(net.parameters(), lr=0.1, **settings))
    assert strategy_of(model) is expected


def test_the_mean_strategy_follows_the_type_of_one_group():
    net = torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    groups = [{"params": net[0].parameters()},
              {"params": net[1].parameters(), "accum_type": F16}]
    model = poptorch.trainingModel(net, quiet(), poptorch.optim.SGD(groups, lr=0.1))
    assert strategy_of(model) is MEAN.Running
    model.destroy()
    net[1].requires_grad_(False)
    model = poptorch.trainingModel(net, quiet(), poptorch.optim.SGD(groups, lr=0.1))
    assert strategy_of(model) is MEAN.Post


def strategy_of(model):
    return model.options.Training.mean_accumulation_and_replication_reduction_strategy


def with_sums(net, dtype):
    return poptorch.optim.SGD(net.parameters(), lr=0.1, accum_type=dtype)


def test_half_sums_of_single_parameters_do_not_overflow():
    """Four gradients of 30,000."""
    net, x = Scale(), torch.full((4, 2), 30000.0)
    options = quiet(Training__gradientAccumulation=4)
    poptorch.trainingModel(net, options, with_sums(net, F16))(x)
    assert torch.equal(net.w, torch.full((2,), 1 - 3000.0))


def test_another_optimizer_decides_the_mean_strategy_again():
    net, x = Scale(), torch.ones(3, 2)
    given = quiet(Training__gradientAccumulation=3)
    model = poptorch.trainingModel(net, given, with_sums(net, F32))
    assert strategy_of(model) is MEAN.Post
    model.setOptimizer(with_sums(net, F16))
    assert strategy_of(model) is MEAN.Running
    again = copy.deepcopy(model)
    again.setOptimizer(with_sums(again.model, F32))
    assert strategy_of(again) is MEAN.Post and strategy_of(model) is MEAN.Running
    model(x)
    assert model.ir("translate").count("= div %") == 0
    with pytest.raises(ValueError, match="accum_type.* is already compiled"):
        model.setOptimizer(with_sums(net, F32))
    assert strategy_of(model) is MEAN.Running
    model.destroy()
    optimizer = with_sums(net, F16)
    model.setOptimizer(optimizer)
    optimizer.accum_type = F32  # a change in place counts when the model is compiled
    model(x)
    assert strategy_of(model) is MEAN.Post and model.ir("translate").count("= div %") == 1
    assert given.Training.mean_accumulation_and_replication_reduction_strategy is None


def test_another_optimizer_leaves_the_mean_strategy_of_the_user():
    net = Scale()
    options = quiet(Training__setMeanAccumulationAndReplicationReductionStrategy=MEAN.Post)
    model = poptorch.trainingModel(net, options, with_sums(net, F16))
    assert strategy_of(model) is MEAN.Post
    model.setOptimizer(with_sums(net, F16))
    model(torch.ones(1, 2))
    assert strategy_of(model) is MEAN.Post


def test_the_strategy_of_the_executor_is_used():
    """One parameter in half precision: all gradients are divided as they are added."""
    net = Scale()
    net.unused = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    model = poptorch.trainingModel(net, quiet(Training__gradientAccumulation=3))
    model(torch.ones(3, 2))
    assert model.options.Training.mean_accumulation_and_replication_reduction_strategy \
        is MEAN.Running
    assert model.ir("translate").count("= div %") == 0


def test_where_gradients_are_divided():
    def text(strategy, count):
        options = quiet(Training__gradientAccumulation=count)
        options.Training.setMeanAccumulationAndReplicationReductionStrategy(strategy)
        return gradient(options, torch.ones(count, 2))[1].ir("translate")

    def divisions(strategy, count):
        return text(strategy, count).count("= div %")

    assert divisions(MEAN.Running, 3) == 0 and divisions(MEAN.Post, 3) == 1
    assert divisions(MEAN.Post, 4) == 0  # exact on the way
    with pytest.warns(DeprecationWarning, match="PostAndLoss is deprecated"):
        assert divisions(MEAN.PostAndLoss, 3) == 1


def test_training_in_several_processes_is_refused():
    options = quiet(Distributed__configureProcessId=(0, 2))
    with pytest.raises(poptorch.Error, match="configureProcessId.* 2 processes"):
        poptorch.trainingModel(Scale(), options)
    options = options.clone()
    options.Distributed.disable()
    poptorch.trainingModel(Scale(), options)
    poptorch.inferenceModel(Scale(), quiet(Distributed__configureProcessId=(0, 2)))

"""``poptorch.estimate`` places the program that the executor compiles, without its memory."""

import copy

import pytest
import torch

import poptorch
from poptorch._executor.placing import placed
from tests.helpers import Cases


class Net(torch.nn.Module):
    def __init__(self, stages: int = 1):
        super().__init__()
        self.embedding = torch.nn.Embedding(12, 8)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))
        self.norm = torch.nn.BatchNorm1d(8)
        self.dropout = torch.nn.Dropout(0.5)
        for number, layer in enumerate(self.layers if stages > 1 else ()):
            poptorch.BeginBlock(layer, ipu_id=number * stages // 4)

    def forward(self, ids, target=None):
        y = self.embedding(ids)
        for layer in self.layers:
            y = self.dropout(torch.relu(layer(y)))
        y = self.norm(y)
        return y if target is None else torch.nn.functional.cross_entropy(y, target)


def _options(**training) -> poptorch.Options:
    options = poptorch.Options().showCompilationProgressBar(False)
    for name, value in training.items():
        getattr(options.Training, name)(value)
    return options


IDS = torch.arange(32) % 12
TARGET = torch.arange(32) % 8
OPTIMIZERS = [
    lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9),
    lambda net: torch.optim.AdamW(net.parameters(), lr=0.1),
    lambda net: poptorch.optim.LAMB(net.parameters(), lr=0.1),
    lambda net: torch.optim.Adagrad(net.parameters(), lr=0.1),
]


def _configurations():
    for stages in (1, 2):
        yield stages, _options(gradientAccumulation=4)
    yield 4, _options(gradientAccumulation=8).replicationFactor(2).broadcastBuffers(False)
    yield 2, _options().setExecutionStrategy(poptorch.ShardedExecution())


def test_training_has_the_text_and_the_report_of_the_compiled_program():
    with Cases() as cases:
        for number, (stages, options) in enumerate(_configurations()):
            make = OPTIMIZERS[number]
            with cases.case(number):
                net = Net(stages)
                optimizer = make(net)
                text = placed(net, options, (IDS, TARGET), {}, optimizer, "estimate").text
                model = poptorch.trainingModel(net, options, optimizer)
                model.compile(IDS, TARGET)
                assert model.ir("place") == text
                report = poptorch.estimate(net, options, IDS, TARGET, optimizer=optimizer)
                assert repr(report) == repr(model.report()) and report.ops == model.report().ops


def test_inference_has_the_text_of_the_compiled_program():
    with Cases() as cases:
        for stages in (1, 2):
            with cases.case(stages):
                net, options = Net(stages).eval(), _options().deviceIterations(4)
                text = placed(net, options, (IDS,), {}, None, "estimate").text
                model = poptorch.inferenceModel(net, options)
                model.compile(IDS)
                assert model.ir("place") == text


def test_weights_and_arguments_may_be_without_memory():
    real, options = Net(2), _options(gradientAccumulation=4)
    expected = placed(real, options, (IDS, TARGET), {}, OPTIMIZERS[1](real), "estimate").text
    with torch.device("meta"):
        meta = Net(2)
    fake = torch._subclasses.FakeTensorMode()
    with Cases() as cases:
        for name, inputs in {"real": (IDS, TARGET), "meta": (IDS.to("meta"), TARGET.to("meta")),
                             "fake": (fake.from_tensor(IDS), fake.from_tensor(TARGET))}.items():
            with cases.case(name):
                optimizer = OPTIMIZERS[1](meta)
                text = placed(meta, options, inputs, {}, optimizer, "estimate").text
                assert text == expected and not optimizer.state


def test_nothing_of_the_users_changes():
    net, options = Net(2), _options(gradientAccumulation=4)
    optimizer = OPTIMIZERS[2](net)
    classes = [type(part) for part in net.modules()]
    groups, state, weights = (copy.deepcopy(optimizer.param_groups), optimizer.state,
                              copy.deepcopy(net.state_dict()))
    placed(net, options, (IDS, TARGET), {}, optimizer, "estimate")
    assert [type(part) for part in net.modules()] == classes
    assert optimizer.state is state and not state
    assert str(optimizer.param_groups) == str(groups)
    assert all(torch.equal(value, weights[name]) for name, value in net.state_dict().items())
    options.deviceIterations(2)  # not frozen


def test_more_ipus_than_a_process_may_have():
    class Deep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(128))

        def forward(self, x):
            for number, layer in enumerate(self.layers):
                with poptorch.Block(ipu_id=number):
                    x = layer(x)
            return x

    options = _options().setExecutionStrategy(poptorch.ShardedExecution())
    text = placed(Deep(), options, (torch.ones(1, 2),), {}, None, "estimate").text
    assert "ipu=127" in text
    with pytest.raises(poptorch.Error, match="64"):
        poptorch.inferenceModel(Deep(), options).compile(torch.ones(1, 2))


def test_what_is_not_a_model():
    with pytest.raises(TypeError, match=r"\[estimate\] model must be a torch.nn.Module, got int. "
                                        "Pass an object of the module's class."):
        poptorch.estimate(3, _options(), torch.ones(1))


def test_meta_weights_are_not_for_programs_that_run():
    with pytest.raises(poptorch.Error, match="expected a tensor on the CPU but got one on meta"):
        poptorch.inferenceModel(torch.nn.Linear(2, 2, device="meta")).compile(torch.ones(1, 2))

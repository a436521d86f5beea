"""Modules and names that programs import though no page names them."""

import importlib.util
import warnings

import pytest
import torch

import poptorch
import poptorch._args_parser
import poptorch._impl
import poptorch._poplar_executor
import poptorch._utils
from poptorch import poptorch_core
from poptorch._capture import context_managers
from tests.helpers import quiet_options, run_python

X = torch.arange(6.0).reshape(2, 3)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x):
        y = self.fc(x)
        return y, poptorch.identity_loss(y, "mean")


def test_an_arguments_parser_of_the_programs_own():
    class Parser(poptorch._args_parser.ArgsParser):
        def __init__(self):
            self._has_variadic_arguments = False
            self._varnames = ["left", "right"]
            self._defaults = [torch.ones(2, 3)]
            self._warned_not_contiguous_input = False

    module = torch.nn.Module()
    module.forward = lambda *values: values[0] - values[1]
    model = poptorch.inferenceModel(module, quiet_options())
    assert model._args_parser is None
    model._args_parser = Parser()
    assert torch.equal(model(X), X - 1)
    assert torch.equal(model(left=X, right=X * 2), X - X * 2)
    with pytest.raises(poptorch.Error, match="Mandatory parameter left missing"):
        model(right=X)


def test_the_parser_of_a_signature():
    parser = poptorch._args_parser.ArgsParser(Net())
    assert parser._varnames == ["x"] and not parser._has_variadic_arguments
    module = torch.nn.Module()
    module.forward = lambda *values: values
    assert poptorch._args_parser.ArgsParser(module)._has_variadic_arguments


def test_unwrap_and_rewrap():
    net = Net()
    plain = poptorch._impl.unwrapModelIfNecessary
    plain(net)
    poptorch._impl.rewrapModelIfNecessary(net)
    assert type(net) is Net
    model = poptorch.trainingModel(net, quiet_options(), torch.optim.SGD(net.parameters(), lr=0.5))
    before = net.fc.weight.detach().clone()
    model(X)
    plain(net)
    assert type(net) is Net and type(net.fc.weight) is torch.nn.Parameter
    assert not torch.equal(net.fc.weight, before), "the trained weights were not read back"
    poptorch._impl.rewrapModelIfNecessary(net)
    assert type(net).__bases__ == (Net,)
    trained = net.fc.weight.detach().clone()
    model(X)
    assert not torch.equal(net.fc.weight, trained)


def test_joining_of_micro_batches():
    """By position over the batches, each a list of its tensors."""
    batches = [[X, torch.tensor([1.0])], [X + 1, torch.tensor([2.0])], [X + 2, torch.ones(1)]]
    joined = poptorch._utils.combine_batch_tensors_gen(batches)
    assert iter(joined) is joined
    first, second = joined
    assert torch.equal(first, torch.cat([X, X + 1, X + 2])) and second.tolist() == [1, 2, 1]


def test_private_modules_come_with_the_package():
    run_python("""
import poptorch
for module, name in [("_impl", "unwrapModelIfNecessary"), ("_impl", "rewrapModelIfNecessary"),
                     ("_utils", "combine_batch_tensors_gen"), ("_args_parser", "ArgsParser"),
                     ("_poplar_executor", "PoplarExecutor"), ("poptorch_core", "Error"),
                     ("enums", "OutputMode"), ("options", "_IExecutionStrategy")]:
    assert hasattr(getattr(poptorch, module), name), (module, name)
""")


def test_the_executors_module_may_be_executed_again():
    spec = importlib.util.find_spec("poptorch._poplar_executor")
    assert spec.origin.endswith("_poplar_executor.py")
    again = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(again)
    assert again.PoplarExecutor is poptorch.PoplarExecutor
    with warnings.catch_warnings(action="ignore"):  # deprecated by importlib
        assert spec.loader.load_module().PoplarExecutor is poptorch.PoplarExecutor
    assert poptorch._poplar_executor.PoplarExecutor is poptorch.PoplarExecutor


def test_managers_around_every_capture():
    seen = []

    class Manager:
        def __enter__(self):
            seen.append("enter")

        def __exit__(self, *exception):
            seen.append("exit")

    register = poptorch._poplar_executor._OverwriteContextManager.registerSubsitutionManager
    register(Manager)
    register(Manager)
    try:
        model = poptorch.inferenceModel(Net(), quiet_options())
        model(X)
        model(X)
        assert seen == ["enter", "exit"]
        module = torch.nn.Module()
        module.forward = lambda x: seen.append("forward") or 1 / 0
        with pytest.raises(ZeroDivisionError):
            poptorch.inferenceModel(module, quiet_options())(X)
        assert seen[2:] == ["enter", "forward", "exit"]
        with pytest.raises(TypeError, match="expected a class of context managers, got 5"):
            register(5)
    finally:
        context_managers._registered.remove(Manager)


def test_options_and_enumerations_by_private_path():
    assert issubclass(poptorch.PipelinedExecution, poptorch.options._IExecutionStrategy)
    assert poptorch.enums.OutputMode is poptorch.OutputMode
    assert "All" in [n for n in poptorch.enums.OutputMode.__dict__ if not n.startswith("_")]


@pytest.mark.parametrize("kind", poptorch_core.TestErrorType)
def test_errors_of_the_back_end(kind):
    expected = {"PoplarRecoverableFullReset": poptorch.RecoverableError,
                "PoplarUnrecoverable": poptorch.UnrecoverableError}.get(kind.name, poptorch.Error)
    with pytest.raises(poptorch_core.Error) as caught:
        poptorch_core._throwTestError(kind)
    error = caught.value
    assert type(error) is expected and poptorch_core.Error is poptorch.Error
    assert kind.name in error.message and error.type == kind.name and error.location
    assert getattr(error, "recovery_action", "FULL_RESET") == "FULL_RESET"


def test_names_for_the_log_and_the_version():
    assert poptorch.logger.name == "poptorch::python" and callable(poptorch.logger.warn)
    assert isinstance(poptorch.__version__, str)
    module, seen = torch.nn.Module(), []
    module.forward = lambda x: seen.append(poptorch.isCompilingWithDispatcher()) or x
    module(X)
    poptorch.inferenceModel(module, quiet_options())(X)
    assert seen == [False, True]


def test_operators_of_the_dispatcher():
    scopes = torch.ops.poptorch

    class Scoped(Net):
        def forward(self, x):
            scopes.push_name_scope("encoder")
            y = self.fc(x)
            scopes.pop_name_scope()
            return scopes.internal_cast(y, "FLOAT16")

    net = Scoped()
    model = poptorch.inferenceModel(net, quiet_options())
    y = model(X)
    assert y.dtype is torch.float16 and "encoder/fc" in model.ir("translate")
    assert "encoder/" not in [line for line in model.ir("translate").splitlines()
                              if " cast " in line][0]
    torch.testing.assert_close(net(X), y)
    with pytest.raises(poptorch.Error, match="no scope is entered"):
        scopes.pop_name_scope()
    with pytest.raises(poptorch.Error, match="unknown type 'FLOAT8'"):
        scopes.internal_cast(X, "FLOAT8")


def test_scopes_and_casts_in_hooks():
    """The same hooks on the CPU and while the model is compiled; a checkpoint of half values."""
    def push(*_):
        torch.ops.poptorch.push_name_scope("layer")

    def pop(module, arguments, y):
        torch.ops.poptorch.pop_name_scope()
        return torch.ops.poptorch.internal_cast(y.half(), "FLOAT")

    net = torch.nn.Sequential(torch.nn.Linear(3, 2))
    net[0].register_forward_pre_hook(push)
    net[0].register_forward_hook(pop)
    expected = net(X)
    model = poptorch.inferenceModel(net, quiet_options())
    y = model(X)
    assert y.dtype is expected.dtype is torch.float32 and "layer/" in model.ir("translate")
    torch.testing.assert_close(y, expected, rtol=1e-3, atol=1e-3)


def test_back_end_enumerations():
    import popart  # next to us, as in other versions

    strategy = int(popart.SubgraphCopyingStrategy.JustInTime)
    options = poptorch.Options()
    options._Popart.set("subgraphCopyingStrategy", strategy)
    assert options._popart.options == {"subgraphCopyingStrategy": strategy}
    assert int(popart.BatchSerializationBatchSchedule.OverlapOnIo) == 2
    assert int(popart.AccumulateOuterFragmentSchedule.OverlapMemoryOptimized) == 3


def test_dispatch_tracing():
    seen = []

    class Asking(torch.nn.Module):
        def forward(self, x):
            seen.append(poptorch._impl.isDispatchTracing())
            return x + 1

    poptorch.inferenceModel(Asking(), quiet_options())(X)
    assert seen == [True] and not poptorch._impl.isDispatchTracing()

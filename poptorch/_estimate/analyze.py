"""``poptorch.analyze``."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from poptorch._base.checks import check_module
from poptorch._base.pytree import structure as pytree
from poptorch._base.torch_private.modes_off import plain_torch
from poptorch._estimate.analyzed_nodes import analyzed_nodes, recorded_nodes
from poptorch._executor.placing import copied, with_memory
from poptorch._optimizer.checks import parameters
from poptorch._reports.analysis import Analysis, AnalyzedOperation
from poptorch._runtime import settings
from poptorch._runtime.arguments import Arguments
from poptorch._runtime.wrapped import Wrapped
from poptorch._weights.grouping import Groupings
from poptorch.errors import Error, place_text
from poptorch.executor import PoplarExecutor
from poptorch.models import FUNCTIONS, FunctionModule
from poptorch.options import Options


def analyze(model: torch.nn.Module | Callable[..., Any], *inputs: Any,
            optimizer: torch.optim.Optimizer | None = None, **named: Any) -> Analysis:
    """Lists the operations of a model: native, opaque or refused. Nothing is compiled or run.

    The analysis goes on after a refused operation and lists all of them. To do so it gives zeros in
    place of its result, and 1 in place of a value that Python code reads (``x.item()``). It follows
    one branch of each ``if``, as for a value of 1.

    Args:
        model: a module; its parameters may be on the meta device. Or a function of tensors. Or an
            executor: then with its options, its optimizer and its loss.
        inputs: arguments of one call. Of tensors only shape and dtype matter, so they may be on the
            meta device.
        optimizer: analyzes training with this optimizer; None: inference, or what the executor
            does.
        named: keyword arguments of one call.

    Returns:
        An :class:`Analysis`.

    Raises:
        TypeError: ``model`` is not a module or function.
        poptorch.Error: The arguments do not fit the options of the executor.
        Exception: What ``forward`` itself raises, if no operation was refused before.

    Example:
        >>> import poptorch, torch
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.fc = torch.nn.Linear(4, 2)
        ...     def forward(self, x):
        ...         y = self.fc(x)
        ...         return y * y.mean().item()
        >>> found = poptorch.analyze(Net(), torch.ones(3, 4))
        >>> found.counts, [row.operation for row in found.refused]
        ({'native': 3, 'opaque': 0, 'refused': 1}, ['torch.Tensor.item'])
    """
    options, name = Options(), None
    if isinstance(model, FUNCTIONS):
        name, model = getattr(model, "__name__", type(model).__name__), FunctionModule(model)
    if isinstance(model, PoplarExecutor):
        wrapped, training = model._wrapped, model.training
        model, options = wrapped.model, wrapped.given_options
        user_model = wrapped.user_model
        if optimizer is None and training:
            optimizer = wrapped.optimizer.optimizer
    else:
        user_model, training = model, optimizer is not None
    check_module(model, "analyze")
    name = name or type(user_model).__name__
    return _Analyzed(model, user_model, name, options, optimizer, training, inputs, named).result()


class _Analyzed:
    """The steps of one analysis."""

    def __init__(self, model, user_model, name, options, optimizer, training, args, kwargs):
        self._training, self._optimizer, self._user_model = training, optimizer, user_model
        self._name = name
        self._rows: list[AnalyzedOperation] = []
        self._wrapped = self._wrap(model, options)
        with plain_torch():
            self._args = pytree.map_only(torch.Tensor, with_memory, (args, kwargs))

    def result(self) -> Analysis:
        from poptorch._capture.refusals import Refusals  # heavy parts of torch

        refusals, captured = Refusals(), None
        while captured is None:
            try:
                captured = self._capture(refusals)
            except Error as error:
                call = refusals.failed
                if call is not None and call not in refusals.underived:
                    refusals = Refusals({**refusals.underived, call: error})
                    continue  # captures again, with zeros instead of its result
                self._refuse("capture", error, " The analysis ends here.")
                self._rows += recorded_nodes(refusals.graph)
                break
            except Exception as error:
                if not refusals.found:
                    raise
                self._refuse("capture", Error(
                    f"[analyze] forward raises {type(error).__name__}: {error}, maybe because of "
                    f"the value that a refused call got. Change the refused calls first."),
                    " The analysis ends here.")
                self._rows += recorded_nodes(refusals.graph)
                break
        refused = Counter(AnalyzedOperation.refused_by(
            one.operation, one.message, place_text(one.place), one.module,
            "backward" if one.backward else "forward") for one in refusals.found)
        self._rows += [replace(row, count=count) for row, count in refused.items()]
        if captured is not None:
            with plain_torch():
                self._rows += analyzed_nodes(captured)
        title = f"{self._name}, {'training' if self._training else 'inference'}"
        return Analysis(title, tuple(self._rows), *self._training_facts(captured))

    def _wrap(self, model, options) -> Wrapped:
        try:
            return Wrapped(model, self._user_model, options, self._training,
                           copied(self._optimizer))
        except Error as error:
            self._refuse(type(self._optimizer).__name__, error)
            return Wrapped(model, self._user_model, options, self._training, None)

    def _capture(self, refusals):
        from poptorch._capture.capturing import capture  # heavy parts of torch

        wrapped, (args, kwargs) = self._wrapped, self._args
        options = wrapped.options
        groups = Groupings(wrapped.model, options.replication_factor,
                           lambda: False).weight_groups()
        spec = settings.step_spec(options, self._training, groups)
        arguments = Arguments(wrapped.model, args, kwargs, spec)
        return capture(wrapped.model, *arguments.micro_batch(args, kwargs),
                       training=self._training, grouped=frozenset(dict(groups)),
                       location_excludes=options.source_location_excludes,
                       mode_of=wrapped.modes.mode_of, replicas=spec.replicas,
                       accumulation=spec.accumulation, called=arguments.called, takes_meta=True,
                       refusals=refusals)

    def _refuse(self, operation: str, error: Error, more: str = "") -> None:
        text, _, place = error.message.partition("\n  at ")
        location, _, module = place.partition(", module ")
        self._rows.append(AnalyzedOperation.refused_by(operation, text + more, location,
                                                       module.strip('"')))

    def _training_facts(self, captured) -> tuple[str | None, dict[str, str]]:
        if not self._training or captured is None:
            return None, {}
        loss = next((spec.node.meta for spec in captured.outputs if spec.kind == "loss"), None)
        trained = {spec.name for spec in captured.outputs if spec.kind == "grad"}
        held = None if self._optimizer is None else {
            id(p) for group in self._optimizer.param_groups for p in group["params"]}
        names = {id(spec.tensor): spec.name for spec in captured.inputs}
        reasons = {}
        for name, parameter in parameters(self._user_model):
            if not parameter.requires_grad:
                reasons[name] = "requires_grad is False"
            elif held is not None and id(parameter) not in held:
                reasons[name] = "the optimizer does not have it"
            elif loss is None:
                reasons[name] = "no loss was found"
            elif names.get(id(parameter)) not in trained:
                reasons[name] = "the loss does not depend on it"
        where = loss and (place_text(loss["place"], loss["module"]) or "forward")
        return where, reasons

"""The index of all calls of torch: the step and the table that handle each call.

``python -m poptorch how NAME`` prints this; docs/internals/torch_calls.md explains the steps.
"""

import inspect
import os
from typing import NamedTuple

import torch

from poptorch._base.extension_check import PACKAGE
from poptorch._base.torch_private import tracing as private
from poptorch._capture.decompose.functional_ops import functional_form, mutated_arguments
from poptorch._capture.decompose.table import DECOMPOSITIONS
from poptorch._capture.functions.mode import HANDLERS
from poptorch._capture.graph.source_location import Places
from poptorch._capture.graph.views import SPLITS, VIEWS, is_view
from poptorch._capture.record.recorder import Recorder
from poptorch._translate import call_names
from poptorch._translate.nodes import Nodes, opaque
from poptorch.errors import Error

_PACKAGE = str(PACKAGE)

# What the recorder's methods do with an operation.
_RECORDED = {
    "_same_values": "gives another name to the same values: no node",
    "_query": "asks about a tensor: no node",
    "_device": "asks about a tensor: no node",
    "_composite": "decomposed by PyTorch (a composite operation)",
    "_decomposed": "decomposed",
    "_decomposed_in_place": "its functional form is decomposed, and the result written back",
    "_lift": "a constant",
    "_random": "recorded with a number of its own for the random generator",
    "_data_dependent": "recorded, if no value is needed",
    "_in_place": "recorded",
    "_plain": "recorded",
    "_native_batch_norm": "recorded, with the changes of the statistics",
}
# The overloads of these are taken apart before anything is recorded: the rest does not meet them.
_ENDS = frozenset({"_same_values", "_query", "_device", "_composite", "_decomposed",
                   "_decomposed_in_place"})


class Step(NamedTuple):
    """What one step does with an operation or function; ``where`` is the ``file:line function``
    that does it, empty for torch's own or a table."""

    step: str
    what: str
    where: str = ""


def functions_named(name: str) -> dict[str, Step]:
    """The handled functions of torch's Python API of a name, by their full name."""
    found = {}
    for function, handler in HANDLERS.items():
        own = getattr(function, "__name__", "")
        full = f"{getattr(function, '__module__', None) or 'torch'}.{own}"
        if name in (own, full):
            found[full] = Step("function", "handled while forward runs", _place(handler))
    return found


def overloads_named(name: str) -> list[private.OpOverload]:
    """The ATen overloads of a name: ``add``, ``aten.add`` or ``aten.add.Tensor``. Those with
    ``out=`` only by their full name."""
    namespace, _, rest = name.rpartition("aten.")
    base, _, overload = (rest if namespace == "" else name).partition(".")
    packet = getattr(torch.ops.aten, base, None) if base.isidentifier() else None
    if packet is None:
        return []
    overloads = private.overloads_of(packet)
    if overload:
        return [op for op in overloads if op._overloadname == overload]
    return [op for op in overloads if not _writes_out(op)]


def steps_of(overload) -> list[Step]:
    """What is done with an ATen overload, step by step."""
    handler = Recorder(None, None, Places()).handler_of(overload)
    name = getattr(handler, "__name__", "")
    what = _RECORDED.get(name, "handled while it is recorded")
    decomposed = {"_decomposed": overload, "_decomposed_in_place": functional_form(overload)}
    code = DECOMPOSITIONS.get(decomposed.get(name), handler)
    if torch.Tag.dynamic_output_shape in overload.tags:
        return [Step("record", "refused: the shape of the result depends on values")]
    steps = [Step("record", what, "" if name in _RECORDED and code is handler else _place(code))]
    if name in _ENDS or name not in _RECORDED:
        return steps
    target = overload
    if mutated_arguments(overload):
        target = functional_form(overload)
        steps.append(Step("functionalize", f"becomes {target}" if target is not None
                          else "refused: it has no functional form"))
    elif is_view(overload):
        inverse = VIEWS.get(overload) or SPLITS.get(overload)
        steps.append(Step("functionalize", "a view; a write to it changes what it views" if inverse
                          else "a view; a write to it is refused", _place(inverse)))
    if target is not None:
        steps.append(_translated(target))
    return steps


def _writes_out(overload) -> bool:
    return any(argument.is_out for argument in overload._schema.arguments)


def _translated(target) -> Step:
    how = Nodes(None).rule_for(target)
    if how is opaque.emit:
        return Step("translate", "opaque: torch's own operator, called by the device")
    row = getattr(how, "row", None)
    if row is not None:
        return Step("translate", f"the op {row['name']}")
    return Step("translate", "by a rule", _place(how))


def _place(function) -> str:
    """``file:line name`` of a function of this package; empty for others."""
    function = inspect.unwrap(getattr(function, "func", function)) if function else None
    code = getattr(function, "__code__", None)
    if code is None or not code.co_filename.startswith(_PACKAGE + os.sep):
        return ""
    file = os.path.relpath(code.co_filename, os.path.dirname(_PACKAGE))
    return f"{file}:{code.co_firstlineno} {function.__name__}"


def described(name: str) -> str:
    """What is done with a function, operation or layer, as text; first whether it is supported."""
    lines = _lines(name)
    layer = call_names.layer_named(name)
    if not lines:
        bases = (base for base in call_names.operations_of(name) if _lines(base))
        lines = next(map(_lines, bases), [])
    if layer is not None:
        head = [f"torch.nn.{layer.__name__}: poptorch traces its forward"]
        return "\n".join([*head, *lines])
    if not lines:
        if call_names.function_named(name) is None:
            raise Error(f"[how] {name!r} is not known: it is neither a function or layer of torch "
                        f"nor an operation of ATen.{call_names.near(name)} Give a name such as "
                        f"dropout, Conv2d, addcmul or aten.add.Tensor.")
        return f"{name}: poptorch traces torch's function, which calls others"
    return "\n".join(lines)


def _lines(name: str) -> list[str]:
    functions, overloads = functions_named(name), overloads_named(name)
    lines = []
    for full, step in sorted(functions.items()):
        lines += [full, _line(step)]
    steps = {overload: steps_of(overload) for overload in overloads}
    for overload, found in steps.items():
        lines += [str(overload), *map(_line, found)]
    if not lines:
        return []
    refusals = [_refusal(found) for found in steps.values()]
    is_supported = bool(functions) or not all(refusals)
    return [f"{name}: {'supported' if is_supported else f'not supported: {refusals[0]}'}", *lines]


def _refusal(steps: list[Step]) -> str:
    """Why an operation is refused, in words; empty if it is not."""
    told = [step.what for step in steps if step.what.startswith("refused")]
    return told[0].removeprefix("refused: ") if told else ""


def _line(step: Step) -> str:
    return f"  {step.step}: {step.what}" + (f" ({step.where})" if step.where else "")

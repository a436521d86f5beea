"""Forms of ``step()`` as a file has them: text, by which an optimizer's forms are found again."""

from dataclasses import dataclass

import torch

from poptorch._base import schema
from poptorch._own_step.record import Trace


@dataclass
class SavedForm:
    """A form of a program from a file.

    Attributes:
        calls: a line for each call, and one for each state that becomes another tensor.
        classes: as :attr:`Trace.classes`.
    """

    calls: list[str]
    classes: list[int]

    @classmethod
    def of(cls, trace: Trace) -> "SavedForm":
        return cls(_lines(trace), list(trace.classes))

    @classmethod
    def from_data(cls, data: list) -> list["SavedForm"]:
        """The forms in plain data; a ValueError for data of another form."""
        schema.check(data, [{"calls": [str], "classes": [int]}], "optimizer.forms")
        if any({*one["classes"]} != {*range(len({*one["classes"]}))} for one in data):
            raise ValueError("optimizer.forms has numbers that are not the first ones")
        return [cls(**one) for one in data]


def difference(trace: Trace, forms: list[SavedForm]) -> str:
    """Where a form differs first from the most similar one of ``forms``."""
    lines = _lines(trace)

    def same(form: SavedForm) -> int:
        pairs = zip(lines, form.calls)
        return next((number for number, (one, other) in enumerate(pairs) if one != other),
                    min(len(lines), len(form.calls)))

    other = max(forms, key=same).calls if forms else []
    at = max(map(same, forms), default=0)
    own, saved = (part[at] if at < len(part) else "nothing" for part in (lines, other))
    place = trace.calls[at].place if at < len(trace.calls) else None
    where = f" at {place[0]}:{place[1]}" if place else ""
    return f"{own}{where}, where the file has {saved}"


def _lines(trace: Trace) -> list[str]:
    names = {index: " ".join(what) for what, index in trace.inputs.items()}
    made = 0
    lines = []
    for call in trace.calls:
        text = f"{_function_name(call.func)}{_text(call.template, names)}"
        for index in call.outputs:
            if index not in names:
                names[index] = f"%{made}"
                made += 1
        lines.append(text + "".join(f" -> {names[index]}" for index in call.outputs))
    ends = [f"state {path} = {names[index]}" for path, index in sorted(trace.outputs.items())
            if trace.inputs.get(("state", path)) != index]
    return lines + ends


def _function_name(func) -> str:
    if type(func).__name__ == "method-wrapper":  # of an attribute of tensors
        return f"{func.__self__.__qualname__}.{func.__name__}"
    name = getattr(func, "__qualname__", None) or getattr(func, "__name__", repr(func))
    module = getattr(func, "__module__", None)
    return f"{module}.{name}" if module else name


def _text(template, names: dict[int, str]) -> str:
    if type(template) is int:
        return names[template]
    kind, *rest = template
    if kind == "number":
        return "number" if not rest else f"number{rest[0]} {rest[1]}"
    if kind is tuple or kind is list:
        inner = ", ".join(_text(one, names) for one in rest)
        return f"({inner})" if kind is tuple else f"[{inner}]"
    if kind is dict:
        return "{" + ", ".join(f"{key}={_text(one, names)}" for key, one in rest) + "}"
    inner = ", ".join(map(repr, rest))
    return inner if kind in (int, float, bool, str, torch.dtype) else f"{kind.__name__}({inner})"

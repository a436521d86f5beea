"""ATen ops without a row: carried as one opaque ``aten`` op (docs/internals/opaque_ops.md)."""

import itertools

import torch

from poptorch import _C
from poptorch._base.torch_private.basic import pytree
from poptorch._base.types import ir_dtype, ir_type
from poptorch._capture.decompose.functional_ops import ORIGINALS
from poptorch._translate.complex_numbers import is_value, pairs_of
from poptorch.errors import Error

_DTYPES = {torch.int64: "i64", torch.float64: "f64"}


def emit(e, node, *args, **kwargs):
    """Appends the opaque op of a node: its arguments by schema, tensors by operand number."""
    target = ORIGINALS.get(node.target, node.target)
    schema = target._schema
    writer = _Arguments()
    pairs = zip(by_schema(schema, args, kwargs), by_schema(schema, node.args, node.kwargs))
    attrs = {"args": list(itertools.starmap(writer.write, pairs)), "overload": target.name(),
             **writer.notes()}
    if "salt" in node.meta:
        _add_generator(e, node, schema, writer, attrs)
    vals, structure = pytree.tree_flatten(node.meta["val"])
    types = [ir_type(v) if isinstance(v, torch.Tensor) else ("f32", [0]) for v in vals]
    results = e.ops("aten", writer.operands, attrs, types)
    return pytree.tree_unflatten(results, structure)


def by_schema(schema, args, kwargs) -> list:
    """All arguments in the order of the schema, with its defaults where none is given."""
    return [*args, *(kwargs.get(argument.name, argument.default_value)
                     for argument in schema.arguments[len(args):])]


def _add_generator(e, node, schema, writer, attrs) -> None:
    names = [a.name for a in schema.arguments]
    if "generator" not in names:
        raise Error(f"[translate] {schema.name} draws random numbers and takes no generator, so "
                    f"the device cannot repeat them. Use an overload with a generator.")
    writer.operands.append(e.rng())
    attrs["args"][names.index("generator")] = f"%rng{len(writer.operands) - 1}"
    attrs["salt"] = e.salt(node.meta["salt"])


class _Arguments:
    """Writes arguments as attributes and collects the operands they refer to."""

    def __init__(self):
        self.operands: list = []
        self._given: list[torch.Tensor] = []  # the user's tensors, without data

    def notes(self) -> dict:
        """What the user's operands are, where the device's may differ: those of int32, and not of
        the int64 it stands for, and the strides of all, unless all are row-major."""
        int32 = [i for i, given in enumerate(self._given) if given.dtype is torch.int32]
        strides = [step for given in self._given for step in _strides(given)]
        is_plain = all(given.is_contiguous() for given in self._given)
        return {**({"int32": int32} if int32 else {}),
                **({} if is_plain else {"strides": strides})}

    def write(self, value, source):
        """``source`` is the same argument of the captured node."""
        if is_value(value):
            kind = "complex" if source.meta["val"].is_complex() else ""
            return f"%{kind}{self._operand(pairs_of(value), source)}"
        if isinstance(value, (list, tuple)):
            return [self.write(*pair) for pair in zip(value, source)]
        if isinstance(value, torch.dtype):
            if value.is_complex:
                return str(value).removeprefix("torch.")
            return _C.DType(_DTYPES.get(value) or ir_dtype(value))
        if isinstance(value, str):
            return "%" + value if value.startswith("%") else value
        if isinstance(value, torch.device):
            return "cpu"
        if isinstance(value, (torch.layout, torch.memory_format)):
            return str(value).removeprefix("torch.")
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, complex):
            return [value.real, value.imag]
        raise Error(f"[translate] an argument of type {type(value).__name__} cannot be carried to "
                    f"the device: {value!r}. Use numbers, strings, tensors or lists of them.")

    def _operand(self, value, source) -> int:
        given = source.meta["val"]
        for i, (operand, other) in enumerate(zip(self.operands, self._given)):
            if operand == value and other.dtype is given.dtype \
                    and other.stride() == given.stride():
                return i
        self.operands.append(value)
        self._given.append(given)
        return len(self.operands) - 1


def _strides(given: torch.Tensor) -> list[int]:
    """Those of an operand, of the pairs if it is complex."""
    return [*(2 * step for step in given.stride()), 1] if given.is_complex() \
        else list(given.stride())

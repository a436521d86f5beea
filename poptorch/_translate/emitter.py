"""Appends ops to one IR graph, with the source position and notes of the node at hand."""

from dataclasses import dataclass

import torch

from poptorch import _C
from poptorch._base.types import host_tensor, ir_dtype, ir_type, torch_dtype
from poptorch._translate import float16_partials, rounding

# The only ops that carry an annotation (none: any op), by its name.
_CARRIERS = {name: frozenset(ops) for name, ops in _C.annotations().items()}


@dataclass(frozen=True)
class Precision:
    """How the device computes 16-bit numbers: whether it rounds to them by chance, and keeps sums
    of products in float16 where no annotation ``partials_type`` says something else."""

    is_stochastic: bool = False
    has_float16_partials: bool = False


DEFAULT = Precision()


class Emitter:
    """Writes one graph of a module.

    ``place`` (file, line, module path), ``part`` (``forward``, ``backward`` or ``update``) and
    ``notes`` are for the next ops; notes are attributes of every op that may carry them.
    ``has_advanced_rng``: the graph, or one that it runs, binds the next random state.
    ``is_conditional``: each replica decides for itself whether it runs the graph.
    """

    def __init__(self, module, graph, precision: Precision = DEFAULT):
        self.module = module
        self.graph = graph
        self.precision = precision
        self._rounds_alike = False
        self.has_advanced_rng = False
        self._common_rng = None
        self.given_rng = None  # in place of the state
        self.place = None
        self.part = "forward"
        self.notes: dict = {}
        self.salts: dict[int, int] = {}
        self.is_conditional = False
        self._states: dict[str, object] = {}
        self._names: set[str] = set()

    def op(self, name: str, *operands, types=None, names=None, **attrs):
        """Appends an op with one result and returns that value."""
        return self.ops(name, list(operands), attrs, types, names)[0]

    def ops(self, name: str, operands: list, attrs: dict, types=None, names=None) -> list:
        """Appends an op and returns all its results."""
        if self._has_float16_partials() and float16_partials.applies(name, operands):
            return float16_partials.emit(self, name, operands, attrs)
        if self.notes:
            attrs = {**attrs, **{key: value for key, value in self.notes.items()
                                 if not _CARRIERS[key] or name in _CARRIERS[key]}}
        return self._append(name, operands, attrs, types, self.place, names)

    def plain(self, name: str, operands: list, attrs: dict, types=None, names=None) -> list:
        """Appends an op without notes: structure, not computation."""
        return self._append(name, operands, attrs, types, None, names)

    def loop(self, body: str, count: int, operands: list) -> list:
        """Appends a loop whose body has ops of several parts of the step."""
        attrs = {"body": _C.GraphRef(body), "count": count}
        types = [(operand.dtype, list(operand.sizes)) for operand in operands]
        return self.graph.op("loop", operands, attrs, types, None, None)

    def _append(self, name: str, operands: list, attrs: dict, types, place, names) -> list:
        attrs = {"part": self.part, **attrs}
        if self.precision.is_stochastic and rounding.rounds(name, attrs):
            narrow = rounding.result_types(name, operands, attrs, types)
            if narrow:
                return self._rounded_by_chance(name, operands, attrs, narrow,
                                               types is not None, place, names)
        return self.graph.op(name, operands, attrs, types, place, names)

    def _rounded_by_chance(self, name, operands, attrs, narrow, is_typed, place, names) -> list:
        """The op on float32, its results rounded to the types ``narrow``."""
        notes = {key: attrs[key] for key in attrs if key in _CARRIERS and not _CARRIERS[key]}

        def wide(value):
            if value is None or not rounding.is_half(value.dtype):
                return value
            return self.graph.op("cast", [value], {**notes, "dtype": _C.DType("f32")}, None,
                                 place)[0]

        operands = [wide(value) for value in operands]
        if name == "cast" and operands[0].dtype == "f32":
            results = operands
        else:
            types = [("f32" if rounding.is_half(dtype) else dtype, sizes)
                     for dtype, sizes in narrow] if is_typed else None
            attrs = {key: rounding.widened(attr) for key, attr in attrs.items()}
            results = self.graph.op(name, operands, attrs, types, place)
        rng = self._rounding_rng(name == "all_reduce")
        names = names or [None] * len(results)
        return [self._round_by_chance(value, rng, {**notes, "dtype": _C.DType(dtype)}, place, own)
                if rounding.is_half(dtype) else value
                for value, (dtype, _), own in zip(results, narrow, names)]

    def _round_by_chance(self, value, rng, attrs: dict, place, name):
        attrs = {**attrs, "salt": self._own_salt()}
        return self.graph.op("stochastic_cast", [value, rng], attrs, None, place, [name])[0]

    def _rounding_rng(self, is_common: bool = False):
        """The random state to round with; ``is_common``: of a value that all replicas have."""
        if not is_common and not self._rounds_alike:
            return self.rng()
        if self._common_rng is None:
            # Each has its number and its counter in it; the sum over all replicas has neither.
            self._common_rng = self.plain("all_reduce", [self.rng()], {"op": "sum"})[0]
        return self._common_rng

    def rounds_itself(self, name: str, *operands):
        """Appends an op that rounds as it goes on, and is given what it needs for chance."""
        if not self.precision.is_stochastic:
            return self.op(name, *operands)
        return self.op(name, *operands, self._rounding_rng(), salt=self._own_salt())

    def _has_float16_partials(self) -> bool:
        own = self.notes.get("partials_type")
        return self.precision.has_float16_partials if own is None else own == "half"

    def share_rounding(self, replicas: int) -> None:
        """From now on replicas round alike: what they compute is the same in all of them."""
        self._rounds_alike = self.precision.is_stochastic and replicas > 1

    def constant(self, value, dtype: torch.dtype):
        """A 0-d constant of a Python number, or the constant of a whole tensor."""
        if not isinstance(value, torch.Tensor):
            value = torch.tensor(value, dtype=dtype)
        value = host_tensor(value, "constant")
        if value.is_complex():
            value = torch.view_as_real(value)
        raw = value.reshape(-1).view(torch.uint8).numpy()
        return self.graph.constant(ir_dtype(value.dtype), list(value.shape), raw,
                                   annotations={"part": self.part})

    def cast(self, value, dtype: torch.dtype):
        """``value`` in the (narrowed) dtype; the value itself when it has it already."""
        name = ir_dtype(dtype)
        if value.dtype == name:
            return value
        return self.op("cast", value, dtype=_C.DType(name))

    def reshape(self, value, sizes):
        """``value`` with other sizes of equal product; the value itself when they are equal."""
        sizes = list(sizes)
        if list(value.sizes) == sizes:
            return value
        return self.op("reshape", value, size=sizes)

    def expand(self, value, sizes):
        """``value`` broadcast to ``sizes``."""
        sizes = list(sizes)
        if list(value.sizes) == sizes:
            return value
        return self.op("expand", value, size=sizes)

    def slice(self, value, dim: int, start: int, end: int, step: int = 1):
        """Elements ``start`` to ``end`` (all within range) of one dimension."""
        if start == 0 and end == value.sizes[dim] and step == 1:
            return value
        return self.op("slice", value, dim=dim, start=start, end=end, step=step)

    def full(self, sizes, value, dtype: torch.dtype):
        """A tensor of one value, which the (narrowed) dtype must hold."""
        value = host_tensor(torch.tensor(value, dtype=dtype), "fill_value").item()
        return self.op("full", size=list(sizes), dtype=_C.DType(ir_dtype(dtype)),
                       fill_value=value)

    def synthetic(self, name: str, val: torch.Tensor):
        """Made-up values of an input: N(0, 1), or 0 where it is not of floating point."""
        dtype, sizes = ir_type(val)
        attrs = {"size": sizes, "dtype": _C.DType(dtype)}
        if not val.is_floating_point() and not val.is_complex():
            zero = torch.zeros((), dtype=val.dtype).item()
            return self.plain("full", [], {**attrs, "fill_value": zero}, names=[name])[0]
        return self.plain("random_normal", [self.rng()], {**attrs, "salt": self._own_salt()},
                          names=[name])[0]

    def state(self, path: str, role: str, dtype: str, sizes: list[int],
              shard_of: list[int] | None = None):
        """The value of a named state at graph entry: one op for each state and graph. With
        ``shard_of`` a replica has a part of a tensor of these sizes."""
        if path not in self._states:
            attrs = {"path": path, "role": role}
            if shard_of is not None:
                attrs["shard_of"] = list(shard_of)
            self._states[path] = self.named("state", path, attrs, dtype, sizes)
        return self._states[path]

    def named(self, op: str, name: str, attrs: dict, dtype: str, sizes: list[int]):
        """Appends a source op (no operands, one result) whose value has a readable name."""
        unique, number = name, 1
        while unique in self._names:
            number += 1
            unique = f"{name}.{number}"
        self._names.add(unique)
        return self.plain(op, [], attrs, [(dtype, sizes)], [unique])[0]

    def rng(self):
        """The value of the random state that all random ops of the graph use."""
        return self.given_rng or self.state("rng", "rng", "i32", [4])

    def advance_rng(self) -> None:
        """Binds the next random state, once, if this graph has used the present one so far."""
        if "rng" in self._states and not self.has_advanced_rng:
            following = self.plain("rng_advance", [self.rng()], {"part": "update"})[0]
            self.plain("assign", [following], {"path": "rng", "part": "update"}, [])
            self.has_advanced_rng = True

    def salt(self, drawn: int) -> int:
        """A small number for each distinct salt that capture drew, in order of first use."""
        return self.salts.setdefault(drawn, len(self.salts))

    def _own_salt(self) -> int:
        return self.salt(-1 - len(self.salts))  # no salt that capture draws is negative

    def dtype_of(self, value) -> torch.dtype:
        """The torch dtype of a value."""
        return torch_dtype(value.dtype)

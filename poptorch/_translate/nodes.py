"""FX nodes -> ops of one graph: by a rule, by the op row of that ATen name, or as an opaque op."""

import functools
import operator
from collections.abc import Mapping
from types import MappingProxyType

import torch

from poptorch import _C
from poptorch._base.types import ir_dtype, ir_type, narrowed, real_dtype, unnarrowed
from poptorch._capture import refused_node, torch_takes
from poptorch._capture.graph.regions import region_of
from poptorch._translate import complex_numbers, integer_ranges, loops, opaque
from poptorch._translate.complex_numbers import Complex, pairs_of
from poptorch._translate.emitter import Emitter
from poptorch._translate.rules.complex_numbers import COMPLEX_RULES
from poptorch._translate.rules.table import RULES
from poptorch.errors import Error

# Arguments of ATen schemas that say nothing about the values computed.
_IGNORED = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking",
                      "generator", "sparse", "implicit", "half_to_float", "copy",
                      "like_query"})

# Rows whose results have the dtype of their operands, so that operands are cast to the result's.
_KEEP_DTYPE = frozenset({
    "isnan", "isinf", "isfinite", "logical_not", "any", "all", "gather", "scatter", "scatter_add",
    "index_select", "embedding", "argmax", "argmin"})

# Rows whose operands are all promoted, whole numbers too.
_PROMOTE = frozenset({"mse_loss", "smooth_l1_loss", "huber_loss", "mse_loss_backward",
                      "smooth_l1_loss_backward", "huber_loss_backward"})

# Operations whose rules make floating-point attributes of numbers.
_FLOAT_ATTRIBUTES = frozenset(f"aten::{name}" for name in (
    "add", "sub", "rsub", "clamp", "clamp_min", "clamp_max", "threshold"))

# Rows that compute in floating point alone; of other numbers PyTorch's own operator does.
_FLOAT_ONLY = frozenset({
    "avg_pool2d", "avg_pool3d", "convolution", "max_pool2d", "max_pool3d", "upsample_nearest2d",
    "upsample_bilinear2d", "upsample_bicubic2d"})


class Nodes:
    """Translates the nodes of a captured graph, in order. ``values`` has what each became: a value,
    or a list of them; ``ranges`` the range of its integers, or a list of them."""

    def __init__(self, emitter: Emitter, has_blocks: bool = False):
        self.emitter = emitter
        self.has_blocks = has_blocks
        self.values: dict = {}
        self.ranges: dict = {}
        self._rows = rows_by_aten()
        self._rules: dict = {}

    def translate(self, node: torch.fx.Node) -> None:
        """Appends the ops of one ``call_function`` node. If its row refuses the operands, the error
        has the user's place, and PyTorch's words and class where it refuses them too."""
        if node.target is operator.getitem:
            of, index = node.args
            self.values[node] = self.values[of][index]
            if of in self.ranges:
                self.ranges[node] = self.ranges[of][index]
            return
        emitter, meta = self.emitter, node.meta
        emitter.place = _source_place(meta)
        emitter.part = part_of(node)
        emitter.notes = _notes(meta, self.has_blocks)
        try:
            if region_of(node) is not None:
                self.values[node] = loops.emit(self, node)
                return
            _check_layout(node)
            self.values[node] = self._emit_in_64_bits(node) if self._needs_64_bits(node) \
                else self.emit(node)
        except Exception as error:
            refused = refused_node(error, node)
            if refused is error:
                raise
            raise refused from error

    def narrowed_value(self, node: torch.fx.Node):
        """The value of a node for what takes no 64 bits; the program stops where one does not fit.
        """
        value, e = pairs_of(self.values[node]), self.emitter
        if not _is_wide(value):
            return value
        before, e.place = e.place, _source_place(node.meta)
        found = e.op("narrowing_cast", value)
        e.place = before
        return found

    def _needs_64_bits(self, node) -> bool:
        """Whether integers that a node takes or gives may not fit into int32; notes their ranges.
        """
        if narrowed(torch.int64) is torch.int64:
            return False
        self.ranges[node] = integer_ranges.of_results(node, self.ranges)
        if not _takes_64_bits(node):
            return False
        operands = [x.meta["val"] for x in node.all_input_nodes]
        if not any(map(_is_int64, (*_parts(node), *operands))):
            return False
        return (any(_is_wide(self.values[x]) for x in node.all_input_nodes)
                or not all(map(integer_ranges.fits_int32, _listed(self.ranges[node])))
                or integer_ranges.has_large_number(node))

    def _emit_in_64_bits(self, node):
        """Like ``_emit``; results that int32 holds in any case are narrowed."""
        with unnarrowed(torch.int64):
            values = self.emit(node)
        if isinstance(values, tuple):
            values = list(values)
        found = [self.emitter.cast(value, torch.int64)
                 if _is_wide(value) and integer_ranges.fits_int32(range_) else value
                 for value, range_ in zip(_listed(values), _listed(self.ranges[node]))]
        return found if isinstance(values, list) else found[0]

    def complex_value(self, node) -> Complex:
        """The value of a complex tensor."""
        value = self.values[node]
        if not isinstance(value, Complex):
            value = self.values[node] = Complex(self.emitter, pairs=value)
        return value

    def emit(self, node):
        """Appends the ops of an operation and returns its value, or a list of them."""
        part = complex_numbers.part_of_view(node)
        if part is not None:
            return self.complex_value(part[0]).parts[part[1]]
        if not complex_numbers.has_complex(node):
            return self._emit_real(node)
        rule, found = COMPLEX_RULES.get(node.target._schema.name), NotImplemented
        if rule is not None:
            args, kwargs = map(self._operands, (node.args, node.kwargs))
            found = rule(self.emitter, node, *args, **kwargs)
        if found is not NotImplemented:
            return found
        if complex_numbers.is_linear(node):
            return complex_numbers.emit_linear(self, node)
        if complex_numbers.is_product(node):
            return complex_numbers.emit_product(self, node)
        return self._emit_by(opaque.emit, node)

    def _emit_real(self, node):
        how = self._rules.get(node.target)
        if how is None:
            how = self._rules[node.target] = self.rule_for(node.target)
        if narrowed(torch.int64) is torch.int64 and _loses_bits(how, node):
            how = opaque.emit
        return self._emit_by(how, node)

    def _emit_by(self, how, node):
        args, kwargs = map(self._operands, (node.args, node.kwargs))
        try:
            value = how(self.emitter, node, *args, **kwargs)
            _check_type(node, value)
            return value
        except (Error, AssertionError):  # rows have loops over windows, images, rows
            if not (_is_of_nothing(node) or _is_gradient_of_nothing(node)) or not torch_takes(node):
                raise
            return _zeros(self.emitter, node)

    def rule_for(self, target):
        """What translates the nodes of an overload."""
        schema = target._schema
        full = target.name()
        base = schema.name.removeprefix("aten::")
        row = self._rows.get(full) or self._rows.get(schema.name)
        # A rule for `max` holds for all its overloads but those that a row of another name takes.
        has_own_row = full in self._rows and row["name"] != base
        rule = RULES.get(full) or (None if has_own_row else RULES.get(schema.name))
        if rule is not None:
            return rule
        return _RowRule(row, schema) if row is not None else opaque.emit

    def _operands(self, arguments):
        if isinstance(arguments, dict):
            return {name: self._operand(argument) for name, argument in arguments.items()}
        return tuple(map(self._operand, arguments))

    def _operand(self, argument):
        if isinstance(argument, torch.fx.Node):
            if _is_complex(argument.meta["val"]):
                return self.complex_value(argument)
            if not _is_int64(argument.meta["val"]):
                return self.values[argument]
            if narrowed(torch.int64) is torch.int64:
                return self.emitter.cast(self.values[argument], torch.int64)
            return self.narrowed_value(argument)
        if isinstance(argument, (list, tuple)):
            return [self._operand(a) for a in argument]
        return argument


@functools.cache  # the rows are compiled in; to read them takes milliseconds
def rows_by_aten() -> Mapping[str, dict]:
    """The op rows by the ATen names that they translate 1:1."""
    return MappingProxyType({aten: row for row in _C.op_table() for aten in row["aten"]})


class _RowRule:
    """Translates one ATen overload by its op row: operands and attributes by position and name."""

    def __init__(self, row: dict, schema):
        self.row = row
        self.schema = schema
        self.attr_names = {name for name, *_ in row["attrs"]}
        self._numbers = {name for name, default, *_ in row["attrs"] if type(default) is float}
        self.operand_names = [name.rstrip("?*") for name in row["operands"]]

    def __call__(self, e: Emitter, node, *args, **kwargs):
        if self.row["name"] in _FLOAT_ONLY and not _result_dtype(node).is_floating_point:
            return opaque.emit(e, node, *args, **kwargs)
        operands, attrs = [], {}
        values = opaque.by_schema(self.schema, args, kwargs)
        for argument, value in zip(self.schema.arguments, values):
            self._place(e, node, argument, value, operands, attrs)
        if self.row["random"]:
            self._random(e, node, operands, attrs)
        if "index_dtype" in self.attr_names:
            attrs["index_dtype"] = _C.DType(ir_dtype(torch.int64))
        elif "dtype" in self.attr_names and not _result_dtype(node).is_floating_point:
            attrs["dtype"] = _C.DType(ir_dtype(_result_dtype(node)))  # sums widen integers
        if self.row["name"] in _PROMOTE:
            return _promoted(e, node, self.row["name"], operands, attrs)
        if self.row["name"] not in _KEEP_DTYPE:
            operands = _with_result_dtype(e, node, operands)
        values = e.ops(self.row["name"], operands, attrs)
        return values[0] if len(self.schema.returns) == 1 else values

    def _place(self, e, node, argument, value, operands, attrs):
        name = argument.name
        if name in self.attr_names and not isinstance(value, _C.Value):
            is_number = name in self._numbers and isinstance(value, (bool, int))
            attrs[name] = float(value) if is_number else as_attr(value)
        elif name in _IGNORED:
            pass
        elif isinstance(value, _C.Value):
            operands.append(value)
        elif isinstance(value, list) and "Tensor" in str(argument.type):
            operands.extend(value)
        elif value is None and "Tensor" in str(argument.type):
            operands.append(None)
        elif isinstance(value, (int, float)) and len(operands) < len(self.operand_names):
            operands.append(e.constant(value, _result_dtype(node)))
        elif value != argument.default_value:
            raise Error(f"[translate] {self.schema.name} was called with {name}={value!r}; the op "
                        f"`{self.row['name']}` has no such attribute. Leave {name} at its "
                        f"default {argument.default_value!r}.")

    def _random(self, e, node, operands, attrs):
        salt = attrs.get("salt", node.meta.get("salt", 0))
        rng = operands.pop() if self.schema.arguments[-1].name == "rng" else None
        if rng is not None:  # another program draws the same numbers
            attrs["salt"] = salt
            return operands.append(rng)
        attrs["salt"] = e.salt(salt)
        needs = attrs.get("dropout_p", 1.0) > 0
        operands.append(e.rng() if needs else None)


def as_attr(value):
    """A Python argument as an attribute: dtypes are narrowed, lists stay lists."""
    if isinstance(value, torch.dtype):
        return _C.DType(ir_dtype(value))
    if isinstance(value, (list, tuple)):
        return [as_attr(v) for v in value]
    return value


def _result_dtype(node) -> torch.dtype:
    val = node.meta["val"]
    return (val[0] if isinstance(val, (tuple, list)) else val).dtype


def _with_result_dtype(e, node, operands):
    """Casts floating and integer operands whose dtype is not the result's, as in promotion."""
    val = node.meta["val"]
    if isinstance(val, (tuple, list)) or not val.dtype.is_floating_point:
        return operands
    target = narrowed(val.dtype)
    if target in (torch.float16, torch.bfloat16):
        return operands
    return [e.cast(v, target) if isinstance(v, _C.Value) and _is_other_float(v, target) else v
            for v in operands]


def _promoted(e, node, name: str, operands: list, attrs: dict):
    """The op in the dtype of all its operands together, its result in the node's."""
    dtype = functools.reduce(torch.promote_types, map(e.dtype_of, operands))
    found = e.op(name, *(e.cast(v, dtype) for v in operands), **attrs)
    return e.cast(found, _result_dtype(node))


def _source_place(meta) -> tuple[str, int, str]:
    place = meta.get("place")
    return place[0] if place else "", place[1] if place else 0, meta.get("module") or ""


def _takes_64_bits(node) -> bool:
    """Whether an operation computes int64 as PyTorch does, where it is not narrowed."""
    return node.target.namespace in ("aten", "prims") or node.target._schema.name in (
        "poptorch::elements", "poptorch::elements_scatter")


def _loses_bits(how, node) -> bool:
    """Whether the op would have a number of 64 bits as an attribute, which is a float64."""
    takes_floats = isinstance(how, _RowRule) or node.target._schema.name in _FLOAT_ATTRIBUTES
    return takes_floats and any(map(_is_int64, _parts(node))) \
        and integer_ranges.has_inexact_number(node)


def _is_wide(value) -> bool:
    """Whether an integer has 64 bits in a program that narrows those of others."""
    return (isinstance(value, _C.Value) and value.dtype == "i64"
            and narrowed(torch.int64) is not torch.int64)


def _is_int64(part) -> bool:
    return isinstance(part, torch.Tensor) and part.dtype is torch.int64


def _is_complex(part) -> bool:
    return isinstance(part, torch.Tensor) and part.is_complex()


def _listed(found) -> list:
    return found if isinstance(found, list) else [found]


def _is_of_nothing(node) -> bool:
    """Whether an operation of torch's computes no element at all."""
    parts = _parts(node)
    return node.target.namespace == "aten" and bool(parts) and all(
        isinstance(part, torch.Tensor) and part.numel() == 0 for part in parts)


def _is_gradient_of_nothing(node) -> bool:
    """Whether an operation of torch's is the gradient of one whose result has no elements."""
    gradient = node.args[0] if node.args else None
    return (node.target.namespace == "aten" and isinstance(gradient, torch.fx.Node)
            and node.target.overloadpacket.__name__.endswith("_backward")
            and gradient.meta["val"].numel() == 0)


def _zeros(e, node):
    values = [None if part is None else e.full(ir_type(part)[1], 0, real_dtype(part.dtype))
              for part in _parts(node)]
    return values if isinstance(node.meta["val"], (tuple, list)) else values[0]


def _parts(node) -> tuple | list:
    val = node.meta["val"]
    return val if isinstance(val, (tuple, list)) else (val,)


def _is_other_float(value, target: torch.dtype) -> bool:
    return value.dtype.startswith(("f", "bf")) and value.dtype != ir_dtype(target)


def part_of(node: torch.fx.Node) -> str:
    """The part of the step in which a node of a captured graph runs."""
    return "backward" if node.meta.get("backward") else "forward"


def _notes(meta, has_blocks: bool) -> dict:
    notes = meta["annotations"].attributes()
    if meta["backward"] and has_blocks and "block" not in notes and "block_before" in meta:
        # The gradient of what runs outside of blocks runs where that does.
        use = meta["block_before"]
        notes["block"] = "" if use is None else use.user_id
    if meta["recompute"]:
        notes["recompute"] = meta["recompute"]
    if "checkpoint" in meta:
        notes["checkpoint"] = True
    return notes


def _check_layout(node) -> None:
    for part in _parts(node):
        if isinstance(part, torch.Tensor) and part.layout is not torch.strided:
            raise Error(f"[{node.target.overloadpacket.__name__}] the result is of layout "
                        f"{part.layout}, but the device has dense tensors only. Use dense "
                        f"operations, with zeros for what is not there.")


def _check_type(node, value) -> None:
    """What the op row infers must be what PyTorch computed while capturing."""
    val = node.meta.get("val")
    if isinstance(val, torch.Tensor) and isinstance(value, _C.Value):
        expected = ir_type(val)
        if (value.dtype, list(value.sizes)) != expected:
            raise AssertionError(f"[{node.target}] The op row gives {value.type_text}, PyTorch "
                                 f"gives {expected[0]}{expected[1]}. Please report this.")

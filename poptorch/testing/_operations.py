"""The operations of a recorded program, each computed by PyTorch from the operands it had here."""

import math
import operator

import torch
from torch import fx

from poptorch._base.torch_private.basic import pytree
from poptorch._capture.graph.regions import region
from poptorch._translate.tensor_names import operation_name, title
from poptorch.errors import place_text
from poptorch.options import Options
from poptorch.testing._comparison import Difference, relative_error, worst_element
from poptorch.testing._meanings import IMPLEMENTATIONS

# Two roundings to a type: relative errors that are allowed in addition.
ROUNDING = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
_FLOOR = 2e-6

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "convolution_backward", "linear",
             "serialized_matmul", "mv", "dot", "attention", "lstm", "gru", "rnn")
_SUMS = ("sum", "mean", "var", "std", "norm", "softmax", "logsumexp", "cumsum", "loss", "scatter",
         "index_add", "embedding", "pool")
_RANDOM = "they draw random numbers"
_UNKNOWN = "PyTorch has no operation like them"
_LOOPS = "they are loops"
_REFUSED = "PyTorch refuses them on these types"


class Operations:
    """Operations of a captured program that can be compared one by one.

    ``nodes`` are those of ``TensorNames``. ``names`` are of the tensors whose values are needed.
    """

    def __init__(self, captured, nodes: dict[str, fx.Node], options: Options):
        self._options = options
        self._name_of = {}
        for name, node in nodes.items():
            self._name_of.setdefault(node, name)
        placeholders = (node for node in captured.graph.nodes if node.op == "placeholder")
        self._constants = {node: spec.tensor for node, spec in zip(placeholders, captured.inputs)
                           if spec.kind == "constant"}
        self._nodes = [node for node in captured.graph.nodes if node.op == "call_function"
                       and node.target is not operator.getitem]
        self.is_random = any(_is_random(node) for node in self._nodes)
        self.names = sorted(set(self._name_of.values()))
        self._skipped: dict[str, list[str]] = {}

    def skipped(self) -> dict[str, tuple[str, ...]]:
        """Names of the operations that were not compared, by the reason."""
        return {reason: tuple(dict.fromkeys(names)) for reason, names in self._skipped.items()}

    def _skip(self, node: fx.Node, reason: str) -> None:
        self._skipped.setdefault(reason, []).append(title(node))

    def first_difference(self, values: dict[str, torch.Tensor],
                         step: int) -> tuple[Difference | None, int]:
        """The first operation of a step whose result differs, and how many were compared.

        ``values`` are the tensors that the program computed, by name.
        """
        count = 0
        for node in self._nodes:
            reason = self._reason_to_skip(node)
            if reason:
                self._skip(node, reason)
                continue
            try:
                exact = self._computed(node, values, torch.float64)
            except RuntimeError:
                self._skip(node, _REFUSED)
                continue
            narrow = self._narrow(node, values, exact)
            for position, result in enumerate(exact):
                ours = self._result(node, position, values)
                if ours is None or not isinstance(result, torch.Tensor):
                    continue
                count += 1
                found = self._judged(node, ours, result, narrow[position], step)
                if found is not None:
                    return found, count
        return None, count

    def _reason_to_skip(self, node: fx.Node) -> str:
        if node.target is region:
            return _LOOPS
        if _is_random(node):
            return _RANDOM
        schema = getattr(node.target, "_schema", None)
        if schema is None or (schema.name.startswith("poptorch::")
                              and node.target not in IMPLEMENTATIONS):
            return _UNKNOWN
        return ""

    def _computed(self, node: fx.Node, values, dtype: torch.dtype | None) -> list:
        """The results by PyTorch; ``dtype``: of the floats, None: as they are."""

        def operand(argument):
            value = self._value(argument, values)
            if dtype is not None and value.is_floating_point():
                value = value.to(dtype)
            return value.clone()

        args = fx.node.map_arg(node.args, operand)
        kwargs = fx.node.map_arg(node.kwargs, operand)
        if dtype is not None:
            args, kwargs = _with_dtype((args, kwargs), dtype)
        with torch.no_grad():
            results = IMPLEMENTATIONS.get(node.target, node.target)(*args, **kwargs)
        return list(results) if isinstance(results, (tuple, list)) else [results]

    def _narrow(self, node: fx.Node, values, exact: list) -> list:
        """The results in the types that they have; where PyTorch has none on the CPU, rounded."""
        try:
            return self._computed(node, values, None)
        except RuntimeError:
            kinds = pytree.tree_leaves(node.meta["val"])
            return [x.to(kind.dtype) if isinstance(x, torch.Tensor) else x
                    for x, kind in zip(exact, kinds)]

    def _value(self, node: fx.Node, values) -> torch.Tensor:
        """What a node was here, with the type that it has in PyTorch."""
        kind = node.meta["val"]
        if node in self._constants:
            return self._constants[node].detach()
        return values[self._name_of[node]].to(kind.dtype).reshape(kind.shape)

    def _result(self, node: fx.Node, position: int, values) -> torch.Tensor | None:
        if isinstance(node.meta["val"], torch.Tensor):
            return self._value(node, values) if node in self._name_of else None
        for user in node.users:
            if user.target is operator.getitem and user.args[1] == position:
                return self._value(user, values) if user in self._name_of else None
        return None

    def _judged(self, node, ours, exact, narrow, step: int) -> Difference | None:
        if exact.is_floating_point():
            error = relative_error(ours, exact)
            limit = 4 * relative_error(narrow, exact) + _FLOOR + ROUNDING.get(ours.dtype, 0.0)
        else:
            # Of whole numbers and bools, what PyTorch makes of the same operands.
            exact = narrow
            error = 0.0 if torch.equal(ours, narrow.to(ours.dtype)) else math.inf
            limit = 0.0
        if error <= limit:
            return None
        index = worst_element(ours, exact)
        name = self._name_of.get(node, title(node))
        module = (node.meta.get("module") or "").rstrip("/")
        return Difference(name, step, operation_name(node), module,
                          place_text(node.meta.get("place")), error, limit, index,
                          float(ours[index]), float(exact[index]),
                          self._cause(node, ours, error))

    def _cause(self, node, ours: torch.Tensor, error: float) -> str:
        operation, half = operation_name(node), ours.dtype in ROUNDING
        is_product = any(operation == name or operation == f"{name}_backward"
                         for name in _PRODUCTS)
        partials = self._options.Precision.partials_type
        if is_product and half and partials is torch.float16:
            return "float16 partials: setPartialsType(torch.half) rounds the sums of products"
        if half and self._options.Precision.stochastic_rounding:
            return "stochastic rounding: results are rounded up or down at random"
        if half and error < 16 * ROUNDING[ours.dtype]:
            return "rounding to 16 bits within the operation, where PyTorch computes in float32"
        is_sum = is_product or any(name in operation for name in _SUMS)
        if is_sum and error < 1e-3:
            return "the order of summation: long sums are added in another order"
        if not ours.is_floating_point():
            return "a comparison or choice of nearly equal numbers"
        return ("the operation computes something else: a fault of its kernel or translation. "
                "Please report it")


def _is_random(node: fx.Node) -> bool:
    """Whether its results depend on drawn numbers: by its salt, or by a rate that is not 0."""
    if "salt" in node.meta:
        return True
    schema = getattr(node.target, "_schema", None)
    if schema is None or not any(argument.name == "salt" for argument in schema.arguments):
        return False
    given = dict(zip((argument.name for argument in schema.arguments), node.args))
    given.update(node.kwargs)
    return given.get("dropout_p", given.get("p", 1.0)) != 0


def _with_dtype(tree, dtype: torch.dtype):
    """The arguments, with each floating-point type replaced by ``dtype``."""

    def changed(leaf):
        is_float = isinstance(leaf, torch.dtype) and leaf.is_floating_point
        return dtype if is_float else leaf

    return pytree.tree_map(changed, tree)

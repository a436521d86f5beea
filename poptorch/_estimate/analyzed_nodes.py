"""The nodes of a captured graph, each translated separately: its status, and its work."""

import contextlib
import operator
from collections import Counter

import torch

from poptorch import _C
from poptorch._base.types import ir_type
from poptorch._capture.decompose.functional_ops import functional_form, mutated_arguments
from poptorch._capture.graph.node_errors import name_of
from poptorch._capture.graph.regions import region_of
from poptorch._reports.analysis import AnalyzedOperation
from poptorch._translate import opaque
from poptorch._translate.emitter import Emitter
from poptorch._translate.nodes import Nodes, part_of
from poptorch._translate.recomputation import recomputed
from poptorch.errors import Error, place_text


class _Emitter(Emitter):
    """Keeps the ops that it appends."""

    def __init__(self, module, graph):
        super().__init__(module, graph)
        self.appended: list[tuple] = []

    def _append(self, name, operands, attrs, types, place, names):
        values = super()._append(name, operands, attrs, types, place, names)
        self.appended.append((name, operands, attrs, values))
        return values


def analyzed_nodes(captured) -> list[AnalyzedOperation]:
    """The rows of a captured program; equal operations of one line are one row."""
    return _rows(_Walk(recomputed(captured)).found)


def recorded_nodes(graph: torch.fx.Graph | None) -> list[AnalyzedOperation]:
    """The rows of a graph whose capture did not come to its end. The work is not known."""
    rule_for, found = Nodes(None).rule_for, []
    for node in [] if graph is None else graph.nodes:
        is_operation = hasattr(node.target, "_schema")  # others mark loops and views
        if is_operation and not node.meta.get("stand_in"):
            is_opaque = rule_for(_functional(node.target)) is opaque.emit
            found.append((_key(node, "opaque" if is_opaque else "native"), (None, 0)))
    return _rows(found)


def _functional(target):
    return mutated_arguments(target) and functional_form(target) or target


def _rows(found: list[tuple[tuple, tuple]]) -> list[AnalyzedOperation]:
    rows: dict[tuple, list] = {}
    for key, work in found:
        rows.setdefault(key, []).append(work)
    made = []
    for key, works in rows.items():
        flops = [flops for flops, _ in works if flops is not None]
        made.append(AnalyzedOperation(
            *key, count=len(works), flops=int(sum(flops)) if flops else None,
            bytes=int(sum(size for _, size in works))))
    return made


def _key(node, status: str, message: str | None = None) -> tuple:
    operation = node.name.rstrip("_0123456789") if region_of(node) is not None \
        else name_of(node.target)
    told = AnalyzedOperation.refused_by("", message).told if message else ("", "")
    return (operation, "refused" if message else status, part_of(node),
            node.meta.get("module") or "", place_text(node.meta.get("place")), *told)


class _Walk:
    """One walk over a graph; ``found`` has the key of a row and (FLOPs, bytes) of each node."""

    def __init__(self, captured):
        module = _C.Module()
        self._emitter = _Emitter(module, module.add_graph("main"))
        self._nodes, self._graph = Nodes(self._emitter), captured.graph
        self.found: list[tuple[tuple, tuple]] = []
        for node in captured.graph.nodes:
            if node.op == "placeholder":
                self._source(node)
            elif node.op == "call_function":
                self._visit(node)

    def _source(self, node) -> None:
        self._emitter.part = part_of(node)
        with contextlib.suppress(Error):  # of a type that the device lacks; its uses are refused
            self._nodes.values[node] = self._zeros(node.meta["val"])

    def _visit(self, node) -> None:
        values = self._nodes.values
        missing = [x for x in node.all_input_nodes if x not in values]
        if node.target is operator.getitem:
            if not missing:
                self._nodes.translate(node)
            return
        self._emitter.appended.clear()
        message = _missing(missing[0]) if missing else None
        if not missing:
            try:
                self._nodes.translate(node)
            except Error as error:
                message = error.message.partition("\n  ")[0]
        if message is not None:
            self._emitter.appended.clear()
            with contextlib.suppress(Error):
                values[node] = self._results(node.meta["val"])
        if node.meta.get("stand_in"):
            return
        is_opaque = any(name == "aten" for name, *_ in self._emitter.appended)
        self._note(node, "opaque" if is_opaque else "native", message)
        if (region := region_of(node)) is not None:
            self._body(region)

    def _body(self, region) -> None:
        """The operations of a loop's body, which are translated with the loop."""
        self._emitter.appended.clear()
        for node in region.graph.nodes:
            if node.op == "call_function" and node.target is not operator.getitem:
                inner = region_of(node)
                is_opaque = inner is None and \
                    self._nodes.rule_for(node.target) is opaque.emit
                self._note(node, "opaque" if is_opaque else "native", None)
                if inner is not None:
                    self._body(inner)

    def _note(self, node, status: str, message: str | None) -> None:
        work = (None, 0) if message else self._work(node)
        self.found.append((_key(node, status, message), work))

    def _work(self, node) -> tuple[float | None, float]:
        if region_of(node) is not None or node.graph is not self._graph:
            return None, 0
        total: Counter = Counter()
        is_known = not self._emitter.appended
        for name, operands, attrs, values in self._emitter.appended:
            types = [(value.dtype, list(value.sizes)) for value in values]
            given = [None if x is None else (x.dtype, list(x.sizes)) for x in operands]
            flops, size = _C.work(name, given, attrs, types)
            is_known |= flops is not None
            total["flops"] += flops or 0
            total["bytes"] += size
        return total["flops"] if is_known else None, total["bytes"]

    def _results(self, val):
        if isinstance(val, (tuple, list)):
            return [None if part is None else self._zeros(part) for part in val]
        return self._zeros(val)

    def _zeros(self, val: torch.Tensor):
        dtype, sizes = ir_type(val)
        return self._emitter.plain("full", [], {"size": sizes, "fill_value": 0,
                                                "dtype": _C.DType(dtype)})[0]


def _missing(node) -> str:
    parts = node.meta["val"]
    parts = parts if isinstance(parts, (tuple, list)) else [parts]
    kinds = {str(part.dtype).removeprefix("torch.") for part in parts if part is not None}
    return f"[analyze] an operand is of type {' and '.join(sorted(kinds))}, which the device " \
           f"does not have. Compute it outside of the model, or in another type."

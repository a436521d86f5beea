"""Loops of a captured graph: an op ``loop`` and a graph of the module for its body."""

from poptorch import _C
from poptorch._capture.graph.regions import placeholders, region_of
from poptorch._translate.emitter import Emitter


class BodyEmitter(Emitter):
    """Writes the body of a loop, which carries ``inputs`` values by itself.

    If random numbers are drawn the loop carries the random state, too; ``counter`` is then the
    number of the round, if there is one.
    """

    def __init__(self, outer: Emitter, graph, inputs: int):
        super().__init__(outer.module, graph, outer.precision)
        self.salts = outer.salts
        self.counter = None
        self._inputs, self._carried_rng, self._rng = inputs, None, None

    @property
    def reads_rng(self) -> bool:
        return self._carried_rng is not None

    def rng(self):
        """The random state of the round."""
        if self._rng is None:
            self._carried_rng = self.named("input", "rng", {"index": self._inputs}, "i32", [4])
            self._rng = self._carried_rng
            if self.counter is not None:
                self._rng = self.plain("rng_fold", [self._rng, self.counter], {})[0]
        return self._rng

    def finish(self, results: list) -> None:
        """Ends the body with the values of the next round."""
        self.graph.outputs = [*results, *([self._carried_rng] if self.reads_rng else [])]


def emit(nodes, node) -> list:
    """Appends a loop, of a node that runs its body; returns what it carries at the end."""
    e, region = nodes.emitter, region_of(node)
    rounds = region.rounds
    operands = [nodes.narrowed_value(outer) for outer in node.args]
    name = f"{node.name}.{len(e.module.graphs)}"
    body = BodyEmitter(e, e.module.add_graph(name), len(operands))
    body.is_conditional = e.is_conditional or rounds.count is None
    body.part = e.part
    inner = type(nodes)(body, nodes.has_blocks)
    inputs = []
    for index, (placeholder, operand) in enumerate(zip(placeholders(region.graph), operands)):
        inputs.append(body.named("input", placeholder.name, {"index": index}, operand.dtype,
                                 list(operand.sizes)))
        inner.values[placeholder] = inputs[-1]
    if rounds.counter is not None:
        body.counter = inputs[rounds.counter]
    for operation in region.graph.nodes:
        if operation.op == "call_function":
            inner.translate(operation)
    end = next(reversed(region.graph.nodes))
    body.notes, body.place, body.part = {}, None, e.part
    results = [inner.narrowed_value(result) for result in end.args[0]]
    body.finish([*results, *inputs[rounds.carried:]])
    if body.reads_rng:
        operands.append(e.rng())
    attrs = {"body": _C.GraphRef(name), "count": 1 if rounds.count is None else rounds.count}
    if rounds.count is None:
        attrs["conditional"] = True
    types = [(operand.dtype, list(operand.sizes)) for operand in operands]
    return e.ops("loop", operands, attrs, types)[:rounds.carried]

"""Replicated tensor sharding: which tensors each replica has one part of, and the ops for that.

    sharded        gradient                        update of         weight
    nothing        all_reduce                      the whole tensor  whole
    states         reduce_scatter                  the part          shard before, all_gather after
    weight         all_reduce                      the whole tensor  all_gather before, shard after
    both           reduce_scatter                  the part          all_gather before the next step

A part is a row of elements (csrc/ops/families/collective.cpp). Only
tensors that all replicas have alike are sharded, and states only where the update goes element by
element. So all elements have the bits that they have without sharding. What needs a whole tensor (a
norm, an anchor) gathers it.
"""

import math
from collections.abc import Iterable, Iterator

import torch

from poptorch._base.types import ir_type

_HALVES = (torch.float16, torch.bfloat16)


def sources(captured) -> Iterator[tuple]:
    """The inputs of a captured graph: node and spec."""
    placeholders = (node for node in captured.graph.nodes if node.op == "placeholder")
    return zip(placeholders, captured.inputs)


def shards_of(captured, spec, optimizer, partition) -> "Shards":
    """What is sharded of a captured graph with its update; ``optimizer`` is an ``OptimizerLink``,
    None in inference."""
    shards = Shards(spec)
    if spec.sharded_optimizer is None and spec.sharded_weights is None:
        return shards
    params = {input.name: (input.tensor, ir_type(node.meta["val"])[1])
              for node, input in sources(captured) if input.kind == "param"}
    trained = {output.name: params[output.name][0] for output in captured.outputs
               if output.kind == "grad"}
    shards.choose({path: (tensor.dtype, sizes) for path, (tensor, sizes) in params.items()},
                  {output.name for output in captured.outputs if output.kind == "buffer_update"},
                  {} if optimizer is None else optimizer.whole_states(trained), partition)
    return shards


class Shards:
    """The sharded tensors of one program. ``states`` and ``weights`` have the sizes of parameters
    by path: of those whose optimizer states, and of those which themselves are sharded. ``report``
    says of each parameter what is sharded, or why nothing is."""

    def __init__(self, spec):
        self._spec = spec
        self.states: dict[str, list[int]] = {}
        self.weights: dict[str, list[int]] = {}
        self.report: dict[str, dict[str, str]] = {}

    def choose(self, params: dict[str, tuple], changed: Iterable[str], reasons: dict[str, str],
               partition) -> None:
        """Chooses what is sharded.

        Args:
            params: dtype and sizes on the device of each parameter.
            changed: paths of tensors that ``forward`` changes.
            reasons: why the states of parameters are whole, or that there are none, by path.
            partition: of the program.
        """
        is_cut = partition is not None and any(
            block.ipu != partition.outside.ipu for block in partition.blocks)
        several = "the model runs on several IPUs" if is_cut else ""
        for path, (dtype, sizes) in params.items():
            own = self._reason(path, sizes, path in changed)
            if self._spec.sharded_optimizer is not None and self._spec.training:
                rounds = self._spec.stochastic_rounding and dtype in _HALVES
                why = own or reasons.get(path, "no gradient") or (
                    "its update rounds by chance" if rounds else "")
                self._note("optimizer", self.states, self._spec.sharded_optimizer, path, sizes, why)
            if self._spec.sharded_weights is not None:
                self._note("weight", self.weights, self._spec.sharded_weights, path, sizes,
                           own or several)

    def _reason(self, path: str, sizes: list[int], is_changed: bool) -> str:
        if self._spec.replicas == 1:
            return "there is one replica"
        if path in dict(self._spec.weight_groups):
            return "each group of replicas has a value of its own"
        return "forward changes it" if is_changed else ""

    def _note(self, kind: str, chosen: dict, least: int, path: str, sizes: list[int],
              why: str) -> None:
        numel = math.prod(sizes)
        if numel <= max(least, 1):
            why = why or f"it has {numel} elements, and only more than {max(least, 1)} are sharded"
        if not why:
            chosen[path] = sizes
        text = f"whole: {why}" if why else f"{self._length(sizes)} of {numel} elements"
        self.report.setdefault(path, {})[kind] = text

    def _length(self, sizes: list[int]) -> int:
        return -(-math.prod(sizes) // self._spec.replicas)

    def state(self, e, path: str, role: str, dtype: str, sizes: list[int]):
        """The replica's part of a state of these sizes."""
        return e.state(path, role, dtype, [self._length(sizes)], shard_of=sizes)

    def weight(self, e, spec):
        """The whole value of a sharded weight, an input of the captured graph."""
        sizes = self.weights[spec.name]
        dtype = ir_type(spec.tensor)[0]
        return self.gathered(e, self.state(e, spec.name, "parameter", dtype, sizes), sizes)

    def reduced(self, e, gradient, op: str):
        """The replica's part of a gradient, reduced over all replicas."""
        attrs = {"op": op, "shards": self._spec.replicas, "part": "backward"}
        return e.plain("reduce_scatter", [gradient], attrs)[0]

    def part(self, e, value):
        """The replica's part of a value that all replicas have."""
        return e.plain("shard", [value], {"shards": self._spec.replicas})[0]

    def gathered(self, e, part, sizes: list[int]):
        """The whole tensor of these sizes. Each replica has a part of it."""
        attrs = {"size": list(sizes), "shards": self._spec.replicas}
        return e.plain("all_gather", [part], attrs)[0]

    def whole(self, e, path: str, value):
        """The gradient of a parameter, or another value of its update, as a whole tensor."""
        return self.gathered(e, value, self.states[path]) if path in self.states else value

"""Loops and branches on the device: their bodies become regions that have rounds.

A body is traced once, with its gradient where one is needed. From this joint graph the forward loop
is made, which keeps a row of a stack for each round of what the gradient reads, and the backward
one, which takes the rows in reverse and computes the rest again. Branches are loops of at most one
round.
"""

import operator
from dataclasses import dataclass
from functools import partial

import torch
from torch import fx
from torch.autograd.function import BackwardCFunction

from poptorch._base import capture_context
from poptorch._base.layout import copied_strides, row_major
from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._capture.functional.functionalize import functionalize
from poptorch._capture.graph.losses import BodyLosses
from poptorch._capture.graph.regions import Rounds, copied, nodes_within, prune, region_of
from poptorch._capture.library import (  # noqa: F401  (two declare ops)
    dynamic,
    tensor_nodes,
    without_gradient,
)
from poptorch._capture.library.layers import ops
from poptorch._capture.library.saved_for_backward import keep, kept
from poptorch._capture.loops.bodies import changes_outside

_OF_OPS = "GeneratedBackwardFor_poptorch_"  # torch's names of the nodes of our operations


@dataclass
class Joint:
    """A body, with its gradient.

    Attributes:
        graph: closed and functional.
        inputs: the placeholders of the body's arguments.
        is_read: of each argument, whether the body calls anything with it.
        captured: the placeholders of values from outside, by their nodes there.
        outputs: the nodes of the results.
        strides: how the results lay in memory as the body returned them; they are contiguous here.
        outer: the tensors from outside for which there are gradients.
        given: the placeholders of the gradients of the results, None where there is none.
        gradients: the nodes of the gradients of the arguments and of ``outer``; None: it is zero.
        losses: those of the body.
        is_linear: whether gradients of several results may be computed one by one, and added up:
            no code of the user's, by a hook or an autograd.Function, sees their sum.
    """

    graph: fx.Graph
    inputs: list[fx.Node]
    is_read: list[bool]
    captured: dict[fx.Node, fx.Node]
    outputs: list[fx.Node]
    strides: list[tuple[int, ...]]
    outer: list[torch.Tensor]
    given: list[fx.Node | None]
    gradients: list[fx.Node | None]
    losses: BodyLosses
    is_linear: bool

    def needed_for(self, wanted: list[fx.Node | None], absent: frozenset[fx.Node] = frozenset(),
                   known: frozenset[fx.Node] = frozenset()) -> set[fx.Node]:
        """The nodes, placeholders included, from which nodes are computed, without absent ones, and
        without those from which known ones are."""
        needed, todo = set(), [node for node in wanted if node is not None]
        while todo:
            node = todo.pop()
            if node not in needed and node not in absent:
                needed.add(node)
                if node not in known:
                    todo += node.all_input_nodes
        return needed

    def from_host(self) -> list[fx.Node]:
        """What functions of the host give in the forward pass, and the gradients are computed from:
        it is kept, as a second call may give something else."""
        needed = self.needed_for(self.gradients)
        return [node for node in self.graph.nodes
                if node in needed and node.target is operator.getitem
                and not node.args[0].meta["backward"] and _calls_host(node.args[0])]

    def absent(self, given: frozenset[int]) -> frozenset[fx.Node]:
        """The nodes that are not computed where only the results of these numbers have a gradient.
        Gradients are linear, so these nodes would be zero, unless another value is infinite."""
        numbers = {node: i for i, node in enumerate(self.given) if node is not None}
        is_there: dict[fx.Node, bool] = {}
        for node in self.graph.nodes:
            if node in numbers:
                is_there[node] = numbers[node] in given
            elif found := [is_there[x] for x in node.all_input_nodes if x in is_there]:
                is_there[node] = any(found)
        return frozenset(node for node, there in is_there.items() if not there)

    def present(self, gradients) -> frozenset[int]:
        """The numbers of the results that have one of these gradients."""
        return frozenset(i for i, node in enumerate(self.given)
                         if node is not None and gradients[i] is not None)

    def reached(self, given: frozenset[int]) -> list[int]:
        """The numbers of the gradients that there are where only the results of the given numbers
        have one."""
        absent = self.absent(given)
        return [i for i, node in enumerate(self.gradients)
                if node is not None and node not in absent]

    def zeros_for(self, needed: set[fx.Node], absent: frozenset[fx.Node]) -> list[fx.Node]:
        """The absent operands of nodes that are needed, in whose place there are zeros."""
        found = [x for node in self.graph.nodes
                 if node in needed and _only_summand(node, needed) is None
                 for x in node.all_input_nodes if x in absent]
        return list(dict.fromkeys(found))

    def paste(self, graph: fx.Graph, values: dict, needed: set[fx.Node], backward: bool) -> None:
        """Appends copies of the nodes that are needed to a graph; ``values``, which has what the
        placeholders are there and zeros for absent operands, gets them."""
        for node in self.graph.nodes:
            if node in needed and node not in values:
                if (other := _only_summand(node, needed)) is not None:
                    values[node] = values[other]
                    continue
                if backward and _is_print(node):  # the forward pass has printed it
                    values[node] = values[node.args[0]]
                    continue
                copy = values[node] = copied(node, graph, values)
                if backward and not copy.meta["backward"]:
                    copy.meta = {**copy.meta, "backward": True}


class Loops:
    """Makes the loops of one capture, for a function of this name."""

    def __init__(self, capture, name: str):
        self._capture, self._recorder, self._name = capture, capture.recorder, name
        if private.is_transformed():
            raise self._recorder.error(
                f"[{name}] loops and conditions inside of functions that torch.func transforms "
                f"(grad, vjp, jvp, vmap) are not implemented. Differentiate by "
                f"torch.autograd.grad, or write a loop in Python.")

    # -- what bodies compute -------------------------------------------------------------------

    def joint(self, like: list[torch.Tensor], body, is_trained: bool, carried: int = 0) -> Joint:
        """Traces a body, with its gradient if ``is_trained``.

        The arguments are like ``like``, also in memory and in whether they require grad. The first
        ``carried`` ones are results of the round before, which may require grad where those of the
        first round do not.
        """
        recorder = self._recorder
        with recorder.region(self._name) as region, private.without_saved_tensors_hooks(), \
                self._capture.bodies.traced(self._name, region, is_trained) as taken:
            leaves = [self._argument(region, x, is_trained and (i < carried or x.requires_grad))
                      for i, x in enumerate(like)]
            # A change in place may give a leaf a history.
            arguments = [x.clone() if is_trained and x.is_floating_point() else x for x in leaves]
            with self._capture.losses.body() as losses:
                found = body(*arguments)
            losses.trace(found, leaves)
            is_linear = not taken.has_hooks and not any(map(_passes_user_code, found))
            is_read = [bool(recorder.node_of(x).users) for x in arguments]
            strides = [self._new_laid(x).stride() for x in found]
            found = [self._result(x) for x in found]
            taken.check(found)
            given, gradients = [None] * len(found), [None] * (len(like) + len(taken.outer))
            if any(x.requires_grad for x in found) and (
                    taken.standing or any(x.requires_grad for x in like)):
                given, gradients = self._differentiated(region, found, leaves, taken.standing)
            inputs = list(map(recorder.node_of, leaves))
            outputs = list(map(recorder.node_of, found))
            wanted = [recorder.node_of(x) for x in gradients if x is not None]
            given = [None if x is None else recorder.node_of(x) for x in given]
        if not is_linear:  # nor is what the body is in
            self._capture.bodies.note_hook()
        finals = self._functional(self._name, region, [*outputs, *wanted])
        region.node.graph.erase_node(region.node)
        rest = iter(finals[len(outputs):])
        gradients = [None if x is None else next(rest) for x in gradients]
        return Joint(region.graph, inputs, is_read, region.captured(), finals[:len(outputs)],
                     strides, taken.outer, given, gradients, losses, is_linear)

    def _argument(self, region, like: torch.Tensor, has_gradient: bool) -> torch.Tensor:
        leaf = self._new_laid(like)
        leaf.requires_grad_(has_gradient and leaf.is_floating_point())
        self._declare(region, "value", leaf)
        return leaf

    def _result(self, x: torch.Tensor) -> torch.Tensor:
        """What a body returns, as a contiguous tensor of its region."""
        is_outside = not fake_tensors.is_fake(x) or self._recorder.is_across(x)
        x = self._capture.bodies.inside(x)
        if is_outside:
            return x.clone(memory_format=torch.contiguous_format)
        return (x if private.has_gradient(x) else x.detach()).contiguous()

    def _declare(self, region, name: str, tensor: torch.Tensor) -> fx.Node:
        node = region.placeholder(name, self._recorder.described(tensor))
        tensor_nodes.attach(tensor, node)
        return node

    def _new(self, like: torch.Tensor, sizes=None) -> torch.Tensor:
        """A tensor without a node: contiguous, of the type and sizes of another, or other sizes."""
        sizes = like.shape if sizes is None else sizes
        with private.without_modes():
            return fake_tensors.new_fake(self._recorder.fake_mode, sizes, row_major(sizes),
                                         like.dtype)

    def _new_laid(self, like: torch.Tensor) -> torch.Tensor:
        """A tensor without a node, with the strides of a copy of another tensor."""
        with private.without_modes():
            return fake_tensors.new_fake(self._recorder.fake_mode, like.shape, copied_strides(like),
                                    like.dtype)

    def _differentiated(self, region, found: list, leaves: list, outer: list) -> tuple:
        """Tensors that stand for the gradients of the results, and the gradients of the arguments
        and of what is taken from outside."""
        given = [self._new(x) if x.requires_grad else None for x in found]
        for x in given:
            if x is not None:
                self._declare(region, "gradient", x)
        wanted = [x for x in leaves if x.requires_grad] + outer
        with self._recorder.backward(), torch.autocast("cpu", enabled=False):
            gradients = iter(torch.autograd.grad(
                [x for x in found if x.requires_grad], wanted,
                [x for x in given if x is not None], allow_unused=True))
            places = [next(gradients) if x.requires_grad else None for x in leaves]
            gradients = [*places, *gradients]
            return given, [x if x is None else x.contiguous() for x in gradients]

    def _functional(self, name: str, region, wanted: list[fx.Node]) -> list[fx.Node]:
        """Makes a body functional; returns the nodes of the values wanted."""
        region.finish_inputs()
        with private.without_modes():
            finals, changed = functionalize(region.graph, wanted, self._recorder.fake_mode)
        if any(node in region.captured().values() for node in changed):
            raise self._recorder.error(changes_outside(name))
        return finals

    # -- loops of the graph --------------------------------------------------------------------

    def add(self, name: str, carried: list[torch.Tensor], count: int | None, counter: int | None,
            body) -> list[torch.Tensor]:
        """Adds a loop.

        It begins with the tensors ``carried``, and its results have their strides. ``body``
        records a round: it takes tensors and returns a list of them. For ``count`` and ``counter``
        see ``Rounds``.
        """
        recorder = self._recorder
        operands = list(map(recorder.node_of, carried))
        rounds = Rounds(len(carried), count, counter)
        with recorder.region(name, operands, rounds) as region:
            values = list(map(self._new_laid, carried))
            for x in values:
                self._declare(region, "carried", x)
            with self._capture.losses.body() as losses:
                outputs = list(map(recorder.node_of, body(*values)))
        self._capture.losses.leave(losses)
        region.finish(self._functional(name, region, outputs))
        prune(region.graph)
        results = list(map(self._new_laid, carried))
        recorder.attach_results(region.node, results)
        return results

    def pasted(self, joint: Joint, values: dict, wanted: list, captured: dict,
               given: frozenset[int] | None = None) -> list[torch.Tensor | None]:
        """Records what computes the nodes ``wanted`` of a body in the present graph.

        ``values`` has the tensors that stand for its placeholders, ``captured`` those from outside
        by their nodes. In the backward pass, ``given`` has the numbers of the results that have a
        gradient; what is absent without the others is None.
        """
        recorder = self._recorder
        absent = frozenset() if given is None else joint.absent(given)
        wanted = [None if node in absent else node for node in wanted]
        needed = joint.needed_for(wanted, absent, frozenset(values))
        nodes = {node: recorder.node_of(x) for node, x in values.items() if node in needed}
        nodes |= {inner: recorder.node_of(captured[outer])
                  for outer, inner in joint.captured.items() if inner in needed}
        for x in joint.zeros_for(needed, absent):
            like = x.meta["val"]
            nodes[x] = recorder.node_of(recorder.laid_out(zeros(like), like.stride()))
        joint.paste(recorder.graph, nodes, needed, given is not None)
        return [None if node is None else self._tensor_of(nodes[node]) for node in wanted]

    def _tensor_of(self, node: fx.Node) -> torch.Tensor:
        """A tensor that stands for a node, which may be the copy of a different node."""
        if node.op != "placeholder" and tensor_nodes.node_of(node.meta["val"]) is not node:
            node.meta["val"] = self._new(node.meta["val"])
        return self._recorder.value_of(node)

    def row(self, x: torch.Tensor) -> torch.Tensor:
        """A contiguous tensor like one row of another; it is not computed."""
        return self._new(x, x.shape[1:]).requires_grad_(x.requires_grad)

    def contiguous(self, x: torch.Tensor) -> torch.Tensor:
        """A contiguous tensor like another; it is not computed."""
        return self._new(x).requires_grad_(x.requires_grad)

    def stacked(self, rows: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
        """Rows of the given strides, stored as by torch.stack."""
        with private.without_modes():
            row = torch.empty_strided(rows.shape[1:], strides, device="meta")
            found = torch.stack([row] * min(len(rows), 2)).stride()
        return self._recorder.laid_out(rows, found)

    def as_it_lies(self, node: fx.Node, value: torch.Tensor) -> torch.Tensor:
        """A contiguous value of a node of a body, as it is stored there."""
        return self._recorder.laid_out(value, node.meta["val"].stride())

    def outside(self, joint: Joint) -> dict[fx.Node, torch.Tensor]:
        """The tensors of what a body takes from outside."""
        return {node: self._recorder.value_of(node) for node in joint.captured}

    def results(self, found: list[torch.Tensor], joints: list[Joint], inputs: list[torch.Tensor],
                read: list[torch.Tensor], reached: list[set[int]], gradient,
                as_torch: bool, carried: int = 0) -> list[torch.Tensor]:
        """Results with a gradient. The first ``carried`` ones are carried from round to round.

        The ``joints`` gave them and take the ``inputs``; the gradient reads ``read``. ``reached``
        has, for each result, on which of the inputs it depends, and of what the bodies take from
        outside behind them. In autograd's graph are these alone, as in eager: results that depend
        on different ones have nodes of their own, where bodies are linear.

        ``gradient`` records the backward pass: it takes the gradients of the results, and what it
        reads as it is now, and returns those of the inputs and of what the bodies take from
        outside. With ``as_torch`` there are gradients, zeros, also where no result has one.
        """
        tensors = [*inputs, *(x for joint in joints for x in joint.outer)]
        trained = frozenset(i for i, x in enumerate(tensors) if x.requires_grad)
        groups: dict[frozenset[int], list[int]] = {}
        for number, there in enumerate(reached):
            groups.setdefault(trained.intersection(there), []).append(number)
        groups.pop(frozenset(), None)
        if groups and not all(joint.is_linear for joint in joints):
            groups = {frozenset().union(*groups): sorted(sum(groups.values(), []))}
        found = list(found)
        for there, numbers in groups.items():
            places = sorted(there)
            differentiable = [tensors[i] for i in places]
            of_places = partial(self._of_places, gradient, len(found), numbers, places,
                                differentiable if as_torch else None)
            made = _Differentiable.apply(of_places, [found[i] for i in numbers], read,
                                         *differentiable)
            self._capture.recorder.note_origin()
            for number, x in zip(numbers, made):
                found[number] = x
        for joint in joints:
            self._capture.losses.leave(joint.losses, found, carried)
        return found

    @staticmethod
    def _of_places(gradient, count: int, numbers: list[int], places: list[int],
                   like: list[torch.Tensor] | None, given: tuple,
                   read: tuple) -> list[torch.Tensor | None]:
        """The gradients of some inputs, where there are the ``given`` ones of some results."""
        if all(x is None for x in given):  # nothing of the loss depends on it
            return [None] * len(places) if like is None else list(map(zeros, like))
        of_results = dict(zip(numbers, given))
        gradients = gradient(tuple(of_results.get(i) for i in range(count)), read)
        return [gradients[i] for i in places]


class _Differentiable(torch.autograd.Function):
    """Connects the results of a loop, which is in the graph already, to what they depend on."""

    @staticmethod
    def forward(ctx, gradient, results, read, *differentiable):
        ctx.set_materialize_grads(False)
        keep(ctx, *read)
        ctx.gradient = gradient
        ctx.mark_non_differentiable(*(x for x in results if not x.is_floating_point()))
        return tuple(results)

    @staticmethod
    def backward(ctx, *gradients):
        if torch.is_grad_enabled():
            raise capture_context.current().recorder.error(
                "[for_loop] there are no gradients of gradients through loops and branches. Call "
                "torch.autograd.grad without create_graph, or repeat the rounds in Python.")
        return None, None, None, *ctx.gradient(gradients, kept(ctx))


def zeros(like: torch.Tensor) -> torch.Tensor:
    """A gradient of zeros; contiguous."""
    return torch.zeros(like.shape, dtype=like.dtype)


def _only_summand(node: fx.Node, needed: set[fx.Node]) -> fx.Node | None:
    """Of a sum of two gradients the one that is there, if the other is not."""
    if node.target is not torch.ops.aten.add.Tensor or node.kwargs:
        return None
    operands = node.all_input_nodes
    there = [x for x in operands if x in needed]
    is_sum = len(operands) == len(node.args) == 2 and len(there) == 1
    return there[0] if is_sum and _kind_of(there[0]) == _kind_of(node) else None


def _kind_of(node: fx.Node) -> tuple:
    val = node.meta["val"]
    return val.dtype, val.shape, val.stride()


def _calls_host(node: fx.Node) -> bool:
    """Whether an operation calls a function of the host, or a region in which one does."""
    inner = region_of(node)
    return node.target is ops.host_call.default or (
        inner is not None and any(map(_calls_host, nodes_within(inner.graph))))


def _passes_user_code(result: torch.Tensor) -> bool:
    """Whether the gradient of a result passes an autograd.Function that is not of ours, or is
    printed."""
    functions = {node.name() for node in private.autograd_nodes(result.grad_fn)
                 if isinstance(node, BackwardCFunction)}
    return not all(name == f"{_Differentiable.__name__}Backward" or _OF_OPS in name
                   for name in functions)


def _is_print(node: fx.Node) -> bool:
    return node.op == "call_function" and not node.meta["backward"] and \
        node.target is ops.print_tensor.default

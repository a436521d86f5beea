"""Finds the loss: the marked tensor that all other marked ones flow into.

Where losses flow is seen in autograd's graph, whose edges are pairs: a node, and the number of one
of its results. A loss in the body of a loop stands for the results of the loop that are computed
from it.
"""

import contextlib
import functools
import inspect
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from poptorch._base.logging import logger
from poptorch._base.torch_private import tracing as private
from poptorch.errors import error_at, place_text

# Losses that mark themselves, if they are reduced, where identity_loss is not used.
STANDARD = tuple(
    getattr(F, name)
    for name in (
        "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss "
        "cross_entropy ctc_loss gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss "
        "linear_cross_entropy margin_ranking_loss mse_loss multi_margin_loss "
        "multilabel_margin_loss multilabel_soft_margin_loss nll_loss poisson_nll_loss "
        "smooth_l1_loss soft_margin_loss triplet_margin_loss triplet_margin_with_distance_loss"
    ).split()
)
# Likewise, in graphs: what torch.export makes of these functions.
STANDARD_OVERLOADS = tuple(
    overload
    for name in (
        "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss "
        "cross_entropy_loss ctc_loss hinge_embedding_loss huber_loss kl_div l1_loss "
        "margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss nll_loss "
        "nll_loss_nd nll_loss2d poisson_nll_loss smooth_l1_loss soft_margin_loss "
        "triplet_margin_loss"
    ).split()
    for overload in private.overloads_of(getattr(torch.ops.aten, name))
    if not overload._schema.is_mutable
)
# Autograd nodes that pass a number on, in another shape or type, or together with others.
_SAME_NUMBER = frozenset(
    f"{name}Backward0" for name in (
        "Alias Cat Clone Reshape ReshapeAlias Squeeze Stack ToCopy UnsafeView Unsqueeze View"
    ).split()) | {"SqueezeBackward1", "SqueezeBackward2", "_PrintedBackward"}


_SEVERAL = ("[loss] Multiple independent losses found in graph. Graph must have one final loss. "
            "Wrap final graph loss in poptorch.identity_loss.")
_MARK_IT = ("If that result is what to minimise, mark it: `poptorch.identity_loss(result, "
            "reduction=\"mean\")`.")


@dataclass(frozen=True)
class _Loss:
    """One tensor that was marked, and the autograd node that made it; of one in a body, the
    ``edges`` of the results of the loop that are computed from it."""

    tensor: torch.Tensor
    node: object
    place: tuple[str, int] | None
    module: str
    name: str
    edges: frozenset[tuple] | None = None

    @property
    def root(self):
        """The node of its present value, which differs after a change in place."""
        return self.tensor.grad_fn

    @property
    def where(self) -> str:
        return place_text(self.place) or "an unknown place"

    def flows_along(self, edges: set) -> bool:
        """Whether it flows into a tensor; ``edges`` is what :func:`_edges` gave of that."""
        return self.node in edges if self.edges is None else not self.edges.isdisjoint(edges)


class BodyLosses:
    """The losses of a body, and of bodies within it. Where they flow is known once the body is
    traced."""

    def __init__(self, marked: list[_Loss], standard: list[_Loss]):
        self.marked, self.standard = marked, standard
        # By the identity of a loss and by the number of an argument: the results that are computed
        # from it.
        self._of_losses: dict[int, set[int]] = {}
        self._of_arguments: list[set[int]] = []

    def trace(self, results: list[torch.Tensor], arguments: list[torch.Tensor]) -> None:
        """Notes which results of the body are computed from which losses and arguments."""
        losses = [*self.marked, *self.standard]
        edges = list(map(_edges, results)) if losses else []
        self._of_losses = {id(loss): {i for i, found in enumerate(edges) if loss.flows_along(found)}
                           for loss in losses}
        leaves = [{id(getattr(node, "variable", None)) for node in found} for found in edges]
        self._of_arguments = [{i for i, found in enumerate(leaves) if id(x) in found}
                              for x in arguments]

    def outside(self, losses: list[_Loss], results: list[torch.Tensor],
                carried: int) -> list[_Loss]:
        """What losses of the body are outside of it, where the loop has ``results``, none if no
        gradient goes through it. The next round takes the first ``carried`` results as
        arguments."""
        found, edges = [], [(x.grad_fn, x.output_nr) for x in results]
        node = next((node for node, _ in edges if node is not None), None)
        for loss in losses:
            numbers, todo = set(), list(self._of_losses.get(id(loss), ()))
            while todo:
                if (number := todo.pop()) not in numbers:
                    numbers.add(number)
                    todo += self._of_arguments[number] if number < carried else ()
            made_by = None if loss.node is None else node
            reached = frozenset(edges[number] for number in numbers if node is not None)
            found.append(replace(loss, node=made_by, edges=reached))
        return found


class Losses:
    """The tensors marked as losses in one capture."""

    def __init__(self, recorder):
        self._recorder = recorder
        self._marked: list[_Loss] = []
        self._standard: list[_Loss] = []
        self._unreduced: list[_Loss] = []

    @contextlib.contextmanager
    def body(self):
        """A context in which the body of a loop or a branch is traced; gives its losses."""
        outer = self._marked, self._standard
        inner = BodyLosses([], [])
        self._marked, self._standard = inner.marked, inner.standard
        try:
            yield inner
        finally:
            self._marked, self._standard = outer

    def leave(self, inner: BodyLosses, results: list[torch.Tensor] = (), carried: int = 0) -> None:
        """Takes over the losses of a body, see :meth:`BodyLosses.outside`."""
        self._marked += inner.outside(inner.marked, results, carried)
        self._standard += inner.outside(inner.standard, results, carried)

    def mark(self, loss: torch.Tensor) -> None:
        """Notes a tensor that ``identity_loss`` returned."""
        self._note(self._marked, loss, "identity_loss")

    def mark_standard(self, loss: torch.Tensor, function, args: tuple, kwargs: dict) -> None:
        """Notes what one of torch's loss functions returned. One that is not reduced is not the
        loss itself: a number that forward computes from it is."""
        is_reduced = _is_reduced(function, args, kwargs)
        self._note(self._standard if is_reduced else self._unreduced, loss,
                   _name(function))

    def _note(self, losses: list, loss, name: str) -> None:
        if isinstance(loss, torch.Tensor) and not self._recorder.in_backward:
            losses.append(_Loss(loss, loss.grad_fn, self._recorder.places.here(),
                                self._recorder.module, name))

    def final(self, results: list, names: list[str]) -> torch.Tensor:
        """The loss to differentiate, where ``forward`` returned the results.

        That is the loss that all others flow into. If nothing is marked and no loss itself is
        returned, it is the only number among the results that is computed from losses.

        Raises a :class:`poptorch.Error` if there is none, or several that do not flow into one of
        them, or if ``forward`` returns, instead of PyTorch's loss or with it, another value that
        may be the one to minimise.
        """
        if not self._marked:
            loss = self._computed(results, names)
            if loss is not None:
                return loss
        marked, standard = _outermost(self._marked), _outermost(self._standard)
        joined = self._marked if marked else [*self._standard, *self._marked]
        own = marked or standard
        if not own:
            raise self._none()
        trained = [loss for loss in own if loss.node is not None] or own[-1:]
        joined = [loss for loss in joined if loss.node is not None]
        for candidate in reversed(trained):
            if not _outside(candidate, joined):
                if marked:
                    self._check_standard(candidate, results)
                else:
                    _check_returned(candidate, results, names)
                return candidate.tensor
        raise self._independent(_outside(trained[-1], joined)[-1], trained[-1])

    def _computed(self, results: list, names: list[str]) -> torch.Tensor | None:
        """The number that ``forward`` computes from PyTorch's losses and returns, if it returns
        none of these losses; else None."""
        if any(_holds(result, loss) for loss in _outermost(self._standard)
               if loss.root is not None for result in results):
            return None
        losses, found = [*self._standard, *self._unreduced], {}
        for result, name in zip(results, names) if losses else ():
            edges = _edges(result) if result.numel() == 1 else ()
            for loss in losses if edges else ():
                if loss.flows_along(edges):
                    found[result.grad_fn, result.output_nr] = result, name, loss
        if len(found) > 1:
            _, name, loss = list(found.values())[-1]
            raise _ambiguous(name, loss, "and so is another result")
        return next((result for result, *_ in found.values()), None)

    def _check_standard(self, final: _Loss, results: list[torch.Tensor]) -> None:
        """Raises an Error if a result is computed from the marked loss, and from one of PyTorch
        that does not flow into it. Warns of one that only other results are computed from."""
        apart = _outside(final, [loss for loss in self._standard if loss.node is not None])
        found = {}
        for edges in map(_edges, results) if apart else ():
            for loss in (loss for loss in apart if loss.flows_along(edges)):
                if final.flows_along(edges):
                    raise self._independent(loss, final)
                found[loss.where] = loss
        for where, loss in found.items():
            if (where, final.where) not in _told:
                _told.add((where, final.where))
                logger.warning(
                    "[loss] the %s of %s is returned, but it does not flow into the loss that is "
                    "marked at %s: it is not trained. Mark the sum of both with identity_loss, or "
                    "detach() it.", loss.name, where, final.where)

    def _none(self):
        mark = "`loss = poptorch.identity_loss(loss, reduction=\"mean\")`"
        inside = [*self._standard, *self._marked]
        if inside:
            last = inside[-1]
            return error_at(
                f"[loss] Couldn't find a loss in graph: the {last.name} of {last.where} is "
                f"computed in the body of a loop or a branch, and nothing is marked outside of it. "
                f"Mark what the loop or branch gave: {mark}.", last.place, last.module)
        if not self._unreduced:
            return error_at(
                "[loss] Couldn't find a loss in graph: no loss function of torch.nn.functional "
                f"was called in forward, and nothing is marked. Pass loss= to "
                f"poptorch.trainingModel, or compute the loss in forward and mark it: {mark}. "
                f"A loss inside a torch.jit module is not found: compute it in a module around "
                f"that one.", None)
        last = self._unreduced[-1]
        return error_at(
            f"[loss] Couldn't find a loss in graph: the {last.name} of {last.where} does not "
            f"reduce its result to a number, and nothing is marked. Mark what is computed from it: "
            f"{mark}.", last.place, last.module)

    def _independent(self, one: _Loss, other: _Loss):
        if _outermost(self._marked):
            todo = "Add them up and mark the sum with identity_loss too."
        else:
            todo = ("Mark the one to minimise, or their sum: `loss = poptorch.identity_loss(a + b, "
                    "reduction=\"mean\")`.")
        return error_at(
            f"{_SEVERAL} The one from {one.where} does not flow into the one from {other.where}. "
            f"{todo}", other.place, other.module)


_told: set[tuple[str, str]] = set()  # losses that are not trained, already warned of


def _outermost(losses: list[_Loss]) -> list[_Loss]:
    """Those that are not of bodies."""
    return [loss for loss in losses if loss.edges is None]


def _edges(tensor: torch.Tensor) -> set:
    """The edges of autograd's graph along which values flow into a tensor, and their nodes."""
    found, todo = set(), [(tensor.grad_fn, tensor.output_nr)]
    while todo:
        node, _ = edge = todo.pop()
        if node is None or edge in found:
            continue
        if node not in found:
            todo += node.next_functions
        found |= {edge, node}
    return found


def _name(function) -> str:
    is_overload = isinstance(function, private.OpOverload)
    return (function.overloadpacket if is_overload else function).__name__


def _is_reduced(function, args: tuple, kwargs: dict) -> bool:
    """Whether a call of a loss function gives one number."""
    if isinstance(function, private.OpOverload):
        return _reduction(function, args, kwargs) != 0
    given = _signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    named = given.arguments
    if named.get("size_average") is None and named.get("reduce") is None:
        return named["reduction"] != "none"
    return named["reduce"] is None or bool(named["reduce"])


def _reduction(overload, args: tuple, kwargs: dict) -> int:
    """The argument ``reduction`` of an overload; 0: the result is not reduced."""
    arguments = overload._schema.arguments
    position = [argument.name for argument in arguments].index("reduction")
    given = args[position] if position < len(args) else arguments[position].default_value
    return kwargs.get("reduction", given)


_signature = functools.cache(inspect.signature)


def _check_returned(loss: _Loss, results: list, names: list[str]) -> None:
    """Raises an Error if forward returns another value that may be the one to minimise: a number
    that the loss is a part of, or, instead of the loss, tensors of several numbers."""
    if loss.root is None:
        return
    is_returned = any(_holds(result, loss) for result in results)
    for result, name in zip(results, names):
        if _holds(result, loss) or loss.root not in private.autograd_nodes(result.grad_fn):
            continue
        if not is_returned:
            raise error_at(
                f"[loss] {_result(name)} has {result.numel()} elements and is computed from the "
                f"loss, the {loss.name} of {loss.where}, which itself is not returned. {_MARK_IT} "
                f"If the loss is, return it too, or detach() the result.", loss.place, loss.module)
        if result.numel() == 1 and _is_more_than(result, loss):
            raise _ambiguous(name, loss, "which is returned too")


def _ambiguous(name: str, loss: _Loss, reason: str):
    """The Error for a result that is computed from a loss, where it is not the only candidate."""
    return error_at(
        f"{_SEVERAL} {_result(name)} is computed from the {loss.name} of {loss.where}, {reason}. "
        f"{_MARK_IT} Else detach() what is not to be minimised.", loss.place, loss.module)


def _result(name: str) -> str:
    return f"result {name} of forward" if name else "the result of forward"


def _is_more_than(result: torch.Tensor, loss: _Loss) -> bool:
    """Whether a result that is computed from a loss has gradients that do not pass through it."""
    todo, seen = [result.grad_fn], {None, loss.root}
    while todo:
        node = todo.pop()
        if hasattr(node, "variable"):
            return True
        if node not in seen:
            seen.add(node)
            todo += [following for following, _ in node.next_functions]
    return False


def _holds(result: torch.Tensor, loss: _Loss) -> bool:
    """Whether a result is the loss, maybe in another shape or type, or has it among its parts."""
    if result is loss.tensor:
        return True
    todo, seen = [result.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is loss.root:
            return True
        if node is not None and node not in seen and node.name() in _SAME_NUMBER:
            seen.add(node)
            todo += [following for following, _ in node.next_functions]
    return False


def _outside(loss: _Loss, others: list[_Loss]) -> list[_Loss]:
    """Those of ``others`` that do not flow into ``loss``, by the autograd graph."""
    others = [other for other in others if other is not loss]
    if not others or loss.root is None:
        return others
    edges = _edges(loss.tensor)
    return [other for other in others if not other.flows_along(edges)]

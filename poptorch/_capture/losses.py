"""Finds the loss: the marked tensor that all other marked ones flow into."""

import torch
import torch.nn.functional as F

from poptorch._capture import torch_private as private
from poptorch._logging import logger
from poptorch.errors import error_at, place_text

# Losses that mark themselves where identity_loss is not used.
STANDARD = tuple(
    getattr(F, name)
    for name in (
        "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss "
        "cross_entropy ctc_loss gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss "
        "margin_ranking_loss mse_loss multi_margin_loss multilabel_margin_loss "
        "multilabel_soft_margin_loss nll_loss poisson_nll_loss smooth_l1_loss soft_margin_loss "
        "triplet_margin_loss triplet_margin_with_distance_loss"
    ).split()
)


class Losses:
    """The tensors marked as losses in one capture."""

    def __init__(self, recorder):
        self._recorder = recorder
        self._marked: list[tuple] = []
        self._standard: list[tuple] = []

    def mark(self, loss: torch.Tensor) -> None:
        """Notes a tensor that ``identity_loss`` returned."""
        self._note(self._marked, loss)

    def mark_standard(self, loss: torch.Tensor) -> None:
        """Notes a tensor that one of torch's loss functions returned."""
        self._note(self._standard, loss)

    def _note(self, losses: list, loss) -> None:
        if isinstance(loss, torch.Tensor) and not self._recorder.in_backward:
            place, module = self._recorder.places.here(), self._recorder.module
            losses.append((loss, loss.grad_fn, place, module))

    def final(self, results: list) -> torch.Tensor:
        """The loss to differentiate.

        Args:
            results: the tensors that ``forward`` returned, to warn where one looks like the loss.

        Raises:
            poptorch.Error: None is marked, or several that do not flow into one of them.
        """
        marked = self._marked or self._standard
        if not marked:
            raise error_at(
                "[loss] Couldn't find a loss in graph: no loss function of torch.nn.functional "
                "was called in forward, and nothing is marked. Compute the loss in forward and "
                "mark it: `loss = poptorch.identity_loss(loss, reduction=\"mean\")`.", None)
        trained = [row for row in marked if row[1] is not None] or marked[-1:]
        last = trained[-1]
        apart = _outside(last[1], trained[:-1])
        if not apart:
            if not self._marked:
                _warn_of_sums(last, results)
            return last[0]
        for candidate in reversed(trained[:-1]):
            others = [row for row in trained if row is not candidate]
            if not _outside(candidate[1], others):
                return candidate[0]
        raise self._independent(apart[-1], last)

    def _independent(self, one: tuple, other: tuple):
        def words(row):
            return f"{row[2][0]}:{row[2][1]}" if row[2] else "an unknown place"

        if self._marked:
            todo = "Add them up and mark the sum with identity_loss too."
        else:
            todo = ("Mark the one to minimise, or their sum: `loss = poptorch.identity_loss(a + b, "
                    "reduction=\"mean\")`.")
        return error_at(
            f"[loss] Multiple independent losses found in graph: the one from {words(one)} does "
            f"not flow into the one from {words(other)}. {todo}", other[2], other[3])


def _warn_of_sums(row: tuple, results: list) -> None:
    """A number computed from the only loss is probably what its author wants to minimise."""
    loss, node, place, _ = row
    for result in results:
        if result.dim() or result.grad_fn is None or result.grad_fn is node:
            continue
        if node in private.autograd_nodes(result.grad_fn):
            logger.warning(
                "[loss] the loss of %s is what is minimised, and not the number computed from it "
                "that forward returns. If that is meant, detach() the number; else mark it: "
                "poptorch.identity_loss(number, reduction=\"none\").",
                place_text(place) or "forward")


def _outside(root, rows: list[tuple]) -> list[tuple]:
    """Those of ``rows`` that do not flow into ``root``, by the autograd graph."""
    if not rows or root is None:
        return rows
    wanted = {row[1] for row in rows}
    reached = {node for node in private.autograd_nodes(root) if node in wanted}
    return [row for row in rows if row[1] not in reached]

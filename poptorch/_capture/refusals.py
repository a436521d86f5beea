"""Lets a capture go on after a refused call, for a list of all that a model has."""

import contextlib
from dataclasses import dataclass

import torch

from poptorch._base.pytree.structure import map_only
from poptorch._base.torch_private import tracing as private
from poptorch._capture import capture_errors
from poptorch._capture.graph.constant_values import real_like
from poptorch._capture.graph.node_errors import name_of
from poptorch.errors import Error

_MOST_ELEMENTS = 1 << 24  # of tensors with values, where only these give the shape of a result


@dataclass(frozen=True)
class Refusal:
    """A refused call: the error, and where the user's program makes the call."""

    operation: str
    message: str
    place: tuple[str, int] | None
    module: str
    backward: bool = False


class Refusals:
    """What one capture has refused so far.

    Args:
        underived: calls whose gradient an earlier capture could not compute, by the name of their
            autograd node and their place.

    Attributes:
        found: the refusals, in the order of the calls.
        graph: what is recorded, as far as the capture came.
        failed: such a call of this capture, which ended it; or None.
    """

    def __init__(self, underived: dict[tuple, Exception] | None = None):
        self.underived = underived or {}
        self.failed: tuple | None = None
        self.graph: torch.fx.Graph | None = None
        self.found: list[Refusal] = []
        self._seen: list[Exception] = []

    def note(self, error: Exception, recorder, operation: str, backward: bool = False) -> None:
        """Notes an error at the present place, unless it was noted before."""
        if any(error is one for one in self._seen):
            return
        self._seen.append(error)
        self.found.append(Refusal(operation, str(error).partition("\n  at ")[0],
                                  recorder.places.here(), recorder.module,
                                  backward or recorder.in_backward))

    @contextlib.contextmanager
    def backward(self, loss: torch.Tensor, recorder):
        """The backward pass of ``loss`` runs in it. An error without a refused call of its own is
        noted as that of the forward call whose gradient is computed."""
        running = []
        for node in private.autograd_nodes(loss.grad_fn):
            node.register_prehook(lambda gradients, node=node: running.append(node))
        try:
            yield
        except Exception as error:
            meta = recorder.origin_of(running[-1]) if running else None
            if meta is not None and recorder.failed is None:
                recorder.failed = error, meta
                self.failed = running[-1].name(), meta["place"]
            raise

    def derived(self, capture, func, args, kwargs, out):
        """The result of a call, or tensors instead of it if its gradient cannot be computed."""
        recorder, place = capture.recorder, capture.recorder.places.here()
        for result in _tensors(out) if self.underived else ():
            error = result.grad_fn and self.underived.get((result.grad_fn.name(), place))
            if error is not None:
                self.note(error, recorder, name_of(func), backward=True)
                return self._instead(recorder, out, _tensors((args, kwargs)))
        return out

    def stand_in(self, capture, func, args, kwargs, error: Exception):
        """What a refused call gives instead: tensors of the right shape, or values read from ones.

        Raises the error itself if the user's program raised it, or if no result is known.
        """
        recorder = capture.recorder
        refused = capture_errors.of_forward(error, recorder.places, capture.module_names, None)
        if not isinstance(refused, Error):
            raise error
        out = _eager(recorder, func, args, kwargs)
        if out is NotImplemented:
            raise error
        self.note(refused, recorder, name_of(func))
        if recorder.values.unread is not None:
            self._seen.append(recorder.values.unread)
            recorder.values.unread = None
        given = _tensors((args, kwargs))
        if any(part is given[0] for part in _tensors(out)) or out is None:
            return out
        if _changes_first(func) and given:
            return given[0]
        return self._instead(recorder, out, given)

    @staticmethod
    def _instead(recorder, out, given: list[torch.Tensor]):
        return map_only(torch.Tensor, lambda x: _StandIn.apply(
            recorder, x.shape, x.dtype, *_differentiable(given, x)), out)


def _eager(recorder, func, args, kwargs):
    """What eager PyTorch gives for tensors like these: on the meta device, or else of ones."""
    given = _tensors((args, kwargs))
    with private.without_modes(), torch.no_grad():
        try:
            return func(*map_only(torch.Tensor, _meta, args),
                        **map_only(torch.Tensor, _meta, kwargs))
        except Exception:
            if sum(x.numel() for x in given) > _MOST_ELEMENTS:
                return NotImplemented
        try:
            args, kwargs = map_only(torch.Tensor, lambda x: real_like(recorder, x, 1),
                                    (args, kwargs))
            return func(*args, **kwargs)
        except Exception:
            return NotImplemented


def _meta(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _tensors(value) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_only(torch.Tensor, found.append, value)
    return found


def _changes_first(func) -> bool:
    name = getattr(func, "__name__", "")
    return name.endswith("_") and not name.endswith("__")


def _differentiable(given: list[torch.Tensor], result: torch.Tensor) -> list[torch.Tensor]:
    takes = result.is_floating_point() or result.is_complex()
    return [x for x in given if takes and x.requires_grad] if torch.is_grad_enabled() else []


class _StandIn(torch.autograd.Function):
    """Zeros that depend on the operands. Their nodes have ``stand_in``."""

    @staticmethod
    def forward(ctx, recorder, shape, dtype, *operands):
        ctx.recorder = recorder
        ctx.kinds = [(x.shape, x.dtype) for x in operands]
        return _zeros(recorder, shape, dtype)

    @staticmethod
    def backward(ctx, gradient):
        return None, None, None, *(_zeros(ctx.recorder, *kind) for kind in ctx.kinds)


def _zeros(recorder, shape, dtype) -> torch.Tensor:
    out = torch.zeros(shape, dtype=dtype)
    recorder.node_of(out).meta["stand_in"] = True
    return out

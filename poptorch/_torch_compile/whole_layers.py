"""Layers that stay one operation while AOTAutograd traces a graph, forward and backward.

Torch would take attention, batch norm, dropout and recurrent layers apart, or call operators of its
own that the device lacks. The handlers are those of a capture (``_capture/functions``).
"""

import itertools

import torch
import torch.nn.functional as F

from poptorch._base.torch_private import tracing as private
from poptorch._capture.functions import attention, layers, recurrent
from poptorch._capture.functions.mode import without_overrides
from poptorch._capture.library import losses  # noqa: F401  (declares cross_entropy)
from poptorch._capture.library.layers import ops
from poptorch.errors import Error

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


class WholeLayers(private.TorchFunctionMode):
    """Sends calls of torch's functions to the handlers that keep them whole.

    It is what these take as ``capture``. The random state is a result of the forward program, and
    an argument of the backward program: both drop the same elements. A graph has the same salts
    with gradients and without: torch.utils.checkpoint recomputes the same numbers.
    """

    def __init__(self):
        super().__init__()
        self._salts = itertools.count(1 << 16)  # behind those of a program's own operations

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            with self:
                return without_overrides(func)(*args, **kwargs)
        handler, out = _HANDLERS.get(func), NotImplemented
        if handler is not None and not private.is_transformed():
            out = handler(self, func, *args, **kwargs)
        return func(*args, **kwargs) if out is NotImplemented else out

    @property
    def recorder(self) -> "WholeLayers":
        return self

    def error(self, message: str) -> Error:
        return Error(message)

    def draw_salt(self) -> int:
        return next(self._salts)

    def random_state(self) -> torch.Tensor:
        return ops.random_state()

    def statistics_replicas(self) -> int:
        return 1

    def take_batch_count(self) -> None:
        return None


def _cross_entropy(capture, func, input, target, weight=None, size_average=None, ignore_index=-100,
                   reduce=None, reduction="mean", label_smoothing=0.0):
    if (input.dim() != 2 or target.dtype is not torch.int64 or target.shape != input.shape[:1]
            or label_smoothing != 0.0 or size_average is not None or reduce is not None
            or reduction not in _REDUCTIONS or not input.is_floating_point()
            or weight is not None and (weight.dtype is not input.dtype or weight.requires_grad)
            or torch.is_autocast_enabled("cpu")):
        return NotImplemented
    loss, *_ = ops.cross_entropy(input, target, weight, _REDUCTIONS[reduction], ignore_index)
    return loss


def _padded(handler):
    """A handler of recurrent layers, for all but packed sequences and LSTM with projections."""
    def handle(capture, func, /, *args, **kwargs):
        if kwargs or len(args) != 9 or not isinstance(args[3], bool):
            return NotImplemented
        states = args[1]
        if isinstance(states, (list, tuple)) and states[0].shape != states[-1].shape:
            return NotImplemented
        return handler(capture, func, *args)

    return handle


_HANDLERS = {
    **attention.HANDLERS,
    **{func: _padded(handler) for func, handler in recurrent.HANDLERS.items()},
    **{func: layers.HANDLERS[func] for func in (
        F.dropout, torch.dropout, torch.dropout_, F.dropout1d, F.dropout2d, F.dropout3d,
        F.batch_norm, torch.batch_norm)},
    F.cross_entropy: _cross_entropy,
}

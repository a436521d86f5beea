"""The loss scale of a program: multiplies the seed of the backward pass.

The host sends it with each call. The program divides it out again where it updates parameters.
With ``setAutomaticLossScaling`` it is multiplied by a factor that the program finds:

    large    = share of the elements of 16-bit gradients above LARGE, of all micro-batches and
               replicas
    overflow = a gradient that the optimizer would see is not finite

    overflow or large > MOST_LARGE   factor / 2, quiet = 0; with an overflow nothing is updated
    else, quiet + 1 < QUIET_UPDATES  quiet + 1
    else                             factor * 2, quiet = 0

Within bounds: the scale fits into the type of the loss, and the factor is not below LEAST.
"""

import math

import torch

from poptorch import _C
from poptorch._translate.backward_ops import cast, op

STREAM = "optimizer.loss_scale"
UPDATE_STREAM = "optimizer.loss_scale.update"
FACTOR, QUIET = "optimizer.loss_scale.factor", "optimizer.loss_scale.quiet"
LARGE = 2.0**14
MOST_LARGE = 2.0**-20
QUIET_UPDATES = 16
LEAST = 2.0**-24
# The largest scale for a loss of float16, and of another type.
MOST_OF_HALF, MOST = 2.0**15, 2.0**24
_HALVES = ("f16", "bf16")


class LossScale:
    """What one translation has of it.

    Once :meth:`finish` was called, ``value`` is what the host sent, ``final`` what the loss was
    multiplied by, ``inverse`` the factor that undoes it, and ``skip`` whether there was an overflow
    (None where that is not asked).
    """

    def __init__(self, spec, loss: torch.dtype):
        self._spec, self.loss = spec, loss
        self._elements = 0  # of the 16-bit gradients of one micro-batch
        self.is_automatic = spec.automatic_loss_scaling
        self.value = self.final = self.inverse = self.skip = None

    @property
    def states(self) -> list[tuple[str, str]]:
        """Path of each state, and what the optimizer calls it."""
        return [(FACTOR, "factor"), (QUIET, "quiet_updates")] if self.is_automatic else []

    def seed(self, e, node):
        """Where the gradient of the loss begins: its scale, of the loss's type and sizes."""
        val = node.meta["val"]
        scale = cast(e, self._final(e, self._initial(e, STREAM)), val.dtype)
        if not val.shape:
            return scale
        return e.plain("expand", [scale], {"size": list(val.shape), "part": "backward"})[0]

    def finish(self, e, gradients: dict) -> None:
        """Makes the values of the update, of the combined gradients of one replica."""
        self.value = self._initial(e, UPDATE_STREAM)
        self.final = self._final(e, self.value)
        rounded = cast(e, cast(e, self.final, self.loss), _wide(self.loss))
        self.inverse = op(e, "div", e.constant(1.0, _wide(self.loss)), rounded)
        if self.is_automatic:
            self.skip = self._overflow(e, gradients)

    # -- the automatic one ---------------------------------------------------------------------

    def count_large(self, e, gradients: dict):
        """The number of large elements of one micro-batch's 16-bit gradients."""
        total = e.constant(0.0, torch.float32)
        self._elements = 0
        for value in gradients.values():
            if value.dtype in _HALVES:
                self._elements += math.prod(value.sizes)
                size = op(e, "abs", cast(e, value, torch.float32))
                # So that NaN is large, too.
                is_small = op(e, "le", size, e.constant(LARGE, torch.float32))
                large = op(e, "cast", op(e, "logical_not", is_small), dtype=_C.DType("f32"))
                total = op(e, "add", total, op(e, "sum", large))
        return total

    def advance(self, e, large) -> None:
        """Finds the factor of the next update; ``large`` is from :meth:`count_large`, summed over
        micro-batches."""
        count = self._spec.accumulation * self._spec.replicas * self._elements
        allowed = e.constant(MOST_LARGE * count, torch.float32)
        is_large = op(e, "gt", self._over_replicas(e, large), allowed)
        shrinks = op(e, "logical_or", self.skip, is_large)
        factor, quiet = self._factor(e), e.state(QUIET, "optimizer", "f32", [])
        one, zero = e.constant(1.0, torch.float32), e.constant(0.0, torch.float32)
        after = op(e, "add", quiet, one)
        limit = e.constant(float(QUIET_UPDATES), torch.float32)
        is_due = op(e, "ge", after, limit)
        doubled = op(e, "mul", self.final, e.constant(2.0, torch.float32))
        most = MOST_OF_HALF if self.loss is torch.float16 else MOST
        fits = op(e, "le", doubled, e.constant(most, torch.float32))
        grows = op(e, "logical_and", is_due, fits)
        larger = op(e, "where", grows, op(e, "mul", factor, e.constant(2.0, torch.float32)),
                     factor)
        half = op(e, "mul", factor, e.constant(0.5, torch.float32))
        smaller = op(e, "maximum", half, e.constant(LEAST, torch.float32))
        begins = op(e, "logical_or", shrinks, is_due)
        for path, value in ((FACTOR, op(e, "where", shrinks, smaller, larger)),
                            (QUIET, op(e, "where", begins, zero, after))):
            e.plain("assign", [value], {"path": path}, [])

    def _overflow(self, e, gradients: dict):
        finite = None
        for value in gradients.values():
            # A sum is not finite where an element is not: one pass.
            wide = {"dtype": _C.DType("f32")} if value.dtype in _HALVES else {}
            own = op(e, "isfinite", op(e, "sum", value, **wide))
            finite = own if finite is None else op(e, "logical_and", finite, own)
        bad = op(e, "logical_not", finite)
        if self._spec.replicas == 1:
            return bad
        # Replicas of grouped weights have gradients of their own.
        count = self._over_replicas(e, op(e, "cast", bad, dtype=_C.DType("f32")))
        return op(e, "gt", count, e.constant(0.0, torch.float32))

    def _over_replicas(self, e, value):
        if self._spec.replicas == 1:
            return value
        return e.plain("all_reduce", [value], {"op": "sum", "part": "backward"})[0]

    # -- values --------------------------------------------------------------------------------

    def _initial(self, e, stream: str):
        sent = e.named("stream_in", stream, {"stream": stream, "repeat": True}, "f64", [])
        return cast(e, sent, torch.float32)

    def _factor(self, e):
        kept = e.state(FACTOR, "optimizer", "f32", [])
        # A state of 0 is not initialized.
        zero, one = e.constant(0.0, torch.float32), e.constant(1.0, torch.float32)
        return op(e, "where", op(e, "eq", kept, zero), one, kept)

    def _final(self, e, initial):
        return op(e, "mul", initial, self._factor(e)) if self.is_automatic else initial


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype is torch.float64 else torch.float32

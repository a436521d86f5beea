"""The factor of all gradients of an update: the inverse of the loss scale, and clipping."""

from collections.abc import Callable, Sequence

import torch

from poptorch._base.types import ir_dtype, torch_dtype
from poptorch._optimizer.settings import is_combined
from poptorch._optimizer.spec import FINAL_LOSS_SCALE, LOSS_SCALING
from poptorch._translate.backward_ops import cast, op
from poptorch._translate.loss_scale import STREAM, UPDATE_STREAM
from poptorch._translate.tensor_names import GRADIENT_NORM

NORM_STREAM = "optimizer.max_grad_norm"
# That of the backward pass, and that of the update.
LOSS_SCALE_STREAMS = STREAM, UPDATE_STREAM
# The largest number of each type that a loss may have.
LARGEST = {name: torch.finfo(torch_dtype(name)).max for name in ("f16", "bf16", "f32", "f64")}


class GradientFactor:
    """What the update multiplies all gradients by.

    Attributes:
        scale: the factor, without dimensions; None: 1.
        skip: whether nothing is updated; None: never.
        states: path and key of what exists once for all parameters.
        loss: dtype of the loss that is scaled; "": none is.
        loss_scale: the value that the host gave; None: 1.

    ``gradients`` are those of the parameters that the optimizer trains, by path; parts of those
    that are in ``shards``.
    """

    def __init__(self, scaling, wide: torch.dtype, spec, gradients: dict, shards):
        self._scaling, self._wide, self._spec, self._gradients = scaling, wide, spec, gradients
        self._shards = shards
        self._norm = None
        self.velocities = self.scale = self.skip = self.loss_scale = None
        self.states: list[tuple[str, str]] = []
        self.loss = ""
        if scaling is not None:
            self.scale, self.skip, self.loss_scale = scaling.inverse, scaling.skip, scaling.value
            self.states, self.loss = scaling.states, ir_dtype(scaling.loss)

    def clip_norm(self, e, limits: list) -> None:
        """Multiplies the factor by what ``torch.nn.utils.clip_grad_norm_`` multiplies by, for each
        limit. Infinite limits limit nothing."""
        if not self._gradients:
            return
        norm = self._norm = self._norm_of_all(e)
        one, infinity = self._number(e, 1.0), self._number(e, float("inf"))
        for limit in limits:
            limit = cast(e, limit, self._wide)
            share = op(e, "div", limit, op(e, "add", norm, self._number(e, 1e-6)))
            share = op(e, "where", op(e, "eq", limit, infinity), one,
                        op(e, "minimum", share, one))
            self.scale = share if self.scale is None else op(e, "mul", self.scale, share)
            norm = op(e, "mul", norm, share)

    def _norm_of_all(self, e):
        """The norm of all gradients together, before they are limited."""
        total = None
        for path, value in self._gradients.items():
            wide = cast(e, self._shards.whole(e, path, value), self._wide)
            squares = op(e, "sum", op(e, "mul", wide, wide))
            groups = self._spec.reducing(path)
            if groups.count > 1:  # each group of replicas has a part of the whole gradient
                squares = op(e, "all_reduce", squares, op="sum")
                squares = op(e, "div", squares, self._number(e, groups.size))
            total = squares if total is None else op(e, "add", total, squares)
        norm = op(e, "sqrt", total)
        inverse = None if self._scaling is None else self._scaling.inverse
        return norm if inverse is None else op(e, "mul", norm, inverse)

    def clip_values(self, e, limit: float) -> dict:
        """The gradients, multiplied by the factor, as ``torch.nn.utils.clip_grad_value_`` does."""
        clipped = {name: op(e, "clamp", self.applied(e, value), min=-limit, max=limit)
                   for name, value in self._gradients.items()}
        self.scale = None
        return clipped

    def applied(self, e, gradient):
        if self.scale is None:
            return gradient
        return op(e, "mul", cast(e, gradient, self._wide), self.scale)

    def of(self, e, group: dict, name: str):
        """The factor for one parameter group, whose hyper-parameters have the stream ``name``."""
        if not is_combined(group):
            return self.scale
        velocity = cast(e, stream(e, velocity_stream(name)), self._wide)
        return velocity if self.scale is None else op(e, "mul", self.scale, velocity)

    def bound(self, e) -> dict[str, Callable]:
        """What makes the values that anchors can name."""
        found = {LOSS_SCALING: lambda: e.constant(1.0, torch.float32) if self.loss_scale is None
                 else self.loss_scale}
        if self._gradients:
            found[GRADIENT_NORM] = lambda: self._norm or self._norm_of_all(e)
        if self._scaling is not None and self._scaling.is_automatic:
            found[FINAL_LOSS_SCALE] = lambda: self._scaling.final
        return found

    def _number(self, e, value: float):
        return e.constant(float(value), self._wide)


def stream(e, name: str, sizes: Sequence[int] = ()):
    """Numbers of the host that each iteration reads."""
    return e.named("stream_in", name, {"stream": name, "repeat": True}, "f64", list(sizes))


def velocity_stream(name: str) -> str:
    return f"{name}.velocity_scaling"


def number(e, hyper, index: int):
    return e.reshape(e.slice(hyper, 0, index, index + 1), [])

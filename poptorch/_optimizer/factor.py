"""By what the update multiplies gradients: the inverse of the loss scale, and the clipping."""

from collections.abc import Callable

import torch

from poptorch._base.types import ir_dtype, torch_dtype
from poptorch._optimizer.device_settings import is_combined
from poptorch._optimizer.spec import FINAL_LOSS_SCALE, LOSS_SCALING
from poptorch._translate.backward_ops import cast, op
from poptorch._translate.loss_scale import STREAM, UPDATE_STREAM

NORM_STREAM = "optimizer.max_grad_norm"
# That of the backward pass, and that of the update.
LOSS_SCALE_STREAMS = STREAM, UPDATE_STREAM
# The largest number of each type that a loss may have.
LARGEST = {name: torch.finfo(torch_dtype(name)).max for name in ("f16", "bf16", "f32", "f64")}


class GradientFactor:
    """What is the same for all gradients of one update.

    Args:
        scaling: the program's ``LossScale``; None without one.
        wide: the type to compute in, float64 where the gradients are.

    Attributes:
        scale: the factor, without dimensions; None: 1.
        skip: whether nothing is to be updated; None: never.
        velocities: the states that are what the update takes for gradients, ``Velocities``; None:
            there are none.
    """

    def __init__(self, scaling, wide: torch.dtype):
        self._scaling, self._wide = scaling, wide
        self.velocities = None
        self.scale = None if scaling is None else scaling.inverse
        self.skip = None if scaling is None else scaling.skip

    @property
    def states(self) -> list[tuple[str, str]]:
        """Path and key of what is kept once for all parameters."""
        return [] if self._scaling is None else self._scaling.states

    @property
    def loss(self) -> str:
        """Dtype of the loss that is scaled; "": none is."""
        return "" if self._scaling is None else ir_dtype(self._scaling.loss)

    @property
    def loss_scale(self):
        """What the host gave as loss scale; None: 1."""
        return None if self._scaling is None else self._scaling.value

    def clip_norm(self, e, spec, gradients: dict, limits: list) -> None:
        """Multiplies the factor by what ``torch.nn.utils.clip_grad_norm_`` multiplies by.

        Args:
            e: emitter of the graph that has the update.
            spec: the loops around the graph.
            gradients: the reduced gradients, by path; their norm is that of all of them together.
            limits: values that it is not to exceed; infinite ones set none.
        """
        total = None
        for path, value in gradients.items():
            wide = cast(e, value, self._wide)
            squares = op(e, "sum", op(e, "mul", wide, wide))
            groups = spec.reducing(path)
            if groups.count > 1:  # each group of replicas has a part of the whole gradient
                squares = op(e, "all_reduce", squares, op="sum")
                squares = op(e, "div", squares, self._number(e, groups.size))
            total = squares if total is None else op(e, "add", total, squares)
        if total is None:
            return
        norm = op(e, "sqrt", total)
        if self.scale is not None:
            norm = op(e, "mul", norm, self.scale)
        one, infinity = self._number(e, 1.0), self._number(e, float("inf"))
        for limit in limits:
            limit = cast(e, limit, self._wide)
            share = op(e, "div", limit, op(e, "add", norm, self._number(e, 1e-6)))
            share = op(e, "where", op(e, "eq", limit, infinity), one,
                        op(e, "minimum", share, one))
            self.scale = share if self.scale is None else op(e, "mul", self.scale, share)
            norm = op(e, "mul", norm, share)

    def clip_values(self, e, gradients: dict, limit: float) -> dict:
        """Gradients as ``torch.nn.utils.clip_grad_value_`` leaves them, the factor multiplied in.
        """
        clipped = {name: op(e, "clamp", self.applied(e, value), min=-limit, max=limit)
                   for name, value in gradients.items()}
        self.scale = None
        return clipped

    def applied(self, e, gradient):
        """A gradient as the update sees it; of 16 bits only where nothing is multiplied."""
        if self.scale is None:
            return gradient
        return op(e, "mul", cast(e, gradient, self._wide), self.scale)

    def of(self, e, group: dict, stream: str):
        """The factor for one parameter group.

        Args:
            e: emitter of the graph that has the update.
            group: with the settings of the device.
            stream: of its hyper-parameters.
        """
        if not is_combined(group):
            return self.scale
        sent = velocity_stream(stream)
        velocity = e.named("stream_in", sent, {"stream": sent, "repeat": True}, "f64", [])
        velocity = cast(e, velocity, self._wide)
        return velocity if self.scale is None else op(e, "mul", self.scale, velocity)

    def bound(self, e) -> dict[str, Callable]:
        """What makes the values that are shown of it, by name."""
        found = {LOSS_SCALING: lambda: e.constant(1.0, torch.float32) if self.loss_scale is None
                 else self.loss_scale}
        if self._scaling is not None and self._scaling.is_automatic:
            found[FINAL_LOSS_SCALE] = lambda: self._scaling.final
        return found

    def _number(self, e, value: float):
        return e.constant(float(value), self._wide)


def velocity_stream(stream: str) -> str:
    """The stream of the velocity scaling of a group."""
    return f"{stream}.velocity_scaling"


def number(e, hyper, index: int):
    """One number of a vector of hyper-parameters, without dimensions."""
    return e.reshape(e.slice(hyper, 0, index, index + 1), [])

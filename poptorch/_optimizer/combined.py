"""SGD with ``use_combined_accum``: gradients of micro-batches are added to the velocities.

    before the micro-batches   velocity * momentum
    each of them               + gradient / loss scale * velocity_scaling, and the divisors of means
    after them                 the new velocity, but for weight decay, which the update adds

So there is no accumulator beside the velocity. It needs what is added to be known at once: where
the norm of all gradients limits them, an overflow may skip the update, the gradients may be read
or ``dampening`` may not be 0, they are added up first, with the same result.
"""

import torch

from poptorch import _C
from poptorch._optimizer.factor import number, velocity_stream
from poptorch._translate import reduction

_KEY = "momentum_buffer"


class Velocities:
    """Those of one program that gradients are added to.

    Args:
        e: emitter of the graph of an iteration.
        spec: the loops around the captured graph.
        inverse: the value that undoes the loss scale; None without one.
    """

    def __init__(self, e, spec, inverse):
        self._e, self._spec, self._inverse = e, spec, inverse
        # What they hold before the micro-batches, and by what gradients are multiplied, by the
        # name of the parameter; and the latter value.
        self.begun: dict[str, object] = {}
        self.factor_of: dict[str, str] = {}
        self.factors: dict[str, object] = {}

    def add_group(self, stream: str, group: dict, params: dict[str, str], numbers: int) -> None:
        """Prepares the velocities of one parameter group.

        Args:
            stream: of its hyper-parameters.
            group: with the settings of the device.
            params: the dtype on the device by the name of the parameter, with its sizes.
            numbers: of the vector of hyper-parameters.
        """
        e = self._e
        hyper = e.named("stream_in", stream, {"stream": stream, "repeat": True}, "f64", [numbers])
        momentum = self._cast(number(e, hyper, 1), "f32")
        sent = velocity_stream(stream)
        scale = self._cast(e.named("stream_in", sent, {"stream": sent, "repeat": True}, "f64", []),
                           "f32")
        if self._inverse is not None:
            scale = e.op("mul", scale, self._cast(self._inverse, "f32"))
        self.factors[stream] = e.op("neg", scale) if group.get("maximize") else scale
        for name, (dtype, sizes) in params.items():
            before = e.state(f"{stream}.{_KEY}.{name}", "optimizer", dtype, sizes)
            own, groups = reduction.of(self._spec, before, name), self._spec.reducing(name)
            # As the reduction after the micro-batches leaves it once.
            times = own.last / (groups.size if own.over_replicas == "sum" else 1)
            kept = self._cast(momentum, dtype)
            if times != 1:
                kept = e.op("mul", kept, self._cast(e.constant(times, torch.float32), dtype))
            self.begun[name] = e.op("mul", before, kept)
            self.factor_of[name] = stream

    def _cast(self, value, dtype: str):
        return value if value.dtype == dtype else self._e.op("cast", value, dtype=_C.DType(dtype))


def emit(e, own: dict, hyper) -> dict:
    """Appends the update of one parameter.

    Args:
        e: emitter of the graph of an iteration.
        own: the values ``param`` and ``momentum_buffer``, and as ``grad`` the new velocity.
        hyper: the vector of hyper-parameters.

    Returns:
        The new values of the parameter and of its velocity.
    """
    none = e.op("mul", e.slice(hyper, 0, 1, 3), e.op("cast", e.constant(0.0, torch.float32),
                                                     dtype=_C.DType(hyper.dtype)))
    parts = [e.slice(hyper, 0, 0, 1), none, e.slice(hyper, 0, 3, 4)]
    without = e.op("cat", *parts, dim=0)
    # The first step takes what it is given as the velocity.
    operands = [own["param"], own["grad"], own[_KEY], e.constant(1.0, torch.float32), without]
    param, velocity = e.plain("sgd_update", operands, {})
    return {"param": param, _KEY: velocity}

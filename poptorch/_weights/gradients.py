"""``p.grad`` of parameters that a device trains: the gradient that was anchored, if one was.

The device keeps gradients to itself, so ``p.grad`` is None, as long as the program on the host has
not computed one. With ``options.anchorTensor("name", "Gradient___<parameter>")`` it is a copy of
the one of the last update: what the optimizer on the device saw.
"""

import sys
import weakref

import torch
from torch.nn.utils import clip_grad

from poptorch._base.logging import logger
from poptorch._translate.tensor_names import GRADIENT
from poptorch.enums import OutputMode

_CLIPPING = clip_grad.__file__
_OPTIMIZERS = torch.optim.__file__.rpartition("__init__")[0]
# By the identity of a parameter: itself, the Call of a program, and the name of the anchor.
_sources: dict[int, tuple] = {}
_told: "weakref.WeakSet[torch.nn.Module]" = weakref.WeakSet()


def provide(compiled, options) -> None:
    """Lets the parameters of a program show their gradients, as far as these are anchored."""
    program = compiled.program
    for short, (name, mode, _) in options.anchored_tensors.items():
        path = name.removeprefix(GRADIENT)
        if name.startswith(GRADIENT) and path in program.states \
                and path not in program.weight_groups \
                and (mode or options.output_mode) is not OutputMode.Sum:
            parameter, key = program.states[path], id(program.states[path])
            reference = weakref.ref(parameter, lambda _, key=key: _sources.pop(key, None))
            _sources[key] = reference, weakref.ref(compiled.call), short


def read(parameter: torch.Tensor, modules, depth: int) -> torch.Tensor | None:
    """``parameter.grad`` where the host has computed none: that of the last update, if it is
    anchored. ``modules`` are the wrapped ones that have it, ``depth`` are frames to the caller."""
    place = sys._getframe(depth).f_code.co_filename
    if place.startswith(_OPTIMIZERS):  # a step on the host would be one more update
        return None
    if place == _CLIPPING and parameter.requires_grad:
        _tell_of_clipping(modules)
    reference, call, short = _sources.get(id(parameter), (None, None, None))
    program = call() if call is not None and reference() is parameter else None
    values = None if program is None else program.anchored_if_run(short)
    if values is None:
        return None
    # Several replicas and device iterations: the last one.
    if parameter.is_complex():
        values = torch.view_as_complex(values)
    return values.reshape(-1, *parameter.shape)[-1].to(parameter.dtype, copy=True)


def _tell_of_clipping(modules) -> None:
    new = [module for module in modules if module not in _told]
    if new:
        _told.update(new)
        logger.warning("torch.nn.utils.clip_grad_norm_ or clip_grad_value_ was called on "
                       "parameters of %s, which a device trains: their gradients are on the "
                       "device, nothing is clipped. Use "
                       "options.Training.gradientClipping(norm=..., value=...), or max_grad_norm "
                       "of an optimizer of poptorch.optim.",
                       type(new[0]).__name__)

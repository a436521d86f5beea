"""Steps 1 to 4 without an executor: the text of a program that is not compiled."""

import copy
from dataclasses import dataclass

import torch

from poptorch import _C
from poptorch._base.checks import check_module
from poptorch._base.pytree import structure as pytree
from poptorch._base.torch_private.modes_off import plain_torch
from poptorch._executor.translation import translated
from poptorch._runtime import settings
from poptorch._runtime.wrapped import Wrapped
from poptorch._translate import StepSpec
from poptorch._weights.grouping import Groupings
from poptorch.options import Options
from poptorch.options._options import checked_options


@dataclass(frozen=True)
class Placed:
    """The text of a program after step 4, ``spec`` of its step, and its resolved options.

    ``samples`` are those of one call.
    """

    text: str
    samples: int
    spec: StepSpec
    options: Options


def placed(model: torch.nn.Module, options: Options, args: tuple, kwargs: dict,
           optimizer: torch.optim.Optimizer | None, where: str) -> Placed:
    """Places ``model`` for arguments like these, for training if there is an optimizer.

    Weights may be on the meta device, and arguments may be without values. Any number of IPUs is
    allowed. The model, the options and the optimizer stay as they are. ``where`` is for messages.
    """
    options = checked_options(options, where)
    check_module(model, where)
    with plain_torch():
        args, kwargs = pytree.map_only(torch.Tensor, with_memory, (args, kwargs))
    training = optimizer is not None
    wrapped = Wrapped(model, model, options, training, copied(optimizer))
    groups = Groupings(model, options.replication_factor, lambda: False).weight_groups()
    made = translated(wrapped, wrapped.options, groups, args, kwargs, lambda step: None,
                      is_run=False)
    with plain_torch():
        text = _C.placed_text(made.program.module,
                              {**settings.compile_options(wrapped.options), "max_ipus": 0,
                               "keep_text": False})
    return Placed(text, made.arguments.samples(), made.spec, wrapped.options)


def with_memory(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, or one of its shape on the CPU if it has no values. No value is written."""
    if tensor.is_meta or tensor.untyped_storage().device.type != "cpu":
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return tensor


def copied(optimizer: torch.optim.Optimizer | None) -> torch.optim.Optimizer | None:
    """An optimizer with the same parameters and states, whose settings are its own."""
    if optimizer is None:
        return None
    made = copy.copy(optimizer)
    made.param_groups = [dict(group) for group in optimizer.param_groups]
    return made

"""``step()`` on the CPU of optimizers that torch does not have, by the formulas of their rows."""

from collections.abc import Callable

import torch

from poptorch._optimizer.device_settings import groups_of
from poptorch._optimizer.spec import COUNT, OptimizerSpec, number_type


@torch.no_grad()
def host_step(optimizer: torch.optim.Optimizer, spec: OptimizerSpec, closure: Callable | None):
    """Updates every parameter that has a gradient.

    Args:
        optimizer: of the kind of ``spec``.
        spec: a row with a formula.
        closure: computes the loss and its gradients first; None: they are there.

    Returns:
        What the closure returned.

    Raises:
        RuntimeError: A gradient is sparse.
    """
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    for group in groups_of(optimizer):
        numbers = {hyper.name: torch.tensor(value, dtype=torch.float64)
                   for hyper, value in zip(spec.hyper, spec.hyper_values(group))}
        for parameter in group["params"]:
            if parameter.grad is not None:
                _update(spec, group, parameter, optimizer.state[parameter], numbers)
    return loss


def _update(spec: OptimizerSpec, group: dict, parameter: torch.Tensor, kept: dict,
            numbers: dict) -> None:
    if parameter.grad.is_sparse:
        raise RuntimeError(f"{spec.name} does not support sparse gradients")
    states = spec.states_of(group, parameter.shape)
    if not kept:
        kept[COUNT] = torch.zeros((), dtype=number_type())
        kept |= {state.key: torch.full_like(parameter, state.initial_in(group), dtype=state.dtype)
                 for state in states}
    kept[COUNT] += 1
    wide = torch.promote_types(parameter.dtype, torch.float32)
    own = {"param": parameter, "grad": parameter.grad,
           **{state.key: kept[state.key] for state in states}}
    fixed = {name: bool(group.get(name)) for name in spec.flags} | {"dtype": parameter.dtype}
    new = spec.evaluate(fixed, {**numbers, "step": kept[COUNT].double(),
                                **{name: value.to(wide) for name, value in own.items()}})
    for name, value in new.items():
        own[name].copy_(value)

"""SGD, Adam and AdamW. Each is torch's class of that name (so it also works on the CPU and with
learning-rate schedulers), marked as one of ours."""

from typing import Iterable

import torch


class Optimizer:
    """Marks the optimisers of this package: ``isinstance(opt, poptorch.optim.Optimizer)``.

    Example:
        >>> import torch, poptorch
        >>> net = torch.nn.Linear(2, 2)
        >>> isinstance(poptorch.optim.SGD(net.parameters(), lr=0.1), poptorch.optim.Optimizer)
        True
        >>> isinstance(torch.optim.SGD(net.parameters(), lr=0.1), poptorch.optim.Optimizer)
        False
    """


def _given(**settings) -> dict:
    return {name: value for name, value in settings.items() if value is not None}


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent, as ``torch.optim.SGD``.

    Args:
        params: parameters, or dictionaries of parameter groups.
        lr: learning rate.
        momentum: factor of the momentum buffer, default 0.
        dampening: dampening of the gradient that enters the momentum buffer, default 0.
        weight_decay: L2 penalty, default 0.
        nesterov: Nesterov momentum, default False.
        maximize: ascend instead of descend, default False.

    Raises:
        ValueError: A setting is out of torch's range.

    Example:
        >>> import torch, poptorch
        >>> net = torch.nn.Linear(2, 2)
        >>> opt = poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        >>> opt.param_groups[0]["momentum"]
        0.9
    """

    def __init__(self, params: Iterable, lr: float, momentum: float | None = None,
                 dampening: float | None = None, weight_decay: float | None = None,
                 nesterov: bool | None = None, maximize: bool | None = None):
        torch.optim.SGD.__init__(
            self, params, lr,
            **_given(momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                     nesterov=nesterov, maximize=maximize))


class Adam(Optimizer, torch.optim.Adam):
    """Adam, as ``torch.optim.Adam``.

    Args:
        params: parameters, or dictionaries of parameter groups.
        lr: learning rate, default 1e-3.
        betas: decay rates of the two moments, default (0.9, 0.999).
        eps: added to the denominator, default 1e-8.
        weight_decay: L2 penalty, default 0.
        amsgrad: keep the largest second moment, default False.
        maximize: ascend instead of descend, default False.

    Raises:
        ValueError: A setting is out of torch's range.

    Example:
        >>> import torch, poptorch
        >>> net = torch.nn.Linear(2, 2)
        >>> poptorch.optim.Adam(net.parameters(), lr=0.01).param_groups[0]["betas"]
        (0.9, 0.999)
    """

    def __init__(self, params: Iterable, lr: float | None = None,
                 betas: tuple[float, float] | None = None, eps: float | None = None,
                 weight_decay: float | None = None, amsgrad: bool | None = None,
                 maximize: bool | None = None):
        torch.optim.Adam.__init__(
            self, params,
            **_given(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                     maximize=maximize))


class AdamW(Optimizer, torch.optim.AdamW):
    """Adam with decoupled weight decay, as ``torch.optim.AdamW``.

    Args:
        params: parameters, or dictionaries of parameter groups.
        lr: learning rate, default 1e-3.
        betas: decay rates of the two moments, default (0.9, 0.999).
        eps: added to the denominator, default 1e-8.
        weight_decay: factor of the decay, default 0.01.
        amsgrad: keep the largest second moment, default False.
        maximize: ascend instead of descend, default False.

    Raises:
        ValueError: A setting is out of torch's range.

    Example:
        >>> import torch, poptorch
        >>> net = torch.nn.Linear(2, 2)
        >>> poptorch.optim.AdamW(net.parameters()).param_groups[0]["weight_decay"]
        0.01
    """

    def __init__(self, params: Iterable, lr: float | None = None,
                 betas: tuple[float, float] | None = None, eps: float | None = None,
                 weight_decay: float | None = None, amsgrad: bool | None = None,
                 maximize: bool | None = None):
        torch.optim.AdamW.__init__(
            self, params,
            **_given(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                     maximize=maximize))

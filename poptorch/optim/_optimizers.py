"""SGD, Adam and AdamW. Each is torch's class of that name (so it also works on the CPU and with
learning-rate schedulers), marked as one of ours."""

import torch
from torch.optim.optimizer import ParamsT

from poptorch.optim._optimizer import Optimizer


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent, as ``torch.optim.SGD``.

    Args:
        params: parameters, or dictionaries of parameter groups.
        lr: learning rate; None: torch's default, 1e-3.
        momentum: factor of the momentum buffer, default 0.
        dampening: dampening of the gradient that enters the momentum buffer, default 0.
        weight_decay: L2 penalty, default 0.
        nesterov: Nesterov momentum, default False.
        maximize: ascend instead of descend, default False.
        foreach, differentiable: how torch runs it on the CPU.
        loss_scaling: by which the device multiplies the loss, see :class:`Adam`.
        velocity_scaling: by which the momentum buffer is multiplied on the device, with
            ``use_combined_accum`` only. Default 1. ``state`` has it without the factor,
            ``ipu_state`` with it, and ``ipu_param`` has the factor, as
            ``velocityScaling___specific___p``.
        use_combined_accum: keep one tensor for the sum of gradients and the velocity, which saves
            the accumulator of ``gradientAccumulation``; not with Nesterov momentum. Default False.
        accum_type: type in which gradients of micro-batches and replicas are added up:
            torch.float16, torch.bfloat16 or torch.float32, the default.
        velocity_accum_type: type of the momentum buffer on the device, one of the same three.
        max_grad_norm: the largest norm of the gradients of all parameters together, as
            ``torch.nn.utils.clip_grad_norm_`` takes it. Default inf.

    Without momentum there is no state, and ``velocity_scaling``, ``use_combined_accum`` and
    ``velocity_accum_type`` change nothing. ``accum_type`` changes nothing where there is one
    micro-batch and one replica; with ``use_combined_accum`` neither type does.

    Raises:
        ValueError: A setting is out of torch's range.
        poptorch.Error: A setting of the device has a value that it cannot have.

    Example:
        >>> import torch, poptorch
        >>> net = torch.nn.Linear(2, 2)
        >>> opt = poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        >>> opt.param_groups[0]["momentum"]
        0.9
    """

    def __init__(self, params: ParamsT, lr: float | None, momentum: float | None = None,
                 dampening: float | None = None, weight_decay: float | None = None,
                 nesterov: bool | None = None, maximize: bool | None = None,
                 foreach: bool | None = None, differentiable: bool | None = None,
                 loss_scaling: float | None = None, velocity_scaling: float | None = None,
                 use_combined_accum: bool | None = None, accum_type: torch.dtype | None = None,
                 velocity_accum_type: torch.dtype | None = None,
                 max_grad_norm: float | None = None):
        self._begin(torch.optim.SGD, locals())


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
        foreach, capturable, differentiable, fused: how torch runs it on the CPU.
        loss_scaling: by which the device multiplies the loss before the backward pass, so that
            small gradients of 16 bits do not become zero; the update divides by it in float32.
            Default 1. Assign ``optimizer.loss_scaling`` and call ``setOptimizer`` to change it.
        accum_type: type in which gradients of micro-batches and replicas are added up:
            torch.float16, torch.bfloat16 or torch.float32, the default. It changes nothing where
            there is one micro-batch and one replica.
        first_order_momentum_accum_type, second_order_momentum_accum_type: types of the two moments
            on the device, each one of the same three.
        max_grad_norm: the largest norm of the gradients of all parameters together, as
            ``torch.nn.utils.clip_grad_norm_`` takes it. Default inf.

    Raises:
        ValueError: A setting is out of torch's range.
        poptorch.Error: A setting of the device has a value that it cannot have.

    Example:
        >>> import torch, poptorch
        >>> net = torch.nn.Linear(2, 2)
        >>> poptorch.optim.Adam(net.parameters(), lr=0.01).param_groups[0]["betas"]
        (0.9, 0.999)
    """

    def __init__(self, params: ParamsT, lr: float | None = None,
                 betas: tuple[float, float] | None = None, eps: float | None = None,
                 weight_decay: float | None = None, amsgrad: bool | None = None,
                 foreach: bool | None = None, maximize: bool | None = None,
                 capturable: bool | None = None, differentiable: bool | None = None,
                 fused: bool | None = None, loss_scaling: float | None = None,
                 accum_type: torch.dtype | None = None,
                 first_order_momentum_accum_type: torch.dtype | None = None,
                 second_order_momentum_accum_type: torch.dtype | None = None,
                 max_grad_norm: float | None = None):
        self._begin(torch.optim.Adam, locals())


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
        foreach, capturable: how torch runs it on the CPU.
        loss_scaling: by which the device multiplies the loss, see :class:`Adam`.
        bias_correction: divide the moments by what they lack in the beginning, default True.
        accum_type: type in which gradients of micro-batches and replicas are added up:
            torch.float16, torch.bfloat16 or torch.float32, the default. It changes nothing where
            there is one micro-batch and one replica.
        first_order_momentum_accum_type, second_order_momentum_accum_type: types of the two moments
            on the device, each one of the same three.
        max_grad_norm: the largest norm of the gradients of all parameters together, as
            ``torch.nn.utils.clip_grad_norm_`` takes it. Default inf.

    Raises:
        ValueError: A setting is out of torch's range.
        poptorch.Error: A setting of the device has a value that it cannot have.

    Example:
        >>> import torch, poptorch
        >>> net = torch.nn.Linear(2, 2)
        >>> poptorch.optim.AdamW(net.parameters()).param_groups[0]["weight_decay"]
        0.01
    """

    def __init__(self, params: ParamsT, lr: float | None = None,
                 betas: tuple[float, float] | None = None, eps: float | None = None,
                 weight_decay: float | None = None, amsgrad: bool | None = None,
                 maximize: bool | None = None, foreach: bool | None = None,
                 capturable: bool | None = None, loss_scaling: float | None = None,
                 bias_correction: bool | None = None, accum_type: torch.dtype | None = None,
                 first_order_momentum_accum_type: torch.dtype | None = None,
                 second_order_momentum_accum_type: torch.dtype | None = None,
                 max_grad_norm: float | None = None):
        self._begin(torch.optim.AdamW, locals())

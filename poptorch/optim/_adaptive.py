"""RMSprop and LAMB, for the CPU, too."""

import torch
from torch.optim.optimizer import ParamsT

from poptorch._optimizer import rows
from poptorch.optim._optimizer import Optimizer


class RMSprop(Optimizer, torch.optim.RMSprop):
    """RMSprop, as ``torch.optim.RMSprop`` or as TensorFlow has it.

    The TensorFlow variant begins with a mean square of 1, adds ``eps`` to it before the root is
    taken, and with momentum has the learning rate of each step in the buffer.

    Args:
        params: parameters, or dictionaries of parameter groups.
        lr: learning rate, default 1e-2.
        alpha: decay rate of the mean square, default 0.99.
        eps: added to the denominator, default 1e-8.
        weight_decay: L2 penalty, default 0.
        momentum: factor of the momentum buffer, default 0.
        centered: divide by the deviation of gradients from their mean, default False.
        foreach, differentiable: how torch runs it on the CPU.
        maximize: ascend instead of descend, default False.
        loss_scaling: by which the device multiplies the loss, see :class:`Adam`.
        accum_type: type in which gradients of micro-batches and replicas are added up, default
            torch.float32.
        first_order_momentum_accum_type, second_order_momentum_accum_type: types of the states on
            the device, default torch.float32: of momentum and mean, and of the mean square.
        use_tf_variant: the TensorFlow variant, default False; a key of parameter groups, too.

    Raises:
        ValueError: A setting is out of torch's range.
        poptorch.Error: A setting of the device has a value that it cannot have.

    Example:
        >>> import torch, poptorch
        >>> net = torch.nn.Linear(2, 2)
        >>> opt = poptorch.optim.RMSprop(net.parameters(), lr=0.01, use_tf_variant=True)
        >>> net(torch.ones(1, 2)).sum().backward()
        >>> opt.step()
        >>> opt.state[net.bias]["square_avg"]
        tensor([1., 1.])
    """

    def __init__(self, params: ParamsT, lr: float | None = None, alpha: float | None = None,
                 eps: float | None = None, weight_decay: float | None = None,
                 momentum: float | None = None, centered: bool | None = None,
                 foreach: bool | None = None, maximize: bool | None = None,
                 differentiable: bool | None = None, loss_scaling: float | None = None,
                 accum_type: torch.dtype | None = None,
                 first_order_momentum_accum_type: torch.dtype | None = None,
                 second_order_momentum_accum_type: torch.dtype | None = None,
                 use_tf_variant: bool | None = None):
        self._begin(torch.optim.RMSprop, locals())
        self.defaults["use_tf_variant"] = bool(use_tf_variant)
        for group in self.param_groups:
            group.setdefault("use_tf_variant", bool(use_tf_variant))

    @property
    def use_tf_variant(self) -> bool:
        """Whether the first parameter group is of the TensorFlow variant."""
        return bool(self.param_groups[0].get("use_tf_variant"))

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # that of torch says nothing of the variant
            group.setdefault("use_tf_variant", self.defaults.get("use_tf_variant", False))


class LAMB(Optimizer, rows.LAMB):
    """LAMB (arXiv 1904.00962): Adam whose steps are scaled by the parameter's norm.

    The update ``r`` is Adam's, plus ``weight_decay`` times the parameter ``p``; the step is
    ``lr * min(norm(p), max_weight_norm) / norm(r) * r``, and ``lr * r`` where a norm is 0.

    Args:
        params: parameters, or dictionaries of parameter groups.
        lr: learning rate, default 1e-3.
        betas: decay rates of the two moments, default (0.9, 0.999).
        eps: added to the denominator, default 1e-8.
        weight_decay: factor of the parameter in its update, default 0.
        bias_correction: correct the moments for their beginning at zero, default True; a key of
            parameter groups, too.
        loss_scaling: by which the device multiplies the loss, see :class:`Adam`.
        accum_type: type in which gradients of micro-batches and replicas are added up, default
            torch.float32.
        first_order_momentum_accum_type, second_order_momentum_accum_type: types of the states on
            the device, default torch.float32: of the first moment, and of the second one.
        max_weight_norm: the largest norm of a parameter that counts, default None: any; a key of
            parameter groups, too.

    Raises:
        ValueError: A setting is out of range.
        poptorch.Error: A setting of the device has a value that it cannot have.

    Example:
        >>> import torch, poptorch
        >>> net = torch.nn.Linear(2, 2)
        >>> opt = poptorch.optim.LAMB(net.parameters(), lr=0.01, weight_decay=0.1)
        >>> net(torch.ones(1, 2)).sum().backward()
        >>> opt.step()
        >>> list(opt.state[net.weight])
        ['step', 'exp_avg', 'exp_avg_sq']
    """

    def __init__(self, params: ParamsT, lr: float | None = None,
                 betas: tuple[float, float] | None = None, eps: float | None = None,
                 weight_decay: float | None = None, bias_correction: bool | None = None,
                 loss_scaling: float | None = None, max_weight_norm: float | None = None,
                 accum_type: torch.dtype | None = None,
                 first_order_momentum_accum_type: torch.dtype | None = None,
                 second_order_momentum_accum_type: torch.dtype | None = None):
        self._begin(rows.LAMB, locals())

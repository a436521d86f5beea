"""A function of the user's between the gradients and an optimizer."""

from collections.abc import Callable
from typing import Any

import torch

from poptorch._optimizer.settings import DeviceSettings


class MapGradients(torch.optim.Optimizer):
    """Changes each gradient by a function before an optimizer uses it.

    ``step()`` replaces the gradient of each parameter by ``fn(parameter, gradient)``, then calls
    ``step()`` of the optimizer. A training model captures both, and applies them on the device to
    the gradients of the whole update: accumulated, reduced over replicas and clipped. Parameter
    groups and state are those of the optimizer, so learning-rate schedulers take either.

    Args:
        optimizer: one of ``torch.optim``, or one with its own ``step()``.
        fn: gets a parameter and its gradient, a tensor of the same shape and type; returns the
            gradient that the optimizer uses, of that shape.

    Raises:
        TypeError: ``optimizer`` is not an optimizer, or is one of ``poptorch.optim``, whose device
            settings would have no effect; or ``fn`` is not callable. ``step()`` raises it if
            ``fn`` does not return a tensor.

    Example:
        >>> import poptorch, torch
        >>> class Net(torch.nn.Linear):
        ...     def forward(self, x):
        ...         return poptorch.identity_loss(super().forward(x), "sum")
        >>> net = Net(2, 1, bias=False)
        >>> start = net.weight.detach().clone()
        >>> optimizer = poptorch.optim.MapGradients(
        ...     torch.optim.SGD(net.parameters(), lr=1.0), lambda p, grad: grad.clamp(max=0.5))
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> loss = poptorch.trainingModel(net, opts, optimizer)(torch.tensor([[2.0, 0.25]]))
        >>> start - net.weight
        tensor([[0.5000, 0.2500]], grad_fn=<SubBackward0>)
    """

    def __init__(self, optimizer: torch.optim.Optimizer,
                 fn: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]):
        if not isinstance(optimizer, torch.optim.Optimizer) or isinstance(optimizer,
                                                                          DeviceSettings):
            raise TypeError(f"[MapGradients] expected an optimizer of torch.optim, got "
                            f"{type(optimizer).__module__}.{type(optimizer).__name__}. Pass "
                            f"one of torch.optim, or one with its own step().")
        if not callable(fn):
            raise TypeError(f"[MapGradients] fn must be a function of a parameter and its "
                            f"gradient, got {type(fn).__name__}. Pass a function.")
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.optimizer, self.fn = optimizer, fn
        self._share()

    def _share(self) -> None:
        self.param_groups, self.state = self.optimizer.param_groups, self.optimizer.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Changes the gradients and updates the parameters.

        Args:
            closure: computes the loss and its gradients first; None: they are there.

        Returns:
            What the closure returned.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad = self._mapped(parameter)
        self.optimizer.step()
        return loss

    def _mapped(self, parameter: torch.Tensor) -> torch.Tensor:
        gradient = self.fn(parameter, parameter.grad)
        if not isinstance(gradient, torch.Tensor):
            raise TypeError(f"[MapGradients] expected a tensor from fn, got "
                            f"{type(gradient).__name__}. Return the new gradient.")
        return gradient

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters to the optimizer.

        Args:
            param_group: as ``torch.optim.Optimizer.add_param_group`` takes it.
        """
        if "optimizer" in vars(self):
            self.optimizer.add_param_group(param_group)
        else:  # torch's __init__
            super().add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimizer."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the state of an optimizer of the same kind.

        Args:
            state_dict: what ``state_dict()`` returned, of this class or of the optimizer.
        """
        self.optimizer.load_state_dict(state_dict)
        self._share()

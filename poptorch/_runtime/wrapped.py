"""What an executor wraps. Its programs depend on this and on the arguments of a call."""

import torch

from poptorch._guards.training_modes import TrainingModes
from poptorch._optimizer.link import OptimizerLink, default_optimizer
from poptorch._optimizer.rows import has_own_step
from poptorch._own_step.on_host import HostLink
from poptorch._runtime import settings
from poptorch.enums import MeanReductionStrategy
from poptorch.errors import Error
from poptorch.options import Options

_STRATEGY = "mean_accumulation_and_replication_reduction_strategy"


def _link_of(module: torch.nn.Module, options: Options, optimizer: torch.optim.Optimizer | None):
    """What connects an executor with its optimizer."""
    if options.Training.optimizer_on_host:
        return HostLink(module, optimizer or default_optimizer(module), options)
    if has_own_step(optimizer):
        from poptorch._own_step.link import StepLink  # heavy parts of torch

        return StepLink(module, optimizer)
    return OptimizerLink(module, optimizer, options.relax_optimizer_attributes_checks)


class Wrapped:
    """The module, the options and the optimizer.

    ``model`` is captured; the options and the optimizer refer to ``user_model``.

    Attributes:
        given_options: the user's; ``options`` are the resolved ones.
        optimizer: the ``OptimizerLink``, by default of SGD with a learning rate of 0.01; None for
            inference.
        modes: which layers are in training mode.
    """

    def __init__(self, model: torch.nn.Module, user_model: torch.nn.Module, options: Options,
                 training: bool, optimizer: torch.optim.Optimizer | None):
        self.model = model
        self.user_model = user_model
        self.training = training
        self.given_options = options
        self.options = settings.resolved(options, training)
        self.optimizer = _link_of(user_model, self.options, optimizer) if training else None
        self.modes = TrainingModes(model)
        self.decide_options()

    def decide_options(self) -> None:
        """Chooses when to divide, if the user leaves it open: half sums must not overflow."""
        if self.optimizer is not None and getattr(self.given_options.Training, _STRATEGY) is None:
            self.options.Training._values[_STRATEGY] = (  # though they are frozen
                MeanReductionStrategy.Running if self.optimizer.has_half_sums()
                else MeanReductionStrategy.Post)

    def setOptimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Uses another optimizer, or the same one with other settings, from the next call on.

        Args:
            optimizer: of the same kind as the compiled one; learning rates and other numbers
                may differ.

        Raises:
            ValueError: It would change what is compiled in.
            poptorch.Error: The model was not wrapped for training.

        Example:
            >>> import poptorch, torch
            >>> class Scale(torch.nn.Module):
            ...     def __init__(self):
            ...         super().__init__()
            ...         self.w = torch.nn.Parameter(torch.ones(()))
            ...     def forward(self, x):
            ...         return poptorch.identity_loss(self.w * x, "sum")
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> net = Scale()
            >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
            >>> model = poptorch.trainingModel(net, opts, optimizer)
            >>> loss = model(torch.ones(3))  # w is 1 - 0.5 * 3
            >>> optimizer.param_groups[0]["lr"] = 1.0
            >>> model.setOptimizer(optimizer)
            >>> loss = model(torch.ones(3))
            >>> net.w.item()
            -3.5
        """
        if self.optimizer is None:
            raise Error("[setOptimizer] this model was wrapped for inference, which has no "
                        "optimizer. Use poptorch.trainingModel.")
        self.optimizer.set(optimizer)
        if not self.optimizer.is_compiled:
            self.decide_options()

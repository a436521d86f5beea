"""The executor's methods that copy weights between the module and the device."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from poptorch._base import interrupts
from poptorch._runtime.programs import Programs
from poptorch._runtime.wrapped import Wrapped
from poptorch._weights.link import WeightLink
from poptorch.errors import Error


@dataclass(frozen=True)
class WeightCopies:
    """Keeps the module's weights and the device's the same."""

    wrapped: Wrapped
    programs: Programs
    weights: WeightLink

    def copyWeightsToDevice(self) -> None:
        """Copies the module's parameters and buffers to the device. Done by the first call.

        What the host writes to them later is seen by the device after the next call of this. What
        another thread writes to them *meanwhile* may be lost. An executor that is detached gets
        them when it has a device again; others that have copies of the same tensors get them now.

        Raises:
            poptorch.Error: The model is not compiled.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> x = torch.ones(1, 4)
            >>> _ = model(x)
            >>> with torch.no_grad():
            ...     _ = model.bias.fill_(3), model.weight.fill_(0)
            >>> model.copyWeightsToDevice()
            >>> model(x)
            tensor([[3., 3.]])
        """
        with interrupts.deferred():
            program = self.programs.require("copyWeightsToDevice")
            if not program.guards.are_tensors_fit():
                program.require_unchanged("copyWeightsToDevice")
            self.weights.to_device(program)

    def copyWeightsToHost(self) -> None:
        """Copies the trained parameters and buffers from the device into the module.

        Reading a parameter, ``state_dict``, ``save`` and other wrappers of the module do it by
        themselves where the device has newer values.

        Raises:
            poptorch.Error: The model is not compiled.

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
            >>> loss = model(torch.ones(3))
            >>> model.copyWeightsToHost()
            >>> net.w.item()
            -0.5
        """
        with interrupts.deferred():
            self.programs.require("copyWeightsToHost")
            self.weights.to_host()

    def copyNamedBuffersToDevice(self) -> None:
        """Copies the buffers that ``Options.updatableNamedBuffers`` names to the device.

        Raises:
            poptorch.Error: The options name none, or the model is not compiled.

        Example:
            >>> import poptorch, torch
            >>> class Shift(torch.nn.Module):
            ...     def __init__(self):
            ...         super().__init__()
            ...         self.register_buffer("by", torch.zeros(2))
            ...     def forward(self, x):
            ...         return x + self.by
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> _ = opts.updatableNamedBuffers(["by"])
            >>> model = poptorch.inferenceModel(Shift(), opts)
            >>> _ = model(torch.ones(2)), model.by.fill_(5)
            >>> model.copyNamedBuffersToDevice()
            >>> model(torch.ones(2))
            tensor([6., 6.])
        """
        program = self.programs.require("copyNamedBuffersToDevice")
        names = self.wrapped.options.updatable_named_buffers
        if not names:
            raise Error("[copyNamedBuffersToDevice] the options name no buffers. Call "
                        "options.updatableNamedBuffers([...]) before the model is wrapped.")
        self.weights.to_device(program, names)

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Copies weights to the module if the device has newer ones.

        Returns:
            True when they were copied, False when the module was up to date.

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
            >>> loss = model(torch.ones(3))
            >>> model.copyWeightsToHostIfNeeded(), model.copyWeightsToHostIfNeeded()
            (True, False)
        """
        return self.weights.pull_to_host()

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The module's ``state_dict``, with the trained values.

        Args:
            args: as ``torch.nn.Module.state_dict`` takes them.
            kwargs: keyword arguments of the same call.

        Returns:
            Parameters and buffers by name.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> list(model.state_dict())
            ['weight', 'bias']
        """
        self.weights.pull_to_host()
        return self.wrapped.user_model.state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> Any:
        """Loads values into the module, and to the device if the model is compiled.

        Args:
            state_dict: values by name, as from :meth:`state_dict`.
            strict: whether the names must be exactly the module's.

        Returns:
            A named tuple with ``missing_keys`` and ``unexpected_keys``.

        Raises:
            RuntimeError: ``strict``, and the names differ; or a shape does.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> x, values = torch.ones(1, 4), {"bias": torch.ones(2), "weight": torch.zeros(2, 4)}
            >>> _ = model(x), model.load_state_dict(values)
            >>> model(x)
            tensor([[1., 1.]])
        """
        self.weights.pull_to_host()
        result = self.wrapped.user_model.load_state_dict(state_dict, strict)
        self.weights.loaded()
        return result

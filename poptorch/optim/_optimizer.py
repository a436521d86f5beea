"""What all optimizers of this package share: settings of the device, and a state that is there."""

import torch

from poptorch._executor.optimizer_state import OptimizerState
from poptorch.errors import Error

# Settings of the device whose work comes later, and the value that asks for none of it.
SETTINGS = {
    "loss_scaling": 1.0, "velocity_scaling": 1.0, "use_combined_accum": False,
    "accum_type": torch.float32, "velocity_accum_type": torch.float32,
    "first_order_momentum_accum_type": torch.float32,
    "second_order_momentum_accum_type": torch.float32,
    "max_grad_norm": float("inf"), "bias_correction": True,
}
_STATE, _SETTINGS = "ipu_state", "ipu_param"


class Optimizer:
    """Marks the optimizers of this package: ``isinstance(opt, poptorch.optim.Optimizer)``.

    Once a model is compiled with such an optimizer, its state is that of the device:
    :meth:`state_dict` reads it and :meth:`load_state_dict` writes it. An optimizer of
    ``torch.optim`` trains as well, but its state cannot be read back.

    Example:
        >>> import torch, poptorch
        >>> net = torch.nn.Linear(2, 2)
        >>> isinstance(poptorch.optim.SGD(net.parameters(), lr=0.1), poptorch.optim.Optimizer)
        True
        >>> isinstance(torch.optim.SGD(net.parameters(), lr=0.1), poptorch.optim.Optimizer)
        False
    """

    # That of the executor that last took this optimizer.
    _device_state: OptimizerState | None = None

    def _configure(self, **settings) -> None:
        """Keeps the settings of the device as attributes; None stands for the default."""
        for name, value in settings.items():
            setattr(self, name, SETTINGS[name] if value is None else value)
        self._check_settings()

    def _check_settings(self) -> None:
        """Raises an Error when a setting, of the optimizer or of a group, asks for what comes
        later."""
        for where, settings in [("", vars(self)), *(
                (f" of parameter group {number}", group)
                for number, group in enumerate(getattr(self, "param_groups", ())))]:
            for name, neutral in SETTINGS.items():
                value = settings.get(name)
                if value is not None and value != neutral:
                    raise Error(f"[optim.{type(self).__name__}] {name}={value!r}{where} is not "
                                f"there yet: it comes later, this version of poptorch has only "
                                f"{neutral!r}. Leave it out.")

    def _attach(self, state: OptimizerState) -> None:
        """Makes the state of an executor the one that this optimizer shows."""
        if self._device_state not in (None, state):
            state.take(self._device_state)
        state.is_exported = True
        self._device_state = state

    def state_dict(self) -> dict:
        """The optimizer's state, that of the device included.

        The first call after a run reads it from the device, later ones do not. It is what
        ``torch.save`` can write and :meth:`load_state_dict` of an optimizer of the same model
        takes, in this process or another one.

        Returns:
            What the optimizer of ``torch.optim`` returns, and two more entries: ``"ipu_state"``,
            the tensors of the device by name, of the shapes of the parameters (one of
            ``(groups, ...)`` where a parameter has a value for each group of replicas), and
            ``"ipu_param"``, the numbers that its updates use. A parameter ``p`` has the states
            ``Accl1___p`` (momentum, or the first moment), ``Accl2___p`` (the second moment),
            ``MaxAccl2___p`` (its maximum) and ``Step___p`` (updates so far), as far as the
            optimizer needs them. Both are None before the model is compiled, and where it is
            compiled for elsewhere.

        Example:
            >>> import poptorch, torch
            >>> class Net(torch.nn.Linear):
            ...     def forward(self, x):
            ...         return poptorch.identity_loss(super().forward(x), "mean")
            >>> net = Net(4, 2)
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> optimizer = poptorch.optim.SGD(net.parameters(), lr=0.5, momentum=0.75)
            >>> model = poptorch.trainingModel(net, opts, optimizer)
            >>> loss = model(torch.ones(3, 4))
            >>> state = optimizer.state_dict()
            >>> {name: tuple(value.shape) for name, value in state["ipu_state"].items()
            ...  if name.startswith("Accl1")}
            {'Accl1___weight': (2, 4), 'Accl1___bias': (2,)}
            >>> state["ipu_param"]["scaledLearningRate0___specific___weight"]
            tensor(0.5000)
        """
        held = self._device_state
        state = held.values() if held is not None else None
        settings = held.settings(self.param_groups) if state is not None else None
        return {**super().state_dict(), _STATE: state, _SETTINGS: settings}

    def load_state_dict(self, state_dict: dict) -> None:
        """Takes a state that :meth:`state_dict` returned.

        The parameter groups (learning rates and so on) are those of the state at once. What
        belongs to the device goes there with the next run, whether or not the model is compiled
        now; until then it is kept, also if the executor is destroyed or gets a new optimizer.
        States that it does not have stay as they are. ``"ipu_param"`` is for reading: the numbers
        that updates use are those of the parameter groups.

        Args:
            state_dict: the state. One of ``torch.optim`` is taken with both entries None:
                ``{"ipu_state": None, "ipu_param": None, **state}``.

        Raises:
            RuntimeError: It lacks the two entries, so it is none of a device.
            ValueError: It has other parameter groups.
            TypeError: An entry is not a dictionary of tensors.
        """
        if not {_STATE, _SETTINGS} <= state_dict.keys():
            missing = " and ".join(f"{name!r}" for name in (_STATE, _SETTINGS)
                                   if name not in state_dict)
            raise RuntimeError(
                "Only IPU optimizer states can be loaded onto the IPU. This one has no "
                f"{missing}: it is of another optimizer than those of poptorch.optim. To begin "
                f"with it, pass {{'{_STATE}': None, '{_SETTINGS}': None, **state_dict}}.")
        given = dict(state_dict)
        state, settings = (_tensors(name, given.pop(name)) for name in (_STATE, _SETTINGS))
        super().load_state_dict(given)
        if self._device_state is None:
            self._attach(OptimizerState())
        self._device_state.load(state, settings, self)

    def __getstate__(self) -> dict:
        own = {name: vars(self)[name] for name in SETTINGS if name in vars(self)}
        return {**super().__getstate__(), **own}

    def __copy__(self) -> "Optimizer":
        # Like torch's part of the state, which a shallow copy shares, too.
        copied = type(self).__new__(type(self))
        copied.__setstate__(self.__getstate__())
        if self._device_state is not None:
            copied._device_state = self._device_state
        return copied


def _tensors(name: str, values) -> dict[str, torch.Tensor] | None:
    if values is None:
        return None
    if not isinstance(values, dict) or \
            not all(isinstance(value, torch.Tensor) for value in values.values()):
        raise TypeError(f"[load_state_dict] {name} must be a dictionary of tensors or None, got "
                        f"{values!r:.80}. Pass what state_dict() returned.")
    return {key: value.detach().clone() for key, value in values.items()}

"""What all optimizers of this package share: settings of the device, and ``ipu_state``."""

from collections.abc import Iterable

import torch

from poptorch._optimizer.device_settings import SETTINGS, DeviceSettings, groups_of
from poptorch._optimizer.live import KEPT, live
from poptorch.optim._variable_attributes import VariableAttributes

_STATE, _SETTINGS = "ipu_state", "ipu_param"


class Optimizer(DeviceSettings):
    """Marks the optimizers of this package: ``isinstance(opt, poptorch.optim.Optimizer)``.

    Its :meth:`state_dict` shows the state that the device has twice: as PyTorch's optimizers do,
    and by the device's names. An optimizer of ``torch.optim`` trains as well and shows the former.

    Example:
        >>> import torch, poptorch
        >>> net = torch.nn.Linear(2, 2)
        >>> isinstance(poptorch.optim.SGD(net.parameters(), lr=0.1), poptorch.optim.Optimizer)
        True
        >>> isinstance(torch.optim.SGD(net.parameters(), lr=0.1), poptorch.optim.Optimizer)
        False
    """

    def _begin(self, base: type, params: Iterable, known: dict, settings: dict) -> None:
        """What ``__init__`` does.

        Args:
            base: torch's class.
            params: parameters, or parameter groups.
            known: arguments of torch's class by name; None: not given.
            settings: those of the device, likewise.
        """
        given = {name: value for name, value in known.items() if value is not None}
        base.__init__(self, params, **given)
        self._configure(**settings)
        own = {name for name, value in settings.items() if value is not None}
        self.variable_attrs = VariableAttributes({"lr", *given, *own}, [*known, *settings])

    def state_dict(self) -> dict:
        """The optimizer's state, that of the device included.

        The first call after a run reads it from the device, later ones do not. It is what
        ``torch.save`` can write and :meth:`load_state_dict` of an optimizer of the same model
        takes, in this process or another one.

        Returns:
            What the optimizer of ``torch.optim`` returns, the present ``"state"`` included, and
            two more entries: ``"ipu_state"``, the tensors of the device by name, of the shapes of
            the parameters (one of ``(groups, ...)`` where a parameter has a value for each group
            of replicas), and ``"ipu_param"``, the numbers that its updates use. A parameter ``p``
            has the states ``Accl1___p`` (momentum, or the first moment), ``Accl2___p`` (the second
            moment), ``MaxAccl2___p`` (its maximum) and ``Step___p`` (updates so far), as far as
            the optimizer needs them. Both are None before the model is compiled, and where it is
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
        shown, store = super().state_dict(), live(self)
        groups = groups_of(self)
        state = store.named(groups)
        settings = None if state is None else store.settings(groups)
        return {**shown, _STATE: state, _SETTINGS: settings}

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
            RuntimeError: It lacks the two entries, so it is not the state of a device's optimizer.
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
        store = live(self)
        super().load_state_dict(given)
        content, self.state = self.state, store
        store.load(state, settings, content)

    def __getstate__(self) -> dict:
        kept = live(self).kept()
        return {**self._shallow_state(), **({KEPT: kept} if kept else {})}

    def _shallow_state(self) -> dict:
        own = {name: vars(self)[name] for name in (*SETTINGS, "variable_attrs")
               if name in vars(self)}
        return {**super().__getstate__(), **own}

    def __copy__(self) -> "Optimizer":
        copied = type(self).__new__(type(self))
        copied.__setstate__(self._shallow_state())  # which shares the state, as torch's do
        return copied


def _tensors(name: str, values) -> dict[str, torch.Tensor] | None:
    if values is None:
        return None
    if not isinstance(values, dict) or \
            not all(isinstance(value, torch.Tensor) for value in values.values()):
        raise TypeError(f"[load_state_dict] {name} must be a dictionary of tensors or None, got "
                        f"{values!r:.80}. Pass what state_dict() returned.")
    return {key: value.detach().clone() for key, value in values.items()}

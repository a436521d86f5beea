"""What all optimizers of this package share: settings of the device, and ``ipu_state``."""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from poptorch._optimizer.formulas import host_step
from poptorch._optimizer.live_states import KEPT, live
from poptorch._optimizer.rows import spec_of
from poptorch._optimizer.settings import SETTINGS, DeviceSettings, check, groups_of
from poptorch._optimizer.spec import COUNT, GLOBAL
from poptorch._optimizer.state_names import names_of, use_saved_form
from poptorch.errors import Error
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

    def _begin(self, base: type, arguments: dict) -> None:
        """Initializes an optimizer from the arguments of its ``__init__``, ``self`` included, where
        None means not given. ``base`` is PyTorch's class."""
        names = [name for name in arguments if name in inspect.signature(base).parameters]
        names.remove("params")
        settings = {name: value for name, value in arguments.items()
                    if name in SETTINGS and name not in names}
        given = {name: arguments[name] for name in names if arguments[name] is not None}
        base.__init__(self, arguments["params"], **given)
        for name, value in settings.items():
            setattr(self, name, SETTINGS[name] if value is None else value)
        check(self)
        own = {name for name, value in settings.items() if value is not None}
        self.variable_attrs = VariableAttributes({"lr", *given, *own}, [*names, *settings])

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Updates the parameters on the CPU.

        Args:
            closure: computes the loss and its gradients first; None: they are there.

        Returns:
            What the closure returned.

        Raises:
            poptorch.Error: ``ipu_state`` was loaded from a state without names of parameters, and
                no compiled model named them yet.
        """
        store = live(self)
        store.refresh()
        if store.names.waiting:
            raise Error(f"[step] {next(iter(store.names.waiting))} was loaded from a state without "
                        f"the names of the parameters, and no compiled model named them yet. "
                        f"Compile the model that trains them before a step on the CPU.")
        spec = spec_of(self)
        if spec.formula is not None and self._needs_formula(spec):
            return host_step(self, spec, closure)
        step = spec.cls.step  # without its hooks: they are around this one
        return (step.__wrapped__ if hasattr(step, "hooked") else step)(self, closure)

    def _needs_formula(self, spec) -> bool:
        """Whether PyTorch's ``step`` does not have the settings, or does not take the states: those
        of a device may be of another type than the parameter."""
        if any(group.get("use_tf_variant") or not group["bias_correction"]
               for group in groups_of(self)):
            return True
        keys = {state.key for state in spec.states if not state.has_no_dims}
        return any(value.dtype is not parameter.dtype for parameter, state in self.state.items()
                   for key, value in state.items() if key in keys)

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state, that of the device included.

        The first call after a run reads it from the device, later ones do not. It is what
        ``torch.save`` can write and :meth:`load_state_dict` of an optimizer of the same model
        takes, in this or a different process.

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
        settings = None if state is None else store.names.settings(groups)
        store.names.to_groups(self.param_groups, shown["param_groups"])
        return {**shown, _STATE: state, _SETTINGS: settings}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes a state that :meth:`state_dict` returned.

        The parameter groups (learning rates and so on) are those of the state at once. What
        belongs to the device goes there with the next run, whether or not the model is compiled
        now; until then it is kept, also if the executor is destroyed or gets a new optimizer.
        States that it does not have stay as they are. ``"ipu_param"`` is for reading: the numbers
        that updates use are those of the parameter groups.

        Args:
            state_dict: the state. One of ``torch.optim`` is taken by :meth:`load_torch_state_dict`,
                or with both entries None: ``{"ipu_state": None, "ipu_param": None, **state}``.

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
                f"{missing}: it does not belong to an optimizer of poptorch.optim. To start "
                f"from it, pass {{'{_STATE}': None, '{_SETTINGS}': None, **state_dict}}.")
        given = dict(state_dict)
        state, settings = (_tensors(name, given.pop(name)) for name in (_STATE, _SETTINGS))
        store = live(self)
        super().load_state_dict(given)
        content, self.state = self.state, store
        store.load(state, settings, content, names_of(given, self.param_groups))

    def load_torch_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes the state of an optimizer of ``torch.optim`` of the same kind.

        Its hyper-parameters are taken at once, its state goes to the device with the next run, as
        with :meth:`load_state_dict`.

        Args:
            state_dict: what ``state_dict()`` of the optimizer of ``torch.optim`` returned, for the
                same parameters in the same order.

        Raises:
            ValueError: It is the state of another kind of optimizer, or has other parameter groups.
            TypeError: It is no dictionary of an optimizer's state.

        Example:
            >>> import poptorch, torch
            >>> net = torch.nn.Linear(2, 1)
            >>> theirs = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.75)
            >>> net(torch.ones(2)).backward()
            >>> theirs.step()
            >>> ours = poptorch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            >>> ours.load_torch_state_dict(theirs.state_dict())
            >>> ours.param_groups[0]["momentum"], ours.state[net.bias]["momentum_buffer"]
            (0.75, tensor([1.]))
        """
        given = {name: value for name, value in dict(state_dict).items()
                 if name not in (_STATE, _SETTINGS)}
        if not {"state", "param_groups"} <= given.keys():
            raise TypeError(f"[load_torch_state_dict] expected what state_dict() of an optimizer "
                            f"of torch.optim returns, got the entries "
                            f"{', '.join(given) or 'none'}.")
        spec = spec_of(self)
        keys = {hyper.group_key for hyper in spec.hyper}
        known = {state.key for state in spec.states} | {COUNT}
        for number, (own, group) in enumerate(zip(self.param_groups, given["param_groups"])):
            missing = sorted(keys & own.keys() - group.keys())
            if missing:
                raise _other_kind(spec, f"parameter group {number} has no {missing[0]}")
            for name in spec.flags:
                if name in own and name in group and bool(own[name]) != bool(group[name]):
                    raise _other_kind(spec, f"{name} of parameter group {number} is {group[name]}, "
                                            f"here {own[name]}")
        for key, entry in given["state"].items():
            unknown = sorted(entry.keys() - known) if key != GLOBAL else ()
            if unknown:
                raise _other_kind(spec, f"the state of a parameter has {unknown[0]}")
        self.load_state_dict({_STATE: None, _SETTINGS: None, **given})
        self._keep_types(given, spec)

    def _keep_types(self, given: dict, spec) -> None:
        """torch gives states the type of their parameter, which may be a narrower one."""
        params = [p for group in self.param_groups for p in group["params"]]
        numbers = [number for group in given["param_groups"] for number in group["params"]]
        for parameter, number in zip(params, numbers):
            for key, value in given["state"].get(number, {}).items():
                if any(state.key == key for state in spec.states) and value is not None:
                    self.state[parameter][key] = torch.as_tensor(value).detach().clone()

    def __getstate__(self) -> dict:
        kept = live(self).kept()
        return {**self._shallow_state(), **({KEPT: kept} if kept else {})}

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        use_saved_form(self)  # copies have no hooks

    def _shallow_state(self) -> dict:
        own = {name: vars(self)[name] for name in (*SETTINGS, "variable_attrs")
               if name in vars(self)}
        return {**super().__getstate__(), **own}

    def __copy__(self) -> "Optimizer":
        copied = type(self).__new__(type(self))
        copied.__setstate__(self._shallow_state())  # which shares the state, as torch's do
        return copied


def _other_kind(spec, why: str) -> ValueError:
    return ValueError(f"[load_torch_state_dict] the state is not that of torch.optim.{spec.name} "
                      f"with the same settings: {why}. Load the state of an optimizer of the same "
                      f"kind.")


def _tensors(name: str, values) -> dict[str, torch.Tensor] | None:
    if values is None:
        return None
    if not isinstance(values, dict) or \
            not all(isinstance(value, torch.Tensor) for value in values.values()):
        raise TypeError(f"[load_state_dict] {name} must be a dictionary of tensors or None, got "
                        f"{values!r:.80}. Pass what state_dict() returned.")
    return {key: value.detach().clone() for key, value in values.items()}

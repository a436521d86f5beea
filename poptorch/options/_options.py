"""The options object that users build: general options and the groups."""

import copy
import os
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch

from poptorch import enums
from poptorch._annotations.strategy_rows import _IExecutionStrategy
from poptorch._base.checks import near_names
from poptorch._base.environment import json_object
from poptorch.options._config_file import load_config_file
from poptorch.options._device import Device
from poptorch.options._distributed import _DistributedOptions
from poptorch.options._execution import Execution
from poptorch.options._group import OptionGroup
from poptorch.options._jit import _JitOptions
from poptorch.options._popart import _PopartOptions
from poptorch.options._precision import _PrecisionOptions
from poptorch.options._reports import Reports
from poptorch.options._row import Row
from poptorch.options._tensor_locations import _TensorLocationOptions
from poptorch.options._training import _TrainingOptions
from poptorch.strategies import PipelinedExecution

_VARIABLE = "POPTORCH_DEFAULT_OPTIONS"


class Options(Execution, Device, Reports):
    """How a model is compiled and run.

    General options are set here, others in groups: ``Training``, ``Precision``,
    ``TensorLocations``, ``Distributed`` and ``Jit``. Each setter returns its object, so that calls
    can be chained, and raises an AttributeError once a model or a DataLoader uses the options.
    Options are read by their snake_case name.

    ``POPTORCH_DEFAULT_OPTIONS`` holds settings for all options objects of a process, as a JSON
    object: ``{"deviceIterations": 4, "Training.gradientAccumulation": 2, "outputMode":
    ["OutputMode.EveryN", 2]}``.

    Raises:
        ValueError: ``POPTORCH_DEFAULT_OPTIONS`` cannot be applied; the message names the entry.

    Example:
        >>> import poptorch
        >>> poptorch.Options().deviceIterations(16).randomSeed(42)
        Options(device_iterations=16, random_seed=42)
    """

    def __init__(self) -> None:
        super().__init__()
        self._popart = _PopartOptions()
        self._popart._add(self)
        self._groups = {
            "Training": _TrainingOptions(self._popart),
            "Precision": _PrecisionOptions(self._popart),
            "TensorLocations": _TensorLocationOptions(),
            "Distributed": _DistributedOptions(),
            "Jit": _JitOptions(),
            "_Popart": self._popart,
        }
        self._popart._add(self.TensorLocations)
        _apply_environment(self)

    # -- groups --------------------------------------------------------------------------------

    @property
    def Training(self) -> _TrainingOptions:
        """The options specific to training."""
        return self._groups["Training"]

    @property
    def Precision(self) -> _PrecisionOptions:
        """The options about precision."""
        return self._groups["Precision"]

    @property
    def TensorLocations(self) -> _TensorLocationOptions:
        """The options about where tensors are stored."""
        return self._groups["TensorLocations"]

    @property
    def Distributed(self) -> _DistributedOptions:
        """The options about running in several processes."""
        return self._groups["Distributed"]

    @property
    def Jit(self) -> _JitOptions:
        """The options about capture."""
        return self._groups["Jit"]

    @property
    def _Popart(self) -> _PopartOptions:
        return self._popart

    def _rows(self) -> Iterator[tuple[OptionGroup, Row]]:
        """Each option with the group that has its value."""
        return ((group, row) for group in (self, *self._groups.values()) for row in group._ROWS)

    def _names(self) -> dict[str, str]:
        in_groups = {name: f"{group}.{name}" for group, options in self._groups.items()
                     if not group.startswith("_") for name in options._names()}
        return {**in_groups, **super()._names()}

    def _find_setter(self, names: list[str]) -> Callable[..., OptionGroup]:
        """The setter that a text names, after its group; an AttributeError for other names."""
        *groups, name = names
        target, known = self, {**self._groups, "_popart": self._popart}
        for group in groups:
            if target is not self or group not in known:
                raise AttributeError(f"Options has no group {'.'.join(groups)!r}."
                                     f"{near_names(group, known)} Groups: "
                                     f"{', '.join(list(known)[:-2])}.")
            target = known[group]
        return target._setter(name)

    @property
    def _execution_strategy(self) -> _IExecutionStrategy:
        return self._values["execution_strategy"] or PipelinedExecution()

    # -- copies --------------------------------------------------------------------------------

    def clone(self) -> Self:
        """Returns an unfrozen copy that shares nothing with this object.

        Example:
            >>> import poptorch
            >>> a = poptorch.Options().deviceIterations(2)
            >>> a.clone().deviceIterations(3), a
            (Options(device_iterations=3), Options(device_iterations=2))
        """
        return copy.deepcopy(self)

    def toDict(self) -> dict[str, Any]:
        """All options in one flat dict, by snake_case name, and the back-end keys that are set.

        JSON supports all the values: enum members by value, dtypes by name, a location or an
        execution strategy as a dict of its arguments.

        Example:
            >>> import poptorch
            >>> values = poptorch.Options().deviceIterations(4).toDict()
            >>> values["device_iterations"], values["gradient_accumulation"]
            (4, 1)
        """
        values = super().toDict()
        for group in self._groups.values():
            values.update(group.toDict())
        return values

    @classmethod
    def fromDict(cls, values: dict[str, Any]) -> Self:
        """Options from what :meth:`toDict` gave; names that are left out keep their defaults.

        Args:
            values: options by name; back-end keys are allowed.

        Raises:
            ValueError: A name is not known, and the message lists those that look like it; or
                two values do not fit together, such as those of an option and its back-end key.

        Example:
            >>> import poptorch
            >>> options = poptorch.Options().deviceIterations(4)
            >>> options.Training.gradientAccumulation(2)
            TrainingOptions(gradient_accumulation=2)
            >>> poptorch.Options.fromDict(options.toDict()) == options
            True
        """
        new = cls()
        owners = {row.name: group for group, row in new._rows()}
        backend = new._popart._counterparts()
        for name, value in values.items():
            if name in owners:
                owners[name]._load(name, value)
            elif new._popart._is_without_effect(name) or name in backend:
                new._popart.set(name, value)
            else:
                raise ValueError(f"[Options.fromDict] unknown option {name!r}."
                                 f"{near_names(name, [*owners, *backend])}")
        for key, (group, row) in backend.items():
            if key in values and row.name in values:
                new._check_equal(group, row, key, values)
        for group in (new, *new._groups.values()):
            group._check_together()
        return new

    def _check_equal(self, group: OptionGroup, row: Row, key: str, values: dict) -> None:
        """Checks that a dict sets an option to the same value by both of its names."""
        group._load(row.name, values[row.name])
        one = group._values[row.name]
        self._popart.set(key, values[key])
        if group._values[row.name] != one:
            raise ValueError(f"[Options.fromDict] {row.name} is {values[row.name]!r}, and {key}, "
                             f"which names the same option, is {values[key]!r}. Change both, or "
                             f"take {key} out.")

    def loadFromFile(self, filepath: str | os.PathLike[str]) -> Self:
        """Sets what a file lists, one setter on each line.

        A line is written as in a program, without the ``options.`` in front. Empty lines and
        comments are passed over; only the names ``poptorch`` and ``torch`` are known. The file is
        parsed, never executed.

        Args:
            filepath: the file.

        Returns:
            This object, so that calls can be chained.

        Raises:
            poptorch.options.ConfigFileError: A line cannot be applied; the message has file,
                line, and the options that look like what was written.
            OSError: The file cannot be read.

        Example:
            >>> import poptorch, tempfile
            >>> with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
            ...     _ = file.write("deviceIterations(4)  # steps\\n"
            ...                    "outputMode(poptorch.OutputMode.Sum)\\n")
            ...     file.flush()
            ...     poptorch.Options().loadFromFile(file.name)
            Options(device_iterations=4, output_mode=Sum)
        """
        load_config_file(self, filepath)
        return self

    # -- comparing, printing, freezing ---------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self._groups == other._groups

    __hash__ = None

    def _changed(self) -> list[str]:
        inner = [f"{name}={group!r}" for name, group in self._groups.items() if group._changed()]
        return [*super()._changed(), *inner]

    def _freeze(self) -> None:
        super()._freeze()
        for group in self._groups.values():
            group._freeze()


def checked_options(options, where: str) -> Options:
    """``options``, if they are a :class:`Options`; else a TypeError that names ``where``."""
    if not isinstance(options, Options):
        hint = "Pass poptorch.Options() with the settings that you want"
        if isinstance(options, dict):
            hint = "Pass poptorch.Options.fromDict(...)"
        elif isinstance(options, torch.optim.Optimizer):
            hint = "Pass the optimizer as optimizer="
        raise TypeError(f"[{where}] options must be a poptorch.Options, got "
                        f"{type(options).__name__}. {hint}.")
    return options


def _apply_environment(options) -> None:
    """Applies the settings of the environment variable; a wrong one is a ValueError."""
    text = os.environ.get(_VARIABLE, "").strip()
    if not text:
        return
    settings = json_object(_VARIABLE, text, '{"deviceIterations": 4}')
    for name, value in settings.items():
        arguments = value if isinstance(value, list) else [value]
        try:
            options._find_setter(name.split("."))(*map(_converted, arguments))
        except (TypeError, ValueError, AttributeError, AssertionError) as error:
            raise ValueError(f"[{_VARIABLE}] {name}: {error}") from error


def _converted(value):
    """The enum member for a text such as ``"OutputMode.All"``; other values as they are."""
    if isinstance(value, str) and value.count(".") == 1:
        kind, _, member = value.removeprefix("poptorch.").partition(".")
        members = getattr(getattr(enums, kind, None), "__members__", {})
        return members.get(member, value)
    return value

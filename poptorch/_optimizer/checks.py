"""Checks of the user's optimizer: what it trains, and which of its features the device ignores."""

from collections.abc import Iterator

import torch

from poptorch._base.logging import logger
from poptorch._optimizer.rows import spec_of
from poptorch._optimizer.settings import SETTINGS, DeviceSettings
from poptorch._weights.watched import parts_of
from poptorch.errors import Error

# Our own, names of parameters, and what torch's learning-rate schedulers write into groups and
# optimizers.
_EXPECTED = frozenset({"initial_lr", "max_lr", "min_lr", "base_momentum", "max_momentum", "step",
                       "swa_lr", "param_names", *SETTINGS})

# Why a program does not fit the optimizer any more.
MEMBERS_CHANGED = "parameters or groups were added to the optimizer, or removed from it, after " \
                  "the model was compiled"


def check_can_save(reason: str | None) -> None:
    """Raises an Error if a program does not fit the optimizer any more, for this reason."""
    if reason is not None:
        raise Error(f"[save] {reason}. Call compileAndExport() with the arguments of a call, which "
                    f"compiles the model again and writes it, or call the model first.")


def check_differentiable(optimizer) -> None:
    """Raises an Error if gradients must flow through an update."""
    for number, group in enumerate(optimizer.param_groups):
        if group.get("differentiable"):
            raise Error(f"[optimizer] differentiable=True of parameter group {number} of "
                        f"{type(optimizer).__name__}: the update on the device has no gradient. "
                        f"Leave it out, or train on the CPU.")


class AttributeWatch:
    """Records the attributes of the first optimizer of each class, and warns of new ones once (with
    ``relax`` logs them at level DEBUG). Also warns once of each subclass that a user wrote."""

    def __init__(self, relax: bool):
        self._tell = logger.debug if relax else logger.warning
        self._known: dict[tuple[type, str], set[str]] = {}
        self._classes: set[type] = set()
        self._has_told_of_hooks = False
        self._host_only: set[str] = set()

    def look(self, optimizer) -> None:
        """Looks at an optimizer and its groups."""
        check_differentiable(optimizer)
        kind, spec = type(optimizer), spec_of(optimizer)
        is_ours = issubclass(kind, DeviceSettings) and kind.__bases__[-1] is spec.cls
        if kind not in self._classes and not (kind is spec.cls or is_ours):
            self._classes.add(kind)
            logger.warning("%s is a subclass: Poptorch does not run Python optimizer code "
                           "directly. The device updates as %s does and ignores what %s "
                           "changes.", kind.__name__, spec.name, kind.__name__)
        has_hooks = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
        if has_hooks and not self._has_told_of_hooks:
            self._has_told_of_hooks = True
            logger.warning("%s has hooks of step(): Poptorch does not run Python optimizer code "
                           "directly, so a call of the model does not call them.", kind.__name__)
        for name in ("foreach", "fused", "capturable"):
            if name not in self._host_only and any(g.get(name) for g in optimizer.param_groups):
                self._host_only.add(name)
                logger.debug("%s=True of %s is for step() on the CPU or a GPU: each update on the "
                             "device is one pass over memory.", name, kind.__name__)
        self._compare(kind, "optimizer attribute", optimizer.__dict__)
        for number, group in enumerate(optimizer.param_groups):
            self._compare(kind, f"group {number} attribute", group)

    def _compare(self, kind: type, what: str, present: dict) -> None:
        known = self._known.get((kind, what))
        if known is None:
            self._known[kind, what] = set(present)
            return
        names = [name for name in present if name not in known]
        if names:
            known.update(names)
            told = [n for n in names if not n.startswith("_") and n not in _EXPECTED]
            if told:
                self._tell("Ignoring unexpected %s: %s. The update on the device does not use "
                           "it.", what, ", ".join(told))


def parameters(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """As ``named_parameters``, without a copy of the weights to the host."""
    for path, part in parts_of(module):
        for name, parameter in part._parameters.items():
            if parameter is not None:
                yield path + name, parameter


class MemberCheck:
    """Checks that optimizers train the module of an executor."""

    def __init__(self, module: torch.nn.Module):
        self._module, self._has_warned = module, False

    def __call__(self, optimizer: torch.optim.Optimizer, where: str) -> None:
        """Raises an Error if an optimizer holds no parameter of the module, or a trained one twice.
        Warns once of parameters that do not belong to the module. ``where`` is for the error."""
        own = {id(parameter): name for name, parameter in parameters(self._module)}
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        kind, model = type(optimizer).__name__, type(self._module).__name__
        if own and not held & own.keys():
            raise Error(f"[{where}] none of the {len(held)} parameters of the optimizer {kind} is "
                        f"one of the {len(own)} parameters of the wrapped {model}, so nothing "
                        f"would be trained. Create the optimizer from parameters() of that module.")
        _check_single(optimizer, own, where)
        others = len(held - own.keys())
        if others and not self._has_warned:
            self._has_warned = True
            logger.warning("%d of the %d parameters of the optimizer %s do not belong to the model "
                           "%s; this executor does not train them.", others, len(held), kind, model)


def _check_single(optimizer: torch.optim.Optimizer, names: dict[int, str], where: str) -> None:
    found: dict[int, int] = {}
    for number, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            if id(parameter) in found and id(parameter) in names and parameter.requires_grad:
                first = found[id(parameter)]
                places = f"group {number} twice" if first == number else \
                    f"the groups {first} and {number}"
                raise Error(f"[{where}] {names[id(parameter)]} stands in parameter {places}: "
                            f"step() of the optimizer would update it twice, the device updates it "
                            f"once. Leave it out of one place.")
            found[id(parameter)] = number

"""States that were loaded by the names outside, until a program says which parameters have them.

Meanwhile the optimizer has what PyTorch's part of the loaded state holds. Where a step on the host
or a run goes on from that, what waits is outdated. What a program brings with it, as one of a file
does, was there before it was loaded.
"""

from collections.abc import Iterable

import torch

from poptorch._base.logging import logger
from poptorch._optimizer.device import Values, version
from poptorch._optimizer.owners import Owners, parameter_of
from poptorch._optimizer.spec import GLOBAL, STEP, VELOCITY_SCALING


class Pending:
    """What waits in one store (``LiveStates``).

    Args:
        kept: what :meth:`kept` returned for an optimizer that was copied.
        items: parameter and state of the store.

    Attributes:
        values: by names outside.
        unknown: of these, what the last program that was given states had no parameter for.
        owners: of names that have made an update, where it is known.
    """

    def __init__(self, kept: dict, items: Iterable):
        self.values: Values = dict(kept.get("pending", {}))
        self.unknown: Values = {}
        self._scales: dict[str, float] = dict(kept.get("scales", {}))
        # Parameters of which PyTorch's part had a state; None: it had none at all.
        self._held: set[int] | None = None
        self.owners: Owners = {name: frozenset(map(id, parameters))
                               for name, parameters in kept.get("owners", {}).items()}
        # The state that a parameter had when this was loaded, {} where it had none; None: it is
        # known to be another one now.
        self._marks: dict[int, dict | None] = {}
        if self.values:
            self.begin(items)
            self._marks |= dict.fromkeys(map(id, kept.get("changed", ())))

    def kept(self, items: Iterable) -> dict:
        """What a copy needs.

        Args:
            items: parameter and state of the store.
        """
        if not self.values:
            return {}
        items = list(items)
        changed = self.changed(items)
        tensors = {id(tensor): tensor for tensor, _ in items}
        return {"pending": self.values, "scales": self._scales,
                "owners": {name: [tensors[key] for key in keys & tensors.keys()]
                           for name, keys in self.owners.items() if keys & tensors.keys()},
                "changed": [tensor for tensor, _ in items if id(tensor) in changed]}

    def add(self, values: Values, settings: Values | None, content: dict,
            changed: set[int]) -> None:
        """Takes what was loaded; ``owners`` of its names and :meth:`begin` follow.

        Args:
            values: by names outside.
            settings: ``ipu_param`` that was loaded with them.
            content: PyTorch's part of it, the state by parameter.
            changed: see :meth:`current`, which says what of before still waits.
        """
        prefix = VELOCITY_SCALING.of("")
        self._scales |= {name.removeprefix(prefix): float(value)
                         for name, value in (settings or {}).items() if name.startswith(prefix)}
        self.values = {**self.current(changed), **values}
        self._held = set(map(id, content)) or None
        for name in set(map(parameter_of, values)):
            self.owners.pop(name, None)

    def begin(self, items: Iterable) -> None:
        """Waits from now on.

        Args:
            items: parameter and state of the store, PyTorch's part of what was loaded included.
        """
        self._marks = {id(tensor): mark(entry) for tensor, entry in items if tensor is not GLOBAL}

    def merge(self, other: "Pending", items: Iterable, others: Iterable, own: set[int]) -> None:
        """Takes over what waits in another store; what waits here counts more, and so does a state.

        Args:
            other: what waits there.
            items: parameter and state of this store.
            others: of the other one.
            own: identities of the parameters that had a state in this store before.
        """
        values = {name: value for name, value in other.values.items()
                  if not other.owners.get(parameter_of(name), frozenset()) & own}
        if not values:
            return
        items = list(items)
        changed = other.changed(others) | (self.changed(items) if self.values else own)
        self.begin(items)
        self._marks |= dict.fromkeys(changed)
        self._held, self.owners = None, {**other.owners, **self.owners}
        self.values = {**values, **self.values}
        self._scales = {**other._scales, **self._scales}

    def try_again(self) -> None:
        """Lets what no program knew wait for the next one."""
        self.values, self.unknown = {**self.unknown, **self.values}, {}

    def pass_over(self, parameters: Iterable[int]) -> None:
        """Takes note that a program is given the states of parameters, and goes on from them."""
        if self.values:
            logger.warning("The model's optimizer has no state of the name %s: ignored.",
                           " or ".join(self.values))
            self.values, self.unknown = {}, {**self.unknown, **self.values}
        if self.unknown:
            self._marks |= dict.fromkeys(parameters)

    def came(self, tensor, entry: dict) -> None:
        """Takes note of a state that was on a device when this was loaded."""
        if self.values or self.unknown:
            self._marks[id(tensor)] = mark(entry)

    def changed(self, items: Iterable) -> set[int]:
        """Identities of the parameters of which the state is another one since this was loaded.

        Args:
            items: parameter and state of the store.
        """
        if not (self.values or self.unknown):
            return set()
        now = {id(tensor): entry for tensor, entry in items if tensor is not GLOBAL}
        marks = {key: self._marks.get(key, {}) for key in now.keys() | self._marks.keys()}
        return {key for key, marked in marks.items()
                if marked is None or not is_as_marked(now.get(key) or {}, marked)}

    def current(self, changed: set[int]) -> Values:
        """What waits without what a parameter will not be given any more.

        Args:
            changed: see :meth:`changed`. Any of them may have a name that is not known.
        """
        def is_current(name):
            owners = self.owners.get(parameter_of(name))
            return not changed if owners is None else bool(owners - changed)

        return {name: value for name, value in self.values.items() if is_current(name)}

    def is_of_another(self, tensor: torch.Tensor, name: str) -> bool:
        """Whether the values of a name belong to another parameter than the one that a program
        calls so: PyTorch's part of the same state has them of another one, or says that this one
        has made no update."""
        if name in self.owners:
            return id(tensor) not in self.owners[name]
        if frozenset([id(tensor)]) in self.owners.values():
            return True
        count = self.values.get(f"{STEP}___{name}")
        return count is not None and bool(count) and self._held is not None \
            and id(tensor) not in self._held

    def end_if_empty(self) -> None:
        """Lets go of what is compared with, where nothing waits any more."""
        if not (self.values or self.unknown):
            self._marks, self._scales = {}, {}

    def scales(self) -> dict[str, float]:
        """The velocity scalings of what waits, as ``ipu_param`` has them."""
        names = set(map(parameter_of, self.values))
        return {VELOCITY_SCALING.of(name): scale for name, scale in self._scales.items()
                if name in names}

    def scale_of(self, name: str) -> float | None:
        """The velocity scaling with which the values of a parameter's name were saved."""
        return self._scales.get(name)


def mark(entry: dict) -> dict:
    """What to compare the state of a parameter with later."""
    return {key: (value, version(value)) for key, value in entry.items()}


def is_as_marked(entry: dict, marked: dict) -> bool:
    """Whether the state of a parameter is the one of which :func:`mark` was made."""
    return entry.keys() == marked.keys() and all(
        entry[key] is value and version(value) == known
        for key, (value, known) in marked.items())

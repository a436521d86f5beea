"""Which parameters the names in a saved state belong to.

A state has the values of a parameter twice: by the name that a program gave it, and in PyTorch's
part, by its place among the optimizer's parameters. Names are those of whatever program ran last;
another one may call other parameters so. The values say which were meant.
"""

import collections
import math
from collections.abc import Callable

import torch

from poptorch._optimizer.device import Values
from poptorch._optimizer.device_settings import groups_of
from poptorch._optimizer.rows import spec_of
from poptorch._optimizer.spec import STEP, OptimizerSpec, divided

# Identities of the parameters of a name: those of equal states, of which it stands for one.
Owners = dict[str, frozenset[int]]

_HEAD = 4  # numbers of a tensor that are compared first: of other parameters one differs


def parameter_of(name: str) -> str:
    """What a program calls the parameter of a state, by the name of the state outside."""
    return name.partition("___")[2]


def begun_names(values: Values) -> list[str]:
    """Names of the parameters that have made an update, as far as the values say it, in order."""
    names = dict.fromkeys(map(parameter_of, values))
    return [name for name in names if values.get(f"{STEP}___{name}", 1) != 0]


def owners_of(optimizer: torch.optim.Optimizer | None, values: Values, content: dict,
              scale_of: Callable[[str], float | None]) -> Owners:
    """Of names that have made an update, the parameters which PyTorch's part gives the same values.
    A name whose values were changed, or written twice, has none.

    Args:
        optimizer: that has the parameters.
        values: by names outside.
        content: PyTorch's part, the state by parameter.
        scale_of: the velocity scaling of the values of a name; None: that of the group.
    """
    if optimizer is None:
        return {}
    spec, found = spec_of(optimizer), {}
    held = [(p, group, _of_pytorch(spec, content[p])) for group in groups_of(optimizer)
            for p in group["params"] if p in content]
    for name in filter(None, begun_names(values)):
        compared = _Compared(spec, values, name, scale_of(name))
        found[name] = frozenset(id(parameter) for parameter, group, own in held
                                if compared.has(own, group))
    names = collections.Counter(found.values())
    return {name: owners for name, owners in found.items() if names[owners] <= len(owners)}


def _of_pytorch(spec: OptimizerSpec, entry: dict) -> list[tuple[torch.Tensor, list] | None]:
    """The states of a parameter in PyTorch's part, each with its first numbers."""
    tensors = [None if entry.get(state.key) is None else torch.as_tensor(entry[state.key])
               for state in spec.states]
    return [None if tensor is None else (tensor, tensor.reshape(-1)[:_HEAD].tolist())
            for tensor in tensors]


class _Compared:
    """The values of a name, which are compared with those of many parameters."""

    def __init__(self, spec: OptimizerSpec, values: Values, name: str, scale: float | None):
        self._spec, self._scale = spec, scale
        self._values = [values.get(state.of(name)) for state in spec.states]
        self._heads: dict[tuple, list] = {}

    def has(self, own: list, group: dict) -> bool:
        """Whether they are what :func:`_of_pytorch` returned of a parameter of a group."""
        return all(self._is_same(index, state, group) for index, state in enumerate(own))

    def _is_same(self, index: int, own: tuple[torch.Tensor, list] | None, group: dict) -> bool:
        outside, state = self._values[index], self._spec.states[index]
        if outside is None or own is None:
            return outside is None and own is None
        tensor, head = own
        if outside.shape != tensor.shape:
            return False
        factor = (self._scale or state.scale_in(group)) if state.velocity_power else 1.0

        def as_pytorch(value):
            return divided(value, factor).to(tensor.dtype)

        key = index, factor, tensor.dtype
        if key not in self._heads:
            self._heads[key] = as_pytorch(outside.reshape(-1)[:_HEAD]).tolist()
        if factor == 1.0:
            return self._heads[key] == head and torch.equal(as_pytorch(outside), tensor)
        rounding = 2 * torch.finfo(tensor.dtype).eps  # it was multiplied and divided again
        return all(math.isclose(x, y, rel_tol=rounding)
                   for x, y in zip(self._heads[key], head)) and \
            torch.allclose(as_pytorch(outside), tensor, rtol=rounding, atol=0.0)

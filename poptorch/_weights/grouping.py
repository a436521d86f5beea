"""Weights with a value for each group of replicas: what ``replicaGrouping`` declares."""

import weakref
from collections import UserDict
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.utils.weak import WeakIdKeyDictionary

from poptorch._base import checks
from poptorch._translate.replica_groups import WeightGroups
from poptorch._weights.store import STORE
from poptorch.enums import CommGroupType, VariableRetrievalMode
from poptorch.errors import Error

# Those of all executors that are alive, to find those that a parameter belongs to.
_all: "weakref.WeakSet[Groupings]" = weakref.WeakSet()

# By module and name, next to the record of the parameter: another may take its place later, as with
# load_state_dict(assign=True).
_declared_in: "WeakIdKeyDictionary" = WeakIdKeyDictionary()


class Grouping(NamedTuple):
    """The arguments of ``replicaGrouping``."""

    comm_group_type: CommGroupType
    shards: int
    variable_retrieval_mode: VariableRetrievalMode


def replicaGrouping(self, comm_group_type: CommGroupType, shards: int,
                    variable_retrieval_mode: VariableRetrievalMode) -> None:
    """Gives this parameter of a wrapped module a value for each group of replicas.

    The parameter's first dimension then counts the groups: with m groups it has the shape
    ``(m, ...)``, and ``forward`` sees ``(...)``, the value of the replica's group. Gradients are
    added within a group and, where the options set the mean, divided by the number of all
    replicas, as the loss is the mean over the whole batch. Optimizer states belong to the groups
    in the same way. The grouping holds for all executors of the module, and for a parameter that
    replaces this one. Call this function after wrapping the module and before compiling the first
    executor. A further call replaces an earlier one.

    Args:
        comm_group_type: which replicas form a group. ``All``: none do, the parameter is as any
            other; ``NoGrouping``: each replica for itself.
        shards: the number of replicas in a group, a divisor of the replication factor. Ignored
            for ``All`` and ``NoGrouping``.
        variable_retrieval_mode: what is read back. ``OnePerGroup``: the value of the first replica
            of each group. ``AllReplicas``: that of each replica; from the compilation on, the
            parameter has an entry for each replica, in their order; each replica gets its own.

    Raises:
        TypeError: The type, the number or the mode is not of its kind.
        ValueError: ``shards`` is less than 1.
        poptorch.Error: The parameter belongs to no wrapped module, or to one that is compiled. The
            compilation raises one when ``shards`` does not divide the replicas, or the first
            dimension of the parameter is not the number of groups.

    Example:
        >>> import poptorch, torch
        >>> class Scale(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.factor = torch.nn.Parameter(torch.tensor([[2.0], [3.0]]))
        ...     def forward(self, x):
        ...         return x * self.factor
        >>> opts = poptorch.Options().replicationFactor(4).showCompilationProgressBar(False)
        >>> model = poptorch.inferenceModel(Scale(), opts)
        >>> model.factor.replicaGrouping(poptorch.CommGroupType.Consecutive, 2,
        ...                              poptorch.VariableRetrievalMode.OnePerGroup)
        >>> model(torch.ones(4, 1)).flatten().tolist()
        [2.0, 2.0, 3.0, 3.0]
    """
    where = "replicaGrouping"
    checks.one_of(CommGroupType, comm_group_type, where)
    if comm_group_type in (CommGroupType.All, CommGroupType.NoGrouping):
        shards = 1
    checks.at_least(1, shards, where)
    checks.one_of(VariableRetrievalMode, variable_retrieval_mode, where)
    grouping = Grouping(comm_group_type, shards, variable_retrieval_mode)
    owners = [owner for owner in _all
              if any(parameter is self for parameter in owner.model.parameters())]
    if not owners:
        raise Error(f"[replicaGrouping] the parameter of shape {tuple(self.shape)} is not part of "
                    f"a wrapped module. Call it after inferenceModel() or trainingModel().")
    if any(owner.is_compiled() for owner in owners):
        raise Error(f"[replicaGrouping] the model of the parameter of shape {tuple(self.shape)} "
                    f"is compiled already, without {comm_group_type.name} groups of {shards}. "
                    f"Call it before the model is compiled, or destroy() the executor first.")
    _note(self, owners, None if comm_group_type is CommGroupType.All else grouping)


# A method of all parameters, as those of modules for inference keep their class.
torch.nn.Parameter.replicaGrouping = replicaGrouping


def _note(parameter: torch.nn.Parameter, owners: list, grouping: Grouping | None) -> None:
    """Notes what was declared for a parameter; None: nothing any more."""
    STORE.record(parameter).grouping = grouping
    modules = [*_declared_in, *(module for owner in owners for module in owner.model.modules())]
    for module in modules:
        for name, found in module.named_parameters(recurse=False, remove_duplicate=False):
            if found is parameter:
                _declared_in.setdefault(module, {})[name] = grouping


class Groupings:
    """What was declared for the parameters of one executor's module."""

    def __init__(self, model: torch.nn.Module, replicas: int, is_compiled: Callable[[], bool]):
        self.model = model
        self.is_compiled = is_compiled
        self._replicas = replicas
        _all.add(self)

    @property
    def per_replica_params(self) -> "PerReplicaParams":
        """An older spelling of ``replicaGrouping``: its arguments, by the path of the parameter.

        Example:
            >>> import poptorch, torch
            >>> net = torch.nn.Linear(4, 2)
            >>> net.bias = torch.nn.Parameter(torch.zeros(3, 2))
            >>> model = poptorch.inferenceModel(net, poptorch.Options().replicationFactor(3))
            >>> model.per_replica_params["bias"] = (
            ...     poptorch.CommGroupType.NoGrouping, 0,
            ...     poptorch.VariableRetrievalMode.OnePerGroup)
            >>> list(model.per_replica_params)
            ['bias']
        """
        return PerReplicaParams(self)

    def declared(self) -> dict[str, Grouping]:
        """What was declared, by path."""
        groupings = {}
        for module in self.model.modules():
            for name, grouping in _declared_in.get(module, {}).items():
                groupings[id(getattr(module, name, None))] = grouping
        parameters = dict(self.model.named_parameters())
        for parameter in parameters.values():
            record = STORE.known(parameter)
            if record is not None and record.grouping is not None:
                groupings[id(parameter)] = record.grouping
        return {path: groupings[id(parameter)] for path, parameter in parameters.items()
                if groupings.get(id(parameter)) is not None}

    def declare(self, groupings: dict[str, Grouping]) -> None:
        """Declares the like of what :meth:`declared` returned."""
        parameters = dict(self.model.named_parameters()) if groupings else {}
        for path, grouping in groupings.items():
            parameters[path].replicaGrouping(*grouping)

    def weight_groups(self) -> tuple[tuple[str, WeightGroups], ...]:
        """Path and groups of each weight that has a value for each group. Raises an Error if they
        do not fit the replicas or the first dimension of the parameter."""
        out, replicas = [], self._replicas
        parameters = dict(self.model.named_parameters())
        for path, (kind, size, mode) in self.declared().items():
            check_divides("replicaGrouping", f"{path}: groups", size, replicas)
            groups = WeightGroups(replicas, size, kind is CommGroupType.Orthogonal,
                                  mode is VariableRetrievalMode.AllReplicas)
            groups.check(path, parameters[path].shape)
            out.append((path, groups))
        return tuple(out)


class PerReplicaParams(UserDict):
    """``executor.per_replica_params``: an older spelling of ``replicaGrouping``, by path."""

    def __init__(self, groupings: Groupings):
        self._groupings = groupings

    @property
    def data(self) -> dict[str, Grouping]:
        """What was declared; nothing is kept here."""
        return self._groupings.declared()

    def __setitem__(self, path: str, grouping: tuple) -> None:
        parameters = dict(self._groupings.model.named_parameters())
        if path not in parameters:
            raise Error(f"[per_replica_params] the module has no parameter {path!r}. Its "
                        f"parameters are: {', '.join(parameters) or 'none'}.")
        parameters[path].replicaGrouping(*grouping)

    def __delitem__(self, path: str) -> None:
        self[path] = self[path]._replace(comm_group_type=CommGroupType.All)


def check_divides(where: str, what: str, size: int, replicas: int) -> None:
    """Raises an Error when groups of ``size`` replicas do not divide their number."""
    if replicas % size:
        raise Error(f"[{where}] {what} of {size} replicas do not divide "
                    f"replicationFactor({replicas}). Choose a divisor of {replicas}.")

"""Histories of weights with a value for each group of replicas, and of a shared one.

Executors for inference and for training of one module, the host and its copies. After each step,
host and the replicas of all devices are compared with ``weight_rule.py``.
"""

import torch
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from torch import nn

import poptorch
from poptorch import CommGroupType, VariableRetrievalMode
from poptorch._weights import watched
from tests.fuzz.histories.executor_histories import MOST, TOLERANCE, ExecutorHistories, WithLoss
from tests.fuzz.histories.weight_rule import Holder
from tests.fuzz.judge import budget
from tests.helpers import quiet_options

RATE = 0.125
REPLICAS, ROWS = 4, 2  # ROWS: of the batch, for each replica
STEPS = 20  # of a history
# What is declared, and the group of each replica.
GROUPS = {
    "consecutive": ((CommGroupType.Consecutive, 2), (0, 0, 1, 1)),
    "orthogonal": ((CommGroupType.Orthogonal, 2), (0, 1, 0, 1)),
    "none": ((CommGroupType.NoGrouping, 0), (0, 1, 2, 3)),
    "one": ((CommGroupType.Consecutive, 4), (0, 0, 0, 0)),
}
KINDS = ("infer", "train")
STORAGES = ("own", "shared")
X = torch.arange(REPLICAS * ROWS * 2).reshape(-1, 2).float() / 16 - 0.4


class Net(nn.Module):
    """``own`` has a value for each group, ``shared`` one for all replicas."""

    def __init__(self, groups):
        super().__init__()
        self.own = nn.Parameter(torch.arange(2.0 * groups).reshape(groups, 2) / 4 - 0.25)
        self.shared = nn.Parameter(torch.tensor([0.5, -0.75]))

    def forward(self, x):
        return (x * (self.own + self.shared)).sum(1)


class Program(Holder):
    """The rule's state of an executor; of ``own`` the entries that the host has.

    Args:
        kind: of ``KINDS``.
        groups: the group of each replica.
        entries: the entry of each replica.
    """

    def __init__(self, kind, groups, entries):
        super().__init__(STORAGES)
        self.trains, self.groups, self.entries = kind == "train", groups, entries

    def updated(self):
        return STORAGES if self.trains else ()

    def of_replica(self, s, replica):
        return self.device[s][self.entries[replica]] if s == "own" else self.device[s]

    def compute(self, x):
        parts = x.double().chunk(REPLICAS)
        results = [(part * (self.of_replica("own", r) + self.device["shared"])).sum(1)
                   for r, part in enumerate(parts)]
        if self.trains:
            gradients = torch.stack([2 / ROWS / REPLICAS * (y[:, None] * part).sum(0)
                                     for y, part in zip(results, parts)])
            own = self.device["own"].clone()
            for entry in range(len(own)):
                group = self.groups[self.entries.index(entry)]
                members = [g == group for g in self.groups]
                own[entry] -= RATE * gradients[torch.tensor(members)].sum(0)
            self.device["own"] = own
            self.device["shared"] = self.device["shared"] - RATE * gradients.sum(0)
        return torch.cat(results)


class Histories(ExecutorHistories):
    x = X

    @initialize(kinds=st.permutations(KINDS), group=st.sampled_from(sorted(GROUPS)),
                mode=st.sampled_from(list(VariableRetrievalMode)))
    def begin(self, kinds, group, mode):
        declared, self.groups = GROUPS[group]
        count = max(self.groups) + 1
        self.net = Net(count)
        tensors = {"own": self.net.own, "shared": self.net.shared}
        reads_all = mode is VariableRetrievalMode.AllReplicas
        self.entries = tuple(range(REPLICAS)) if reads_all else self.groups
        host = {s: t.detach().double().clone() for s, t in tensors.items()}
        if reads_all:
            host["own"] = host["own"][list(self.groups)]
        self.start(tensors, host)
        for kind in kinds:
            self.wrap(kind)
        self.net.own.replicaGrouping(*declared, mode)
        for number in range(len(kinds)):
            self.call([number], 1, 1)

    def values_of(self, paths, kept):
        values = self.kept[kept % len(self.kept)]
        return values, {path: values[path.rpartition(".")[2]].float() for path in paths}

    # -- executors -----------------------------------------------------------------------------

    @precondition(lambda self: len(self.executors) < MOST)
    @rule(kind=st.sampled_from(KINDS))
    def wrap(self, kind):
        options = quiet_options(replicationFactor=REPLICAS, outputMode=poptorch.OutputMode.All)
        p = Program(kind, self.groups, self.entries)
        if p.trains:
            module = WithLoss(self.net)
            optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
            model = poptorch.trainingModel(module, options, optimizer)
        else:
            model = poptorch.inferenceModel(self.net, options)
        self.add(model, p)

    @precondition(lambda self: self.executors)
    @rule(number=st.integers(0, MOST - 1), s=st.sampled_from([None, *STORAGES]),
          entry=st.integers(0, REPLICAS - 1))
    def to_device(self, number, s, entry):
        model, p = self.pick(number)
        if s is not None:
            self.write(s, entry, 1.0, False)
        if p.is_compiled:
            model.copyWeightsToDevice()
            self.rule.publish(p, STORAGES)

    @precondition(lambda self: self.executors)
    @rule(number=st.integers(0, MOST - 1))
    def read_by_executor(self, number):
        model, _ = self.pick(number)
        state = model.state_dict()
        self.rule.read(STORAGES)
        for path, value in state.items():
            self.check(value, path.rpartition(".")[2], "state_dict")

    @precondition(lambda self: self.executors)
    @rule(number=st.integers(0, MOST - 1), kept=st.integers(0, 20))
    def load_by_executor(self, number, kept):
        model, _ = self.pick(number)
        values, state = self.values_of(model.state_dict(), kept)
        model.load_state_dict(state)
        self.rule.read(STORAGES)
        self.rule.load(STORAGES, values)

    # -- the host ------------------------------------------------------------------------------

    @rule(s=st.sampled_from(STORAGES))
    def read(self, s):
        found = self.tensors[s].clone()
        self.seen_by_host([s])
        self.check(found, s, "clone")

    @rule()
    def read_module(self):
        state = self.net.state_dict()
        self.seen_by_host(STORAGES)
        for path, value in state.items():
            self.check(value, path, "state_dict")
        self.kept.append(dict(self.rule.host))

    @rule(s=st.sampled_from(STORAGES), entry=st.integers(0, REPLICAS - 1),
          by=st.sampled_from([0.5, -1.25]), data=st.booleans())
    def write(self, s, entry, by, data):
        """Of ``own`` one entry, so that with all replicas those of a group may differ."""
        entry %= len(self.tensors[s])
        with torch.no_grad():
            (self.by_data(s) if data else self.tensors[s])[entry] += by
        self.seen_by_host([s])
        value = self.rule.host[s].clone()
        value[entry] += by
        self.rule.write(s, value)

    @rule(kept=st.integers(0, 20))
    def load_module(self, kept):
        values, state = self.values_of(("own", "shared"), kept)
        is_watched = all(isinstance(self.tensors[s], watched._Watched) for s in STORAGES)
        self.net.load_state_dict(state)
        if is_watched:  # a module that is wrapped for training
            self.rule.read(STORAGES)
            self.rule.load(STORAGES, values)
            return
        self.seen_by_host(STORAGES)
        for s in STORAGES:
            self.rule.write(s, values[s])

    # -- what holds after each step ------------------------------------------------------------

    def check_device(self, model, p):
        executable = model._executable
        for path in (state.path for state in executable.states()):
            s = path.rpartition(".")[2]
            for replica in range(REPLICAS if s in STORAGES else 0):
                found = torch.empty(2)
                executable.read_state(path, found.data_ptr(), found.nbytes, replica)
                torch.testing.assert_close(found.double(), p.of_replica(s, replica), **TOLERANCE)


TestHistories = Histories.TestCase
TestHistories.settings = budget(30, stateful_step_count=STEPS)

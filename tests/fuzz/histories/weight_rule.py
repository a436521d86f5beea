"""Who has which value of a weight after each step, in plain numbers: docs/internals/weights.md."""

import abc


class Holder(abc.ABC):
    """A program with copies.

    Args:
        storages: names of the storages it has copies of.

    Attributes:
        device: its values, by name, while it has a device.
        version: of each.
        is_orphan: its executor was forgotten.
    """

    def __init__(self, storages):
        self.storages = storages
        self.is_compiled = self.is_attached = self.is_orphan = False
        self.device, self.version = {}, {}

    @abc.abstractmethod
    def updated(self):
        """What its runs change."""

    @abc.abstractmethod
    def compute(self, *args):
        """The result of a run with the values that it has, which it changes."""


class Rule:
    """The values of host and programs, and who has the agreed ones.

    Args:
        host: values by name.
    """

    def __init__(self, host):
        self.host = host
        self.agreed = dict(host)
        self.version = dict.fromkeys(host, 0)
        self.newest = dict.fromkeys(host)
        self.pending = dict.fromkeys(host, False)
        self.unseen = dict.fromkeys(host, False)  # writes of the host
        self.programs: list[Holder] = []

    def holders(self, s):
        return [p for p in self.programs if s in p.device]

    def is_current(self, p, s):
        return p.version.get(s) == self.version[s]

    def give(self, p, s):
        p.device[s], p.version[s] = self.agreed[s], self.version[s]

    def fetch(self, p):
        for s in p.updated():
            if self.is_current(p, s):
                self.host[s], self.newest[s], self.pending[s] = p.device[s], None, False

    def read(self, storages):
        for p in dict.fromkeys(self.newest[s] for s in storages):
            if p is not None:
                self.fetch(p)
        self.drop_orphans()  # as soon as nothing has to be read of them

    def look(self, storages):
        """Notices writes of the host: what no run changes takes them."""
        for s in storages:
            is_unseen, self.unseen[s] = self.unseen[s], False
            if is_unseen and self.pending[s] \
                    and not any(s in p.updated() for p in self.holders(s)):
                self.publish_to_all([s])

    def sync(self, p):
        self.look(p.storages)
        for s in p.storages:
            if not self.is_current(p, s) and self.newest[s] and not self.pending[s]:
                self.fetch(self.newest[s])
        for s in p.storages:
            if not self.holders(s):
                self.agreed[s], self.pending[s] = self.host[s], False
            if not self.is_current(p, s):
                self.give(p, s)

    def compile(self, p):
        if not p.is_compiled:
            self.read(p.storages)
            self.sync(p)
            p.is_compiled = p.is_attached = True

    def attach(self, p):
        self.sync(p)
        p.is_attached = True

    def detach(self, p):
        self.destroy(p)
        p.is_compiled = True

    def call(self, p, *args):
        self.compile(p)
        p.is_attached = True
        self.sync(p)
        result = p.compute(*args)
        for s in p.updated():
            self.version[s] += 1
            self.agreed[s], p.version[s], self.newest[s] = p.device[s], self.version[s], p
        return result

    def write(self, s, value):
        self.host[s], self.pending[s] = value, bool(self.holders(s))
        self.unseen[s] = True

    def publish(self, p, storages):
        if p is not None and p.is_attached:
            self.look(p.storages)
        for s in storages:
            if self.newest[s] not in (None, p) and not self.pending[s]:
                self.fetch(self.newest[s])
            if p is not None and not p.is_attached:
                self.publish_to_all([s])
                continue
            self.version[s] += 1
            self.agreed[s], self.newest[s], self.pending[s] = self.host[s], None, False
            if p is not None:
                self.give(p, s)

    def load(self, storages, values):
        self.read(storages)
        for s in storages:
            self.host[s] = values[s]
        self.publish_to_all(storages)

    def publish_to_all(self, storages):
        for s in storages:
            if self.holders(s):
                self.publish(None, [s])
                for p in self.holders(s):
                    self.give(p, s)

    def leave(self, p):
        for s in list(p.device):
            others = [q for q in self.holders(s) if q is not p]
            if self.is_current(p, s) and not any(self.is_current(q, s) for q in others):
                for q in others:
                    self.give(q, s)
            if not others:
                self.pending[s] = False
        p.device, p.version, p.is_compiled, p.is_attached = {}, {}, False, False

    def destroy(self, p):
        if p in self.newest.values():
            self.fetch(p)
        self.leave(p)

    def drop_orphans(self):
        for p in [p for p in self.programs if p.is_orphan and p not in self.newest.values()]:
            self.leave(p)
            self.programs.remove(p)

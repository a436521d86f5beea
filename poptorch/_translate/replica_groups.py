"""Which replicas belong together: those that read the same inputs, or hold the same weight."""

from dataclasses import dataclass

from poptorch.errors import Error


@dataclass(frozen=True)
class ReplicaGroups:
    """Groups of ``size`` replicas, numbered as csrc/run/replica_groups.h does it: each n-th replica
    of n groups if they are orthogonal, else neighbours."""

    replicas: int
    size: int = 1
    is_orthogonal: bool = False

    @property
    def count(self) -> int:
        """The number of groups."""
        return self.replicas // self.size

    def of(self, replica: int) -> int:
        """The number of the group that a replica is in."""
        return replica % self.count if self.is_orthogonal else replica // self.size

    def first(self, group: int) -> int:
        """The first replica of a group."""
        return group if self.is_orthogonal else group * self.size

    def are_within(self, others: "ReplicaGroups") -> bool:
        """Whether the replicas of each group are together in one of the other groups, too."""
        return all(others.of(replica) == others.of(self.first(self.of(replica)))
                   for replica in range(self.replicas))


@dataclass(frozen=True)
class WeightGroups(ReplicaGroups):
    """The groups of a weight, which on the host has one more dimension, the first. With
    ``reads_all`` the host gets the value of each replica, not of each group."""

    reads_all: bool = False

    @property
    def entries(self) -> int:
        """The values that the host gets."""
        return self.replicas if self.reads_all else self.count

    def writer(self, entry: int) -> int:
        """The replica whose value the host gets as that entry."""
        return entry if self.reads_all else self.first(entry)

    def entry_for(self, replica: int, entries: int) -> int:
        """The entry of the host's, of so many, that a replica gets."""
        return self.of(replica) if entries == self.count else replica

    def check(self, path: str, shape: tuple[int, ...]) -> None:
        """Checks that the first dimension of the host's tensor is that of the groups."""
        if shape and shape[0] in (self.count, self.entries):
            return
        each = f", or of {self.replicas}, one for each replica" if self.reads_all else ""
        raise Error(f"[replicaGrouping] {path} has the shape {tuple(shape)}; its {self.replicas} "
                    f"replicas in groups of {self.size} need a first dimension of {self.count}, "
                    f"one entry for each group{each}. Stack the values of the groups, or choose "
                    f"other groups.")

"""Who has the newest value of one storage: the states and transitions, without any tensor.

``docs/internals/weights.md`` says what they mean. Two values matter: that of the host's memory,
and the *agreed* one, which every program sees. They differ while the host's is older (``newest``)
and while it holds a write that no program sees yet (``is_pending``).
"""

import enum
from collections.abc import Hashable


class Source(enum.Enum):
    """Where a program takes the agreed value from before it runs."""

    OWN = "the program's copy is the agreed value"
    HOST = "the host has it"
    NEWEST = "the newest program has it, and the host takes it on the way"
    DEVICES = "programs have it, and the host's memory keeps another value"


class Ownership:
    """The state of one storage.

    Attributes:
        version: of the agreed value.
        copies: the version that each program's copy has.
        newest: the program whose runs changed the value since the host last took it.
        is_pending: the host was written since it last had the agreed value.
    """

    __slots__ = ("copies", "is_pending", "newest", "version")

    def __init__(self):
        self.version = 0
        self.copies: dict[Hashable, int] = {}
        self.newest: Hashable | None = None
        self.is_pending = False

    def is_current(self, program: Hashable) -> bool:
        """Whether a program's copy is the agreed value."""
        return self.copies.get(program) == self.version

    def is_alone_ahead(self, program: Hashable) -> bool:
        """Whether nothing has read what the last run of ``program`` wrote."""
        return self.newest is program and self.is_current(program) and not any(
            version == self.version for other, version in self.copies.items()
            if other is not program)

    def source(self, program: Hashable) -> Source:
        """Where ``program`` has to take the value from before it runs."""
        if self.is_current(program):
            return Source.OWN
        if self.is_pending:
            return Source.DEVICES
        return Source.HOST if self.newest is None else Source.NEWEST

    def mark_current(self, program: Hashable) -> None:
        """Notes that a program has the agreed value. For the first program that is the host's."""
        self.copies[program] = self.version

    def mark_written(self, program: Hashable) -> None:
        """Notes that a program with the agreed value wrote a new one."""
        self.version += 1
        self.copies[program] = self.version
        self.newest = program

    def fetched(self) -> None:
        self.newest = None
        self.is_pending = False

    def host_written(self) -> None:
        """Notes a write to the host's memory. Without programs it is the agreed value at once."""
        self.is_pending = bool(self.copies)

    def published(self, program: Hashable) -> None:
        """Notes that a program has the host's value, which is the agreed one from now on."""
        self.version += 1
        self.copies[program] = self.version
        self.newest = None
        self.is_pending = False

    def heirs(self, program: Hashable) -> list[Hashable]:
        """The programs to give the agreed value before ``program`` leaves, which alone has it."""
        if not self.is_current(program):
            return []
        others = [other for other in self.copies if other is not program]
        return [] if any(map(self.is_current, others)) else others

    def detach(self, program: Hashable) -> None:
        """Removes a program. Fetch its value, or give it to the heirs, before."""
        self.copies.pop(program, None)
        if self.newest is program:
            self.newest = None
        if not self.copies:
            self.is_pending = False

"""All states of one storage with three programs, compared with the values that they stand for."""

import itertools

from poptorch._weights.ownership import Ownership, Source

PROGRAMS = ("p", "q", "r")


class World:
    """An Ownership, and what host and programs really have; each write makes a new value."""

    def __init__(self):
        self.state, self.host, self.agreed = Ownership(), 0, 0
        self.device, self.values = {}, itertools.count(1)

    def fetch(self, program):
        self.host = self.device[program]
        self.state.fetched()

    def run(self, program):
        source = self.state.source(program)
        if source is Source.NEWEST:
            self.fetch(self.state.newest)
            source = Source.HOST
        if source is Source.HOST:
            if not self.state.copies:
                self.agreed = self.host
            assert self.host == self.agreed
        if source is not Source.OWN:
            self.device[program] = self.agreed
            self.state.mark_current(program)
        assert self.device[program] == self.agreed

    def train(self, program):
        self.run(program)
        self.agreed = self.device[program] = next(self.values)
        self.state.mark_written(program)

    def read(self, _=None):
        if self.state.newest is not None:
            assert self.device[self.state.newest] == self.agreed
            self.fetch(self.state.newest)

    def write(self, _=None):
        self.host = next(self.values)
        self.state.host_written()

    def publish(self, program):
        if program in self.state.copies:
            self.agreed = self.device[program] = self.host
            self.state.published(program)

    def copy_to_host(self, program):
        if self.state.is_current(program):
            assert self.device[program] == self.agreed
            self.fetch(program)

    def leave(self, program):
        if self.state.newest is program:
            self.fetch(program)
        for heir in self.state.heirs(program):
            self.device[heir] = self.agreed
            self.state.mark_current(heir)
        self.state.detach(program)
        self.device.pop(program, None)

    def check(self):
        state = self.state
        for program, value in self.device.items():
            assert value == self.agreed or not state.is_current(program)
        if state.copies:
            assert any(map(state.is_current, state.copies)), "no copy has the agreed value"
        if state.newest is None and not state.is_pending and state.copies:
            assert self.host == self.agreed
        assert state.newest is None or state.is_current(state.newest)
        if state.is_alone_ahead("p"):
            assert all(value != self.agreed for other, value in self.device.items()
                       if other != "p")

    def key(self):
        """What distinguishes states: not the numbers themselves."""
        state = self.state
        return (state.newest, state.is_pending, tuple(
            None if program not in state.copies else state.is_current(program)
            for program in PROGRAMS))


EVENTS = [("read", None), ("write", None)] + [
    (name, program) for program in PROGRAMS
    for name in ("run", "train", "publish", "copy_to_host", "leave")]


def replay(history):
    world = World()
    for name, program in history:
        getattr(world, name)(program)
        world.check()
    return world


def test_every_state_and_every_event():
    found, left = {World().key(): ()}, [()]
    while left:
        history = left.pop()
        for event in EVENTS:
            key = replay((*history, event)).key()
            if key not in found:
                found[key] = (*history, event)
                left.append(found[key])
    assert len(found) > 40


def test_short_histories():
    for history in itertools.product(EVENTS[:7] + EVENTS[7:9], repeat=4):
        replay(history)


def test_a_pending_write_is_not_seen_by_others():
    world = replay([("run", "p"), ("write", None), ("run", "q")])
    assert world.device["q"] == 0 and world.host == 1 and world.state.is_pending
    assert world.state.source("r") is Source.DEVICES


def test_without_programs_the_host_is_right():
    world = replay([("run", "p"), ("write", None), ("leave", "p"), ("run", "q")])
    assert world.device["q"] == world.host == 1 and not world.state.is_pending


def test_publishing_reaches_those_that_run_later():
    world = replay([("train", "p"), ("run", "q"), ("write", None), ("publish", "q"), ("run", "p")])
    assert world.device["p"] == world.host

"""Ends of all kinds, again and again: always in time, and nothing is left behind."""

import contextlib
import itertools
import os
import random
import signal
import time

import pytest
import torch

import poptorch
from tests.data.datasets import (
    ASYNC,
    FORK,
    REBATCHED,
    SOON_S,
    Stream,
    loading,
    numbers,
    options,
    processes_of,
    segments,
)

pytestmark = pytest.mark.slow


def make(mode, count, **arguments):
    data = Stream(count) if mode is REBATCHED else numbers(count)
    return poptorch.DataLoader(options(), data, mode=mode, **arguments)


@pytest.mark.parametrize("mode", [ASYNC, REBATCHED])
@pytest.mark.parametrize("workers", [0, 2])
def test_terminate_at_any_moment(mode, workers, seed):
    before, draw = segments(), random.Random(seed)
    for _ in range(30):
        async_options = FORK | {"early_preload": draw.random() < 0.5,
                                "buffer_size": draw.randint(1, 5)}
        loader = make(mode, 5000, num_workers=workers, batch_size=draw.randint(1, 50),
                      async_options=async_options)
        for _ in itertools.islice(loader, draw.randint(0, 20)):
            pass
        pid, start = loader._accessor._link._process.pid, time.monotonic()
        loader.terminate()
        assert time.monotonic() - start < SOON_S
        assert not processes_of(group=pid)
    assert segments() <= before


@pytest.mark.parametrize("workers", [0, 2])
def test_death_at_any_moment(workers, seed):
    """Of the process or one of its workers: an error, or all items, and never a wrong one."""
    before, draw = segments(), random.Random(seed)
    for _ in range(30):
        with loading(make(ASYNC, 2000, num_workers=workers, batch_size=7,
                          async_options=FORK)) as loader:
            pid, drawn = loader._accessor._link._process.pid, []
            moment, start = draw.randint(0, 280), time.monotonic()
            with contextlib.suppress(poptorch.Error, RuntimeError, OSError, EOFError):
                for i, [x] in enumerate(loader):
                    drawn += x.tolist()
                    if i == moment:
                        _kill(draw.choice(processes_of(group=pid)))
            assert drawn == list(range(len(drawn)))
            assert time.monotonic() - start < SOON_S + 10
        assert not processes_of(group=pid)
    assert segments() <= before


def _kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("strategy", list(poptorch.SharingStrategy), ids=lambda s: s.name)
def test_many_loaders_at_once(strategy):
    made = [make(ASYNC, 30, batch_size=3, async_options={"sharing_strategy": strategy})
            for _ in range(4)]
    for _ in range(3):
        for items in zip(*made):
            assert all(torch.equal(item[0], items[0][0]) for item in items)
    for loader in made:
        loader.terminate()


def test_left_early_at_any_moment(seed):
    draw = random.Random(seed)
    with loading(make(ASYNC, 200, num_workers=2, batch_size=3, drop_last=False,
                      async_options=FORK)) as loader:
        for _ in range(100):
            drawn = []
            for [x] in itertools.islice(loader, draw.choice([0, 1, 2, 30, 66, 67])):
                drawn += x.tolist()
            assert drawn == list(range(len(drawn)))

"""Functions that several threads run at once, for tests."""

import sys
import threading

import pytest
import torch

WAIT_S = 300


@pytest.fixture
def frequent_switches():
    """Threads change places every few steps, as they do rarely otherwise."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(autouse=True)
def module_threads(request, clean_state):
    """torch has as many threads as ``THREADS`` of the module that imports this fixture says, which
    may be more than the machine has processors. ``clean_state`` restores the number."""
    torch.set_num_threads(request.module.THREADS)


def at_once(functions):
    """Runs functions in a thread each, all at once; raises the first error of any.

    Args:
        functions: each is called with a barrier at which all can meet.
    """
    errors, barrier = [], threading.Barrier(len(functions))

    def work(function):
        try:
            function(barrier)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f,), daemon=True) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    if errors:
        raise errors[0]

"""Lists in attributes that only grow: a warning where forward computes with how long they are."""

import collections

import pytest

from tests.capture.common import Function
from tests.guards.test_python_state import told_of


def length(m, x):
    m.history.append(2.0)
    return x * len(m.history)


def length_before(m, x):
    count = len(m.history)
    m.history.extend([2.0])
    print(len(m.history))
    return x * count


def total(m, x):
    m.history.append(x.shape[0])
    return x + sum(m.history)


@pytest.mark.parametrize("made", [list, collections.deque])
@pytest.mark.parametrize("forward", [length, length_before, total])
def test_lists_that_count(forward, made, capsys):
    module = Function(forward)
    module.history = made()
    told = told_of(module, capsys)
    assert told.count("[capture]") == 1
    assert "forward changes the Python value history, from " in told and "[2" in told


def shown_length(m, x):
    m.history.append(x.shape[0])
    print(len(m.history))
    return x


def cut_history(m, x):
    m.history.append(x.shape[0])
    if len(m.history) > 100:
        m.history.clear()
    return x


def made_once(m, x):
    if len(m.history) == 0:
        m.history.append(2.0)
    count = len(m.history)
    return x * m.history[0] * count


def filled_anew(m, x):
    m.history.clear()
    m.history.append(2.0)
    return x * len(m.history)


def made_anew(m, x):
    m.history = []
    m.history.append(2.0)
    return x * len(m.history)


def by_length(m, x):
    for layer in range(2):
        if layer >= len(m.history):
            m.history.append(layer)
        x = x * m.history[layer]
    return x * len(m.history)


@pytest.mark.parametrize("forward", [shown_length, cut_history, made_once, filled_anew, made_anew,
                                     by_length])
def test_lists_that_do_not_count(forward, capsys):
    module = Function(forward)
    module.history = []
    assert told_of(module, capsys) == ""

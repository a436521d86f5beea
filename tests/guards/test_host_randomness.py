"""What forward draws in Python is drawn once, which a warning says."""

import itertools
import random

import numpy
import pytest
import torch

import poptorch
from tests.capture.common import Function
from tests.helpers import quiet_options

GENERATOR, ITEMS = random.Random(0), iter([1.0, 2.0, 3.0])


def told_of(module, capsys, calls=1) -> str:
    model = poptorch.inferenceModel(module, quiet_options())
    results = [model(torch.ones(2)) for _ in range(calls)]
    assert all(torch.equal(result, results[0]) for result in results)
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("draw, name", [
    (lambda: random.random(), "random"), (lambda: random.uniform(1, 2), "random"),
    (lambda: numpy.random.rand(), "numpy.random"),
    (lambda: float(numpy.random.permutation(4)[0]), "numpy.random"),
    (lambda: GENERATOR.random(), "GENERATOR"), (lambda: random.SystemRandom().random(), None)])
def test_generators_of_the_process_and_globals(draw, name, capsys):
    told = told_of(Function(lambda m, x: x * draw()), capsys, calls=2)
    if name is None:
        assert not told
    else:
        assert told.count("[capture]") == 1
        assert (f"forward uses random numbers from {name}. Python runs only while forward is "
                "traced, so every call sees the same numbers. Draw with torch (torch.rand, "
                "torch.nn.functional.dropout), which every call does again, or outside of forward, "
                "and pass the numbers as tensors.") in told


@pytest.mark.parametrize("held, draw", [
    (numpy.random.default_rng(0), lambda held: held.random()),
    (numpy.random.RandomState(0), lambda held: held.rand()),
    (random.Random(0), lambda held: held.random()),
    (random.SystemRandom(), lambda held: held.random()),
    (random.Random(0).random, lambda held: held()),
    ({"a": [numpy.random.default_rng(0).normal]}, lambda held: held["a"][0]())])
def test_generators_that_modules_hold(held, draw, capsys):
    module = Function(lambda m, x: x * draw(m.held))
    module.held = held
    assert "forward uses random numbers from held" in told_of(module, capsys, calls=2)


def test_generators_that_are_not_used(capsys):
    module = Function(lambda m, x: x * len(m.held) + (0 if GENERATOR else 1))
    module.held = [random.Random(0), numpy.random.default_rng(0)]
    random.random()
    assert told_of(module, capsys) == ""


def numbers():
    while True:
        yield 1.0


@pytest.mark.parametrize("make", [lambda: iter([1.0, 2.0]), itertools.count, numbers,
                                  lambda: map(float, "12"), lambda: iter([1.0, 2.0]).__next__])
def test_iterators(make, capsys):
    held = make()

    def forward(m, x):
        return x * (m.held() if callable(m.held) else next(m.held))

    module = Function(forward)
    module.held = held
    told = told_of(module, capsys, calls=2)
    kind = type(getattr(held, "__self__", held) if callable(held) else held).__name__
    assert told.count("[capture]") == 1
    assert (f"forward reads held, a {kind}. Python code runs only while forward is traced, so "
            "every call sees the same items. Take them outside of forward and pass them as "
            "arguments.") in told


def test_iterators_that_are_global(capsys):
    told = told_of(Function(lambda m, x: x * next(ITEMS)), capsys)
    assert "forward reads ITEMS, a list_iterator" in told


def test_iterators_that_forward_makes(capsys):
    def forward(m, x):
        return sum(x * k for k, _ in zip(map(float, m.sizes), itertools.count()))

    module = Function(forward)
    module.sizes = [1, 2]
    assert told_of(module, capsys) == ""


def test_functions_of_the_host_draw_anew(capsys):
    generator = numpy.random.default_rng(0)
    drawn = []

    def scaled(x):
        drawn.append((random.random(), numpy.random.rand(), generator.random()))
        return x * 2

    module = Function(lambda m, x: m.scaled(x))
    module.scaled, module.generator = poptorch.CPU(scaled, "scaled"), generator
    assert told_of(module, capsys, calls=2) == "" and len(set(drawn)) == 3

    module = Function(lambda m, x: m.scaled(x) * random.random())
    module.scaled = poptorch.CPU(scaled, "scaled")
    assert "forward uses random numbers from random" in told_of(module, capsys)


def test_a_function_of_the_host_draws_from_a_global_generator(capsys):
    def scaled(x):
        return x * GENERATOR.random()

    model = poptorch.inferenceModel(
        Function(lambda m, x: poptorch.CPU(scaled, "scaled")(x)), quiet_options())
    assert not torch.equal(model(torch.ones(2)), model(torch.ones(2)))
    assert capsys.readouterr().err == ""

"""Options and fixtures of all tests: golden updates, reproducible data, clean global state."""

import functools
import gc
import os
import random
import zlib

import pytest
import torch

from poptorch import _C
from poptorch._base import logging as _logging

pytest.register_assert_rewrite("tests.helpers")

os.environ.setdefault("POPTORCH_DEBUG", "1")  # also for child processes
os.environ.setdefault("POPTORCH_MEASURE", "0")  # plans follow from costs, not from this machine

SEED_VARIABLE = "POPTORCH_TEST_SEED"
# Of the tests that are marked as sampled, a run of all default tests takes one in so many.
SAMPLED = 5


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true", help="rewrite expected golden output")
    parser.addoption("--part", metavar="K/N", default="0/1",
                     help="of N parts of the tests, by a hash of their ids, run part K only")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    told = getattr(config, "workerinput", {})  # by the process that started this one
    given = told.get(SEED_VARIABLE) or os.environ.get(SEED_VARIABLE)
    config.poptorch_seed = int(given) if given else int.from_bytes(os.urandom(3), "little")
    takes_all = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    config.poptorch_samples = told.get("samples", not takes_all and config.option.markexpr != "")
    if config.getoption("hypothesis_seed", None) is None:  # what hypothesis draws follows, too
        config.option.hypothesis_seed = config.poptorch_seed


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """The processes of pytest-xdist have the seed of the run, and take the same tests."""
    node.workerinput[SEED_VARIABLE] = node.config.poptorch_seed
    node.workerinput["samples"] = node.config.poptorch_samples


def pytest_collection_modifyitems(config, items):
    part, parts = map(int, config.getoption("part").split("/"))
    seed, taken, left = config.poptorch_seed, [], []
    for item in items:
        number = zlib.crc32(item.nodeid.encode())
        is_taken = not config.poptorch_samples or item.get_closest_marker("sampled") is None \
            or (seed + number) % SAMPLED == 0
        (taken if is_taken and number % parts == part else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = taken


@pytest.hookimpl(hookwrapper=True)
def pytest_collection():
    """Garbage collection skips what is there before the tests run: many objects, little garbage."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


def pytest_report_header(config):
    lines = [f"random data: {SEED_VARIABLE}={config.poptorch_seed} repeats this run"]
    if config.poptorch_samples:
        lines.append(f"sampled tests: one in {SAMPLED}, by the seed (all: make test-slow)")
    return lines


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed and "seed" in item.fixturenames:
        words = f"{SEED_VARIABLE}={item.config.poptorch_seed} gives this test the same data again"
        report.sections.append(("random data", words))


@pytest.fixture
def seed(request):
    """Seed of this test: fresh in each run, the same for one POPTORCH_TEST_SEED and test name."""
    return request.config.poptorch_seed + zlib.crc32(request.node.nodeid.encode()) % 2**31


@pytest.fixture
def sampled(request, seed):
    """A function that keeps a random fifth of a list in a run of all default tests.

    It keeps at least three elements, in their order. Other runs keep the whole list.
    """
    def keep(cases):
        cases = list(cases)
        count = max(3, len(cases) // SAMPLED)
        if not request.config.poptorch_samples or count >= len(cases):
            return cases
        return [cases[i] for i in sorted(random.Random(seed).sample(range(len(cases)), count))]

    return keep


@pytest.fixture
def tell(record_property):
    """A function that shows a text at the end of the run, also when the test passes."""
    return functools.partial(record_property, "told")


def pytest_terminal_summary(terminalreporter):
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, text in report.user_properties:
            if name == "told":
                terminalreporter.section(report.nodeid)
                terminalreporter.write_line(text)


@pytest.fixture
def update(request):
    """Whether golden files are to be rewritten instead of compared."""
    return request.config.getoption("--update")


@pytest.fixture(autouse=True)
def clean_state(seed):
    """Seeds torch, and puts back the process-wide settings that a test may change."""
    torch.manual_seed(seed)
    _logging.use_log_options(None, ".")
    _logging.use_log_options(4, ".")
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)


@pytest.fixture(params=_C.machine_isas())
def isa(request):
    """Each instruction set of this machine, in use during the test."""
    before = _C.isa()
    _C.set_isa(request.param)
    yield request.param
    _C.set_isa(before)


@pytest.fixture(params=[level for level in _C.machine_isas() if level != "base"])
def loops(request, monkeypatch):
    """Products by loops of our own, whatever the processor, with each instruction set."""
    before = _C.isa(), _C.gemm_by()
    monkeypatch.setenv("POPTORCH_OFF", "bf16x3_gemm")  # the processor's unit for products, if any
    _C.set_isa(request.param)
    _C.set_gemm("loops")
    yield
    _C.set_isa(before[0])
    _C.set_gemm(before[1])

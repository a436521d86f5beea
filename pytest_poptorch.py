"""A plug-in for pytest: ``--ipu=pod16`` and the fixture ``ipu_report``.

It stands outside of the package, so that pytest does not import torch for other tests.
"""

import os

import pytest

_VARIABLE = "POPTORCH_IPU_SYSTEM"


def pytest_addoption(parser):
    parser.getgroup("poptorch").addoption(
        "--ipu", metavar="SYSTEM", help="the IPU system of the tests, such as pod16; sets "
        f"{_VARIABLE} for the session")


def pytest_configure(config):
    name = config.getoption("ipu")
    if name is None:
        return
    from poptorch._device.systems import named  # heavy: imports torch

    try:
        named(name)
    except ValueError as error:
        words = str(error).partition("] ")[2]
        raise pytest.UsageError(f"[--ipu] {words}") from None
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = name
    config.add_cleanup(lambda: _restore(before))


def _restore(before):
    if before is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = before


@pytest.fixture
def ipu_report():
    """A function like :func:`poptorch.estimate`: ``ipu_report(model, options, *inputs)``.

    It returns the report for the system of ``--ipu``. A test that fails shows its pages.
    """
    from poptorch import estimate  # heavy: imports torch

    def report(model, options, *inputs, **named):
        made = estimate(model, options, *inputs, **named)
        print(made)
        return made

    return report

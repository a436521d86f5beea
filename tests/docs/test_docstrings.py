"""The examples in docstrings run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import poptorch
from tests.docs.reference_pages import GROUPS


def _modules():
    names = [m.name for m in pkgutil.walk_packages(poptorch.__path__, "poptorch.")]
    return ["poptorch", *(n for n in names if not n.endswith(("._C", ".__main__")))]


def _run(tests):
    """Runs examples, which must print what they say."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report = []
    for test in tests:
        runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


@pytest.mark.parametrize("name", _modules())
def test_examples_in_docstrings(name):
    _run(doctest.DocTestFinder().find(importlib.import_module(name), name))


@pytest.mark.parametrize("name", GROUPS)
def test_examples_of_option_setters(name):
    """Each setter has one, which its row gives where the docstring has none."""
    for row in GROUPS[name]._ROWS:
        if row.setter and not row.deprecated:
            setter = getattr(GROUPS[name], row.setter)
            tests = doctest.DocTestFinder().find(setter, row.setter, module=False)
            assert tests[0].examples, row.setter
            _run(tests)

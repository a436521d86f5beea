"""The examples in docstrings run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import poptorch


def _modules():
    names = [m.name for m in pkgutil.walk_packages(poptorch.__path__, "poptorch.")]
    return ["poptorch", *(n for n in names if not n.endswith(("._C", ".__main__")))]


@pytest.mark.parametrize("name", _modules())
def test_examples_in_docstrings(name):
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder()
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report = []
    for test in finder.find(module, name):
        runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)

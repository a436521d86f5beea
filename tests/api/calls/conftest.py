"""Parsers of arguments that a test registers are gone after it."""

import pytest

from poptorch import custom_args


@pytest.fixture(autouse=True)
def own_parsers(monkeypatch):
    """Only those are registered that the test's module has registered."""
    monkeypatch.setattr(custom_args, "_parsers", custom_args._parsers.copy())

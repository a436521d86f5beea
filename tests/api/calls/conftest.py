"""Parsers of arguments that a test registers are gone after it."""

import pytest


@pytest.fixture(autouse=True)
def no_parsers(monkeypatch):
    """No parser is registered when a test begins."""
    monkeypatch.setattr("poptorch.custom_args._parsers", {})

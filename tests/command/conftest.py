"""The folder of files that the examples of the help name."""

import pytest

from tests.command.folder import fill


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, which has the files."""
    monkeypatch.chdir(tmp_path)
    fill(tmp_path)
    return tmp_path

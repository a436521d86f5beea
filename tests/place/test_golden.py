"""Golden cases of the step ``place``: text in, text out."""

from pathlib import Path

import pytest

from tests import pass_cases

CASES = sorted(Path(__file__).parent.glob("*.ir"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path, update):
    pass_cases.check_steps(path, update)

"""Golden cases of the passes for any target; ``tests/pass_cases.py`` describes them."""

from pathlib import Path

import pytest

from poptorch import _C
from tests import pass_cases

CASES = sorted(Path(__file__).parent.glob("*/*.ir"))


@pytest.fixture(params=CASES, ids=pass_cases.case_id)
def path(request):
    """A case, under its conditions."""
    with pass_cases.conditions(request.param):
        yield request.param


def test_case(path, update):
    pass_cases.check(path, update)


def test_second_run_changes_nothing(path):
    pass_cases.check_second_run(path)


def test_places_stay(path):
    pass_cases.check_placed(path)


def test_every_pass_has_cases():
    assert {path.parent.name for path in CASES} == set(_C.pipeline("rewrite"))

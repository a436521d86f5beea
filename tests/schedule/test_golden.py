"""Golden cases of the step ``schedule``: text in, text out."""

from pathlib import Path

import pytest

from poptorch import _C
from tests.helpers import check_case, read_case

CASES = sorted(Path(__file__).parent.glob("*.ir"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path, update):
    steps, source, _ = read_case(path)
    module = _C.parse(source)
    for step in steps.split(","):
        getattr(_C, step)(module)
    check_case(path, module.text(), update)

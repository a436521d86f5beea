"""Golden cases of tasks: text in, text out. Inlined again, it is the text that was cut."""

from pathlib import Path

import pytest

from poptorch import _C
from tests.helpers import check_case, read_case

CASES = sorted(Path(__file__).parent.glob("*.ir"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path, update):
    passes, source, _ = read_case(path)
    module = _C.parse(source)
    _C.place(module)
    placed = module.text()
    for name in passes.split(",")[1:]:
        getattr(_C, name)(module)
    text = module.text()
    check_case(path, text, update)
    module.verify("placed")
    again = _C.parse(text)
    for cut in (module, again):
        _C.inline_tasks(cut)
        assert cut.text() == placed

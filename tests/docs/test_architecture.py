"""The IR printed in docs/internals/architecture.md is what the steps give."""

import re

from poptorch import _C
from tests.helpers import ROOT

PAGE = ROOT / "docs" / "internals" / "architecture.md"
SOURCE = re.compile(r"<!-- source -->\n```\n(.*?)```\n", re.DOTALL)
BLOCK = re.compile(r"<!-- step: (\w+) -->\n```\n.*?```\n", re.DOTALL)


def test_steps(update):
    text = PAGE.read_text()
    module = _C.parse(SOURCE.search(text).group(1))
    module.verify()

    def print_step(match):
        step = match.group(1)
        if step == "lower":
            _C.inline_tasks(module)
        getattr(_C, step)(module)
        return f"<!-- step: {step} -->\n```\n{module.text()}```\n"

    expected = BLOCK.sub(print_step, text)
    _C.check_plan(module)
    if update:
        PAGE.write_text(expected)
    assert PAGE.read_text() == expected, "pytest --update rewrites the page"

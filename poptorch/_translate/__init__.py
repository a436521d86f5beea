"""Step 2, translate: the captured FX graph becomes an ``ir::Module`` that holds the whole step."""

from poptorch._translate.program import Program as Program
from poptorch._translate.program import StepSpec as StepSpec
from poptorch._translate.program import translate as translate

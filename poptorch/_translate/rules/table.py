"""Rules for ATen ops that are not 1:1 with an op row. ``RULES`` maps ATen names to them.

A rule is called as ``rule(emitter, node, *args, **kwargs)`` with the arguments of the ATen
overload, tensors replaced by IR values; it returns a value, or a list for several results.
"""

from poptorch._translate.rules import (  # noqa: F401  (they enter their rules)
    elementwise,
    memory,
    poptorch_ops,
    random,
    reduce,
    shape,
)
from poptorch._translate.rules.registry import RULES as RULES

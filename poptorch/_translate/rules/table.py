"""Rules for ATen ops that are not 1:1 with an op row. ``RULES`` maps ATen names to them.

A rule is called as ``rule(emitter, node, *args, **kwargs)`` with the arguments of the ATen
overload, tensors replaced by IR values; it returns a value, or a list for several results.
"""

from poptorch._translate.rules import (
    custom,
    elementwise,
    memory,
    poptorch_ops,
    products,
    random,
    reduce,
    shape,
)

RULES: dict = {}
for _module in (custom, elementwise, memory, poptorch_ops, products, random, reduce, shape):
    for _name, _rule in _module.RULES.items():
        assert _name not in RULES, f"two rules for {_name}"
        RULES[_name] = _rule

"""Rules for ATen ops that are not 1:1 with an op row. ``RULES`` maps ATen names to them.

A rule is called as ``rule(emitter, node, *args, **kwargs)`` with the arguments of the ATen
overload, tensors replaced by IR values; it returns a value, or a list for several results.
"""

from poptorch._translate.rules import custom as rules_custom
from poptorch._translate.rules import elementwise as rules_elementwise
from poptorch._translate.rules import memory as rules_memory
from poptorch._translate.rules import poptorch_ops
from poptorch._translate.rules import products as rules_products
from poptorch._translate.rules import random as rules_random
from poptorch._translate.rules import reduce as rules_reduce
from poptorch._translate.rules import shape as rules_shape

RULES: dict = {}
for _module in (rules_custom, rules_elementwise, rules_memory, poptorch_ops, rules_products,
                rules_random, rules_reduce, rules_shape):
    for _name, _rule in _module.RULES.items():
        assert _name not in RULES, f"two rules for {_name}"
        RULES[_name] = _rule

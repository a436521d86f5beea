"""Rules for ops of the user's libraries."""

import json

from poptorch._translate.rules.registry import register


@register("poptorch::custom_op")
def _custom_op(e, node, inputs, domain, name, version, settings):
    attrs = {"domain": domain, "op": name, "version": version, "settings": json.loads(settings)}
    return e.ops("custom", list(inputs), attrs)

"""Errors for results of ``forward`` that cannot be made again around new tensors."""

from collections.abc import Iterator

from poptorch._base.pytree import hidden_tensors
from poptorch._base.pytree import structure as pytree
from poptorch._base.pytree.containers import PARSED
from poptorch._base.pytree.structure import Structure
from poptorch._capture.graph.unknown_sizes import has_no_data
from poptorch.errors import Error


def refuse_hidden_tensors(result: Structure) -> None:
    """Raises an Error for a result with an object that cannot be rebuilt around new tensors."""
    for _, constant in result.leaves():
        if constant is not None:
            _refuse_leaf(constant.value)
    for node in result.nodes():
        # A parser takes the object itself, and from it what it knows.
        if node.kind is not PARSED \
                and hidden_tensors.is_among((node.template, node.context), has_no_data):
            raise _holds_tensors(node.cls, " in addition to its parts")


def _refuse_leaf(value) -> None:
    kind = type(value).__name__
    if isinstance(value, Iterator):
        raise Error(f"[output] forward returned a {kind}, whose items are created after forward "
                    f"was captured. Return list(...) or tuple(...) of it.")
    if pytree.is_closed(value):
        raise Error(f"[output] forward returned a {kind} that holds tensors, which is not a "
                    f"supported container. Return list(...) or tuple(...) of it.")
    if hidden_tensors.is_among(value, has_no_data):
        names = ", ".join(hidden_tensors.attributes_with(value, has_no_data))
        raise _holds_tensors(type(value), names and f" ({names})")


def _holds_tensors(cls: type, where: str) -> Error:
    name = cls.__name__
    hint = " Models of transformers return no cache with use_cache=False." \
        if name.endswith("Cache") else ""
    return Error(f"[output] forward returned a {name}, which holds tensors{where}. Return tensors, "
                 f"lists, tuples, dictionaries or dataclasses of them; or register a parser for "
                 f"{name} with poptorch.registerCustomArgParser.{hint}")

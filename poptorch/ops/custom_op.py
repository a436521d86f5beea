"""Operations by name: those of the user's libraries, and some that every program has."""

import json
from collections.abc import Iterable
from typing import Any

import torch

from poptorch import _C
from poptorch._base.extension_check import PACKAGE
from poptorch._base.logging import logger
from poptorch._capture import custom_call
from poptorch.errors import Error
from poptorch.ops import named


def include_path() -> str:
    """The folder that holds ``poptorch/custom_op.h``, for a compiler's ``-I``.

    ``python -m poptorch include`` prints it.

    Example:
        >>> import os, poptorch
        >>> os.path.isfile(os.path.join(poptorch.include_path(), "poptorch", "custom_op.h"))
        True
    """
    return str(PACKAGE / "include")


def custom_op(inputs: list[torch.Tensor], name: str, domain: str, domain_version: int,
              example_outputs: Iterable[torch.Tensor],
              attributes: dict[str, Any] | None = None) -> list[torch.Tensor]:
    """Calls an operation of a library of your own, or one that is known by its name.

    A library is written with ``poptorch/custom_op.h`` and loaded with
    ``ctypes.cdll.LoadLibrary``; the guide's page on custom ops shows how. Where none that is loaded
    has the operation, those of the domains ``ai.onnx``, ``ai.graphcore`` and
    ``poptorch.custom_ops`` that the same page lists are looked up. In a wrapped model the kernel
    runs with the program; elsewhere it runs at once.

    Args:
        inputs: the tensors that the operation takes; int64 ones become int32.
        name: of the operation.
        domain: that it belongs to.
        domain_version: the version of the operation, as its library has it.
        example_outputs: a list, or another iterable, of a tensor for each output. Only their
            number counts: what the outputs look like the operation says. A warning is logged where
            an example has other sizes.
        attributes: values by name: floats, ints, strings, or lists of one of them.

    Returns:
        The outputs. None shares memory with an input or a different output.

    Raises:
        poptorch.Error: No library has the operation in this version; an attribute is unknown,
            missing or of another kind; the operation refuses the inputs, or gives another number
            of outputs.

    Example:
        >>> import poptorch, torch
        >>> x = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
        >>> poptorch.custom_op([x], "ReduceL1", "ai.onnx", 1, example_outputs=[x[0]],
        ...                    attributes={"axes": [1], "keepdims": 0})
        [tensor([3., 7.])]
    """
    _check_name(name, domain, domain_version)
    tensors = _checked_inputs(inputs, name)
    settings = _settings({} if attributes is None else attributes, name)
    examples = _examples(example_outputs, name)
    if _C.find_custom_op(domain, name, domain_version) is not None:
        outputs = custom_call(tensors, domain, name, domain_version, json.dumps(settings))
    else:
        outputs = named.call(tensors, domain, name, domain_version, dict(settings))
    if len(outputs) != len(examples):
        raise Error(f"[{domain}::{name}] has {len(outputs)} outputs, example_outputs has "
                    f"{len(examples)}. Give one example for each output.")
    for number, (output, example) in enumerate(zip(outputs, examples)):
        if isinstance(example, torch.Tensor) and example.shape != output.shape:
            logger.warning(
                "[%s::%s] output %d has the sizes %s, its example %s. The operation decides: make "
                "the example of the same sizes.", domain, name, number, list(output.shape),
                list(example.shape))
    return list(outputs)


def _check_name(name, domain, version) -> None:
    kinds = {"name": (name, str), "domain": (domain, str), "domain_version": (version, int)}
    for what, (value, kind) in kinds.items():
        if not isinstance(value, kind):
            raise Error(f"[custom_op] {what} is {value!r}, of type {type(value).__name__}. Give "
                        f"{'an int' if kind is int else 'a string'}.")
    if not _fits(version):
        raise Error(f"[custom_op] the domain_version of {name} is {version}, which does not fit 64 "
                    f"bits. Give the version that its library has.")


def _fits(number: int) -> bool:
    return -2**63 <= number < 2**63


def _examples(example_outputs, name: str) -> list:
    if isinstance(example_outputs, torch.Tensor) or not isinstance(example_outputs, Iterable):
        raise Error(f"[custom_op] the example_outputs of {name} are of type "
                    f"{type(example_outputs).__name__}. Give a list with a tensor for each output.")
    return list(example_outputs)


def _checked_inputs(inputs, name: str) -> list[torch.Tensor]:
    tensors = list(inputs) if isinstance(inputs, (list, tuple)) else None
    if tensors is None or not all(isinstance(x, torch.Tensor) for x in tensors):
        kinds = type(inputs).__name__ if tensors is None else \
            f"a list of {', '.join(sorted({type(x).__name__ for x in tensors}))}"
        raise Error(f"[custom_op] the inputs of {name} are {kinds}. Give a list of tensors.")
    return tensors


def _settings(attributes: dict, name: str) -> list[list]:
    """Names and values, sorted, so that the order of the dictionary does not count."""
    if not isinstance(attributes, dict):
        raise Error(f"[custom_op] the attributes of {name} are {attributes!r}, of type "
                    f"{type(attributes).__name__}. Give a dict of values by name.")
    for key in attributes:
        if not isinstance(key, str):
            raise Error(f"[custom_op] {name} has an attribute named {key!r}, of type "
                        f"{type(key).__name__}. Names are strings.")
    return [[key, _value(name, key, value)] for key, value in sorted(attributes.items())]


def _value(name: str, key: str, value):
    if isinstance(value, (list, tuple)):
        items = [_item(name, key, item) for item in value]
        if len({type(item) for item in items}) > 1:
            raise Error(f"[custom_op] attribute {key!r} of {name} mixes types: {value!r}. Give "
                        f"floats only, ints only or strings only.")
        return items
    return _item(name, key, value)


def _item(name: str, key: str, value):
    for kind in (int, float, str):  # bool is an int
        if isinstance(value, kind):
            if kind is str and any("\ud800" <= char <= "\udfff" for char in value):
                raise Error(f"[custom_op] attribute {key!r} of {name} is {value!r}, which holds "
                            f"half a surrogate pair: UTF-8 has no form of it. Give other text.")
            if kind is int and not _fits(value):
                raise Error(f"[custom_op] attribute {key!r} of {name} is {value}, which does not "
                            f"fit 64 bits. Give a smaller number, or a float.")
            return kind(value)
    raise Error(f"[custom_op] attribute {key!r} of {name} has {value!r}, of type "
                f"{type(value).__name__}. Give floats, ints, strings, or a list of one of them.")

"""Functions that say something about a tensor and return it."""

from typing import Any

import torch

from poptorch._base import capture_context
from poptorch._base.logging import logger
from poptorch._base.pytree.structure import Structure


def set_available_memory(tensor: torch.Tensor,
                         available_memory_proportion: float) -> torch.Tensor:
    """Limits the temporary memory of the operation that gave a tensor.

    The operation is a matrix product, a convolution, an embedding or another operation with
    indices; a bias that is added to it, a cast and a view of it are looked through. Its gradient
    has the same limit. The IR shows it as ``available_memory``. For any other operation nothing is
    set, and a warning is logged. Outside of poptorch nothing happens.

    Args:
        tensor: what the operation gave.
        available_memory_proportion: the share of a tile's memory, from 0.0 to 1.0; without this
            call it is 0.6.

    Returns:
        The same tensor.

    Raises:
        TypeError: ``tensor`` is not a tensor, or the share is not a number.
        ValueError: The share is less than 0 or more than 1.

    Example:
        >>> import poptorch, torch
        >>> x, weight = torch.ones(2, 3), torch.ones(3, 4)
        >>> poptorch.set_available_memory(x @ weight, 0.2).shape
        torch.Size([2, 4])
    """
    where, share = "set_available_memory", available_memory_proportion
    check_tensor(where, "tensor", tensor)
    check_share(where, "available_memory_proportion", share)
    capture = capture_context.current()
    if capture is not None and not capture.producers.annotate(
            tensor, "available_memory", float(share)):
        logger.warning("[set_available_memory] the tensor is not what a matrix product, a "
                       "convolution or an operation with indices gave, so that nothing is set.")
    return tensor


def nop(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor as it is, by an operation ``nop`` that stays in the program.

    No pass removes the tensor, merges it with a different one or fuses its operation, so the IR
    shows the tensor as a separate value.

    Args:
        tensor: of any shape and type.

    Returns:
        A view of all of it.

    Raises:
        TypeError: ``tensor`` is not a tensor.

    Example:
        >>> import poptorch, torch
        >>> poptorch.nop(torch.ones(2))
        tensor([1., 1.])
    """
    check_tensor("nop", "tensor", tensor)
    capture = capture_context.current()
    return tensor.view(tensor.shape) if capture is None else capture.nop(tensor)


def recomputationCheckpoint(*tensors: Any) -> Any:
    """Keeps tensors for the backward pass; what leads to them is computed again there.

    As soon as the ``forward`` of a model that trains calls it, recomputation is on: between the
    forward and the backward pass the marked tensors are kept, with the model's inputs and what
    goes from one block to another, and all else that they are computed from is dropped. The
    backward pass computes it again, between one mark and the next when it comes to them. Results
    and gradients have the same bits. Stochastic rounding is the exception: it rounds recomputed
    values again. All that is computed behind the last mark is kept. In inference, and outside of
    poptorch, nothing happens.

    Args:
        tensors: those to keep, at least one; also tuples, lists and dictionaries of tensors or
            None, nested to any depth.

    Returns:
        The same objects: one alone as it is, several as a list.

    Raises:
        TypeError: There are no arguments, or one of them is not a tensor.

    Example:
        >>> import poptorch, torch
        >>> poptorch.recomputationCheckpoint(torch.ones(2))
        tensor([1., 1.])
    """
    where = "recomputationCheckpoint"
    leaves, structure = Structure.of(tensors, where, "an argument")
    if not leaves:
        raise TypeError(f"[{where}] expected tensors, got none. Pass the tensors to keep.")
    for path, constant in structure.leaves():
        if constant is not None and constant.value is not None:
            check_tensor(where, f"argument {path}", constant.value)
    capture = capture_context.current()
    for tensor in leaves if capture is not None else ():
        capture.checkpoint(tensor)
    return tensors[0] if len(tensors) == 1 else list(tensors)


def check_tensor(where: str, name: str, value) -> None:
    """Checks that an argument is a tensor.

    Raises:
        TypeError: It is not.
    """
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"[{where}] {name} is expected to be a tensor, got "
                        f"{type(value).__name__} {value!r}.")


def check_share(where: str, name: str, value, words: str = "a share of a tile's memory") -> None:
    """Checks that an argument is a number from 0 to 1; ``words`` name it in the error.

    Raises:
        TypeError: It is not a number.
        ValueError: It is outside of the range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"[{where}] {name} is expected to be a number from 0 to 1, got "
                        f"{type(value).__name__} {value!r}.")
    if not 0 <= value <= 1:
        raise ValueError(f"[{where}] {name} is expected to be from 0 to 1, got {value!r}. It is "
                         f"{words}.")

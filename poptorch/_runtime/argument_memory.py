"""What a program takes for granted of the memory of its arguments, where that can be seen."""

from collections.abc import Sequence

import torch

from poptorch._base.layout import extent, lies_on_itself
from poptorch.errors import Error


def mismatch(what: str) -> Error:
    """The error for arguments that a program is not compiled for, known by its ``type``."""
    return Error(f"[arguments] {what} Set Options.recompilation(shapes=True) to compile the model "
                 f"again for other arguments, or call destroy() first.", type=MISMATCH)


MISMATCH = "argument_mismatch"


def check_layouts(tensors: list[torch.Tensor], names: list[str], layouts: dict) -> None:
    """Raises an Error if an argument has other strides or another offset than when compiled.

    ``layouts`` has those that the program depends on, by number of the argument; ``names`` are for
    messages.
    """
    for number, (strides, start) in layouts.items():
        name, given = names[number], tensors[number]
        if any(step not in (None, now) for step, now in zip(strides, given.stride())):
            raise mismatch(f"{name}: expected strides {strides} but got {list(given.stride())}. "
                           f"forward depends on the strides of its arguments, so the model is "
                           f"compiled for those of its first call.")
        if start not in (None, given.storage_offset()):
            raise mismatch(f"{name}: expected a tensor that begins at element {start} of its "
                           f"memory but got one at {given.storage_offset()}. forward calls "
                           f"as_strided, so the model is compiled for the place in its first "
                           f"call: pass {name}.clone().")


def check_memory(tensors: list[torch.Tensor], names: list[str],
                 changed: list[int], plain: Sequence[tuple[torch.Tensor, str]],
                 changed_plain: Sequence[tuple[torch.Tensor, str]]) -> None:
    """Raises an Error if ``forward`` changes an argument in memory that something else has, too.

    That is another argument, an element of its own, or one of the tensors ``plain``, which are
    compiled in. ``forward`` also changes the tensors ``changed_plain``, in whose memory no argument
    may lie.
    """
    for number in changed:
        tensor = tensors[number]
        if lies_on_itself(tensor.shape, tensor.stride()):
            raise Error(f"[arguments] forward changes {names[number]} in place, but several of its "
                        f"elements share memory (sizes {list(tensor.shape)}, strides "
                        f"{list(tensor.stride())}). Pass {names[number]}.contiguous().")
        for other, another in enumerate(tensors):
            if other != number:
                _check_apart(another, names[other], tensor, names[number], names[number])
        for known, name in plain:
            _check_apart(tensor, names[number], known, f"{name}, which is compiled in",
                         names[number])
    for known, name in changed_plain:
        for number, tensor in enumerate(tensors):
            _check_apart(tensor, names[number], known, f"{name}, which is compiled in", name)


def check_reshaped(tensors: list[torch.Tensor], names: list[str], reshaped: dict) -> None:
    """Raises an Error if ``forward`` changes the shape of an argument that is passed twice: the
    program changes one of the two."""
    for number in reshaped:
        for other, tensor in enumerate(tensors):
            if other != number and tensor is tensors[number]:
                raise Error(f"[arguments] forward changes the shape of {names[number]} in place, "
                            f"which is also passed as {names[other]}. Pass {names[other]}.view_as("
                            f"{names[other]}) in one place.")


def _check_apart(tensor: torch.Tensor, name: str, known: torch.Tensor, known_name: str,
                 changed: str) -> None:
    (begin, end), (known_begin, known_end) = _bytes(tensor), _bytes(known)
    if begin < known_end and known_begin < end:
        raise Error(f"[arguments] forward changes {changed} in place, and {name} shares memory "
                    f"with {known_name}; the program has a copy of each. Pass {name}.clone().")


def _bytes(tensor: torch.Tensor) -> tuple[int, int]:
    begin = tensor.data_ptr()
    return begin, begin + extent(tensor) * tensor.itemsize

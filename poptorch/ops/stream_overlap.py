"""What the device may compute while tensors go from and to the host."""

from typing import TypeVar

from poptorch._base import capture_context
from poptorch._base.checks import one_of
from poptorch._base.pytree.structure import Structure
from poptorch.enums import OverlapMode

# A tensor, or any nesting of tensors.
_Tensors = TypeVar("_Tensors")


def set_overlap_for_input(input_tensors: _Tensors, mode: OverlapMode) -> _Tensors:
    """Lets the copies of inputs from the host overlap with computation.

    Call it in ``forward`` before anything is computed from the inputs. It needs IO tiles,
    ``options.TensorLocations.numIOTiles``, and no pipelined execution. The timeline shows the
    copies on a track of their own. Values do not change. Outside of poptorch nothing happens.

    Args:
        input_tensors: an input of the model, or a list, tuple or dict of them, nested or not.
        mode: what is computed meanwhile.

    Returns:
        The same tensors.

    Raises:
        TypeError: ``mode`` is no member of ``OverlapMode``, or there is something else than
            tensors.
        poptorch.Error: In a program: a tensor is not an input of the model, was used before, or
            has a mode already. When it is compiled: there are less than 32 IO tiles, or the model
            is a pipeline.

    Example:
        >>> import poptorch, torch
        >>> mode = poptorch.OverlapMode.OverlapAccumulationLoop
        >>> poptorch.set_overlap_for_input(torch.ones(2), mode)
        tensor([1., 1.])
    """
    return _overlapping("set_overlap_for_input", input_tensors, mode,
                        lambda capture: capture.overlaps.of_input)


def set_overlap_for_output(output_tensors: _Tensors, mode: OverlapMode) -> _Tensors:
    """Lets the copies of results to the host overlap with computation.

    Call it at the end of ``forward``, and return what it gives: nothing may be computed from it.
    It needs what :func:`set_overlap_for_input` needs. Outside of poptorch nothing happens.

    Args:
        output_tensors: a result of the model, or a list, tuple or dict of them, nested or not.
        mode: what is computed meanwhile.

    Returns:
        The same tensors; in a program, views of all of them.

    Raises:
        TypeError: As :func:`set_overlap_for_input`.
        poptorch.Error: In a program: a tensor has a mode already, is used after this, is not
            returned, or more than once; or as :func:`set_overlap_for_input`.

    Example:
        >>> import poptorch, torch
        >>> mode = poptorch.OverlapMode.OverlapAccumulationLoop
        >>> poptorch.set_overlap_for_output({"y": torch.ones(2)}, mode)
        {'y': tensor([1., 1.])}
    """
    return _overlapping("set_overlap_for_output", output_tensors, mode,
                        lambda capture: capture.overlaps.of_output)


def _overlapping(where: str, tensors, mode: OverlapMode, noted_by):
    """Tensors that are noted, where a program is captured, by what ``noted_by`` gives for that."""
    mode = one_of(OverlapMode, mode, where)
    found, structure = Structure.of(tensors, where, "the argument")
    for _, constant in structure.leaves():
        if constant is not None:
            raise TypeError(f"[{where}] expected a tensor, or a list, tuple or dict of tensors, "
                            f"got {type(constant.value).__name__} {constant.value!r}.")
    capture = capture_context.current()
    if capture is not None:
        note = noted_by(capture)
        found = [note(x, mode) for x in found]
    return structure.unflatten(found)

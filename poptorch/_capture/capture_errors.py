"""Exceptions while a module is captured. An exception of the user's program passes unchanged. Any
other becomes a :class:`poptorch.Error` with the call and the user's line, which is also of torch's
class."""

import sys

import torch

from poptorch._base.torch_private import fake_tensors
from poptorch._capture import error_source
from poptorch._capture.functions.mode import Functions
from poptorch._capture.graph import replay
from poptorch._capture.graph.node_errors import (
    as_error,
    described,
    name_of,
    of_class,
    refused_by_torch,
    sentence,
)
from poptorch._capture.graph.source_location import Places
from poptorch._capture.graph.unknown_sizes import UnknownSize
from poptorch._capture.record.recorder import Recorder
from poptorch.errors import Error, placed

# The frames whose arguments are a call of torch.
_CALLS = (Functions.__torch_function__.__code__, Recorder.__torch_dispatch__.__code__)


def of_forward(error: Exception, places: Places, names: dict[int, str], failed) -> Exception:
    """What the caller of a capture is to see of an exception in forward or its backward pass.

    ``names`` has the path of each module by its identity; ``failed`` is ``(exception, meta)`` of
    the operation that failed in the backward pass, or None.
    """
    if not error_source.is_torchs(error):
        return error
    frames = error_source.frames(error)
    place, module = places.of_frames(frames), _module(frames, names)
    if place is None and failed is not None and failed[0] is error:
        place, module = failed[1]["place"], failed[1]["module"]
    place = place or places.of_caller()
    calls = _calls(frames)
    tried = ((call, replay.refusal(*call)) for call in calls)
    call, refusal = next((both for both in tried if both[1] is not None), (None, None))
    call = call or next(iter(calls), None)
    if isinstance(error, Error) and (refusal is None or isinstance(error, type(refusal))):
        return placed(error, place, module)
    if refusal is not None:
        return refused_by_torch(refusal, call, place, module)
    if call is None and error_source.is_ours(error):
        return as_error(error, str(error), place, module)
    name = "capture" if call is None else name_of(call[0])
    if isinstance(error, fake_tensors.DynamicOutputShapeException):
        text = _unknown_shape(error)
    elif isinstance(error, RecursionError):
        name, text = "capture", _too_deep()
    elif call is None:
        text = f"{sentence(error)} PyTorch raised it: correct this line of forward."
    else:
        text = (f"{sentence(error)} PyTorch raised it in {described(call)} while forward was "
                f"captured, which is done without values: use other operations there, or compute "
                f"the result outside forward and pass it in.")
    return of_class(error, name, text, place, module)


def of_result(tensor: UnknownSize) -> Exception:
    """What the caller gets of a result of forward whose size is only known when it runs."""
    error = tensor.refusal(None)
    if isinstance(error, Error):
        return placed(error, *tensor.made_at)
    return of_class(error, "Tensor.__getitem__", _unknown_shape(error), *tensor.made_at)


def _unknown_shape(error) -> str:
    return (f"the shape of the result depends on the values of a tensor ({error.func}), but "
            f"forward is compiled before there are values. Keep the shape (torch.where, a "
            f"product with the mask, torch.topk), or compute it outside forward and pass it in.")


def _too_deep() -> str:
    limit = sys.getrecursionlimit()
    return (f"forward is nested more deeply than Python's limit of {limit} frames allows. While it "
            f"is captured, each module takes more of them than in eager mode. Raise the limit "
            f"before the first call: `sys.setrecursionlimit({4 * limit})`.")


def _calls(frames: list) -> list[tuple]:
    """Function, arguments and keyword arguments of the calls of torch in a traceback, innermost
    first; the operations inside of functions come after the functions."""
    return [(frame.f_locals["func"], frame.f_locals["args"], frame.f_locals["kwargs"] or {})
            for code in _CALLS for frame, _, _ in reversed(frames) if frame.f_code is code]


def _module(frames: list, names: dict[int, str]) -> str:
    """Path of the innermost module in a traceback."""
    for frame, _, _ in reversed(frames):
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module) and id(owner) in names:
            return names[id(owner)]
    return ""


def check_text(names) -> None:
    """Raises an Error for a name that has no form in UTF-8."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise Error(f"[capture] the name {name!a} of an argument, a layer, a parameter or a "
                        f"buffer holds half a surrogate pair: UTF-8 has no form of it. Rename "
                        f"it.") from None

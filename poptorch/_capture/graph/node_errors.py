"""The errors of one recorded operation: what its user sees where it is refused."""

import torch
from torch.overrides import resolve_name

from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph import replay
from poptorch._capture.graph.source_location import Places
from poptorch.errors import Error, also, error_at, placed

_NO_CUDA = "Torch not compiled with CUDA enabled"  # of a call such as x.cuda()


def of_node(error: Exception, node: torch.fx.Node) -> Exception:
    """What the caller is to see of an exception while a recorded operation is worked on."""
    place, module = node.meta.get("place") or Places().of_caller(), node.meta.get("module") or ""
    call = _call_of(node)
    refusal = replay.refusal(*call)
    if refusal is not None:
        return refused_by_torch(refusal, call, place, module)
    if isinstance(error, Error):
        return placed(error, place, module, described(call))
    text = f"{sentence(error)} This is an internal error in {described(call)}: please report it."
    return of_class(error, name_of(node.target), text, place, module)


def torch_takes(node: torch.fx.Node) -> bool:
    """Whether PyTorch is not known to refuse a recorded operation."""
    return replay.refusal(*_call_of(node)) is None


def _call_of(node: torch.fx.Node) -> tuple:
    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
    return node.target, args, dict(kwargs)


def refused_by_torch(refusal: Exception, call: tuple, place, module: str) -> Error:
    if _NO_CUDA in str(refusal):
        advice = f"Remove {described(call)}: poptorch moves tensors to the device itself."
    else:
        advice = f"Eager PyTorch refuses {described(call)} too: change the arguments."
    return of_class(refusal, name_of(call[0]), f"{sentence(refusal)} {advice}", place, module)


def of_class(cause: Exception, name: str, text: str, place, module: str) -> Error:
    where = name.rpartition(".")[2]
    where = f"Tensor.{where}" if where.startswith("__") else where
    return as_error(cause, f"[{where}] {text}", place, module)


def as_error(cause: Exception, message: str, place, module: str) -> Error:
    error = error_at(message, place, module)
    return also(type(cause), error.message, location=error.location, details=vars(cause))


def sentence(error: Exception) -> str:
    words = fake_tensors.shown_as_tensor(str(error)).strip()
    return words if words.endswith((".", "?", "!")) or "\n" in words else f"{words}."


def described(call: tuple) -> str:
    return replay.description(name_of(call[0]), *call[1:])


def name_of(function) -> str:
    """As a program writes it: ``torch.sum``, ``torch.Tensor.view``, ``aten.mm``."""
    if isinstance(function, private.OpOverload):
        return str(function.overloadpacket)
    return resolve_name(function) or getattr(function, "__name__", type(function).__name__)

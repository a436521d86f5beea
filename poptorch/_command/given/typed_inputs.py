"""The arguments and the optimizer of a model, as the command line names them."""

import re
from collections.abc import Callable
from types import ModuleType

import torch

from poptorch import optim
from poptorch._command.given import model_file
from poptorch.errors import Error

_TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
          "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}
OPTIMIZERS = {kind.__name__.lower(): kind
              for kind in (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.LAMB)}


def inputs(texts: list[str], module: ModuleType, where: str,
           make: Callable[[str, str], torch.Tensor] | None = None) -> tuple:
    """What ``make``, by default :func:`tensor`, makes of each text; without texts the ``inputs``
    of the file."""
    return tuple((make or tensor)(text, where) for text in texts) or model_file.inputs(
        module, where, " Pass the arguments with --input.")


def optimizer(name: str | None, model: torch.nn.Module,
              learning_rate: float) -> torch.optim.Optimizer | None:
    """The optimizer of a name; None without a name."""
    return name and OPTIMIZERS[name](model.parameters(), lr=learning_rate)


def drawn(text: str, where: str) -> torch.Tensor:
    """A tensor of random values like ``f32[8,64]`` or, of whole numbers below 10, ``i64[8]:10``."""
    given, colon, limit = text.partition(":")
    zeros = tensor(given, where)
    if not colon and zeros.is_floating_point():
        return torch.randn_like(zeros)
    if zeros.is_floating_point() or colon and (not limit.isdecimal() or int(limit) < 1):
        raise Error(f"[{where}] expected an input like f32[8,64] or, for whole numbers below 10, "
                    f"i64[8]:10, got {text!r}.")
    try:
        return torch.randint_like(zeros, int(limit or 2))
    except RuntimeError as error:
        raise Error(f"[{where}] the type of {text!r} does not have whole numbers up to {limit}: "
                    f"{error}. Use a smaller limit.") from None


def tensor(text: str, where: str) -> torch.Tensor:
    """A tensor of zeros like ``f32[8,3,224,224]``."""
    match = re.fullmatch(r"(\w+)\[((?:\d+(?:,\d+)*)?)\]", text)
    if match is None or match[1] not in _TYPES:
        raise Error(f"[{where}] expected an input like f32[8,3,224,224], got {text!r}. The types "
                    f"are {', '.join(_TYPES)}.")
    sizes = [int(size) for size in match[2].split(",") if size]
    return torch.zeros(sizes, dtype=_TYPES[match[1]])

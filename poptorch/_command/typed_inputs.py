"""The arguments and the optimizer that ``python -m poptorch report`` and ``analyze`` take."""

import re
from types import ModuleType

import torch

from poptorch import optim
from poptorch._command import model_file
from poptorch.errors import Error

_TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
          "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}
_OPTIMIZERS = {kind.__name__.lower(): kind
               for kind in (optim.SGD, optim.Adam, optim.AdamW, optim.RMSprop, optim.LAMB)}
_LEARNING_RATE = 0.01  # costs do not depend on it


def inputs(texts: list[str], module: ModuleType, where: str) -> tuple:
    """Tensors like ``f32[8,3,224,224]``; without texts the ``inputs`` of the file."""
    return tuple(_input(text, where) for text in texts) or model_file.inputs(
        module, where, " Give the arguments with --input.")


def optimizer(name: str | None, model: torch.nn.Module) -> torch.optim.Optimizer | None:
    """The optimizer of a name; None without a name."""
    return name and _OPTIMIZERS[name](model.parameters(), lr=_LEARNING_RATE)


def _input(text: str, where: str) -> torch.Tensor:
    match = re.fullmatch(r"(\w+)\[((?:\d+(?:,\d+)*)?)\]", text)
    if match is None or match[1] not in _TYPES:
        raise Error(f"[{where}] expected an input like f32[8,3,224,224], got {text!r}. The types "
                    f"are {', '.join(_TYPES)}.")
    sizes = [int(size) for size in match[2].split(",") if size]
    return torch.zeros(sizes, dtype=_TYPES[match[1]])

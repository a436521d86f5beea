"""Weights that a command reads from a safetensors file."""

import torch

from poptorch import files
from poptorch.errors import Error
from poptorch.executor import PoplarExecutor


def load(model: torch.nn.Module | PoplarExecutor, path: str, where: str) -> None:
    """Loads the weights of a model; an Error if they belong to a different model."""
    try:
        files.load_weights(model, path)
    except RuntimeError as error:
        if isinstance(error, Error):
            raise
        _, *reasons = (line.strip(" \t.") for line in str(error).splitlines())
        raise Error(f"[{where}] the weights of {path} are not those of the model: "
                    f"{'; '.join(reasons)}. Pass a file of the same model.") from None

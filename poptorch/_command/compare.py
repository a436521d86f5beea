"""What ``python -m poptorch compare`` does: a model from a file, its arguments, the comparison."""

import torch

from poptorch._command import model_file
from poptorch.errors import Error
from poptorch.options import Options
from poptorch.testing._compare import compare
from poptorch.testing._comparison import Comparison


def compare_file(target: str, shapes: list[str], training: bool, steps: int,
                 config: str | None) -> Comparison:
    """Compares a model of a file with PyTorch; the arguments are those of the command."""
    module, model = model_file.read(target, "compare")
    inputs = tuple(_drawn(shape) for shape in shapes) or model_file.inputs(
        module, "compare", " Give shapes of the arguments with --shape.")
    options = Options()
    if config is not None:
        options.loadFromFile(config)
    return compare(model, *inputs, steps=steps, training=training, options=options)


def _drawn(text: str) -> torch.Tensor:
    sizes, _, kind = text.partition(":")
    try:
        shape = [int(size) for size in sizes.split(",") if size]
        if not kind:
            return torch.randn(shape)
        if kind.startswith("int"):
            return torch.randint(0, int(kind.removeprefix("int")), shape)
    except (ValueError, RuntimeError):
        pass
    raise Error(f"[compare] expected a shape like 8,3,32,32 or 8,20:int100, got {text!r}. Sizes "
                f"are separated by commas.")

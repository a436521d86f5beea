"""The facts that a runtime without Python needs about a compiled model, as plain data.

docs/internals/file_format.md describes the entries.
"""

import math

import torch

from poptorch._base.types import ir_dtype
from poptorch._runtime import settings

_DEFAULT_SEED = 67280421310721  # torch's, in a process that sets none


def document(wrapped, compiled, numbers: dict[str, list], refused: str | None) -> dict:
    """The document of a compiled model that is saved, with the optimizer's numbers by stream, or
    why only Python can train."""
    program, options = compiled.program, wrapped.options
    leaves = compiled.arguments.tensor_leaves()
    members = _members(wrapped.model)
    compile_options = settings.compile_options(options)
    of_module = {path: members[id(tensor)] for path, tensor in program.states.items()
                 if id(tensor) in members}
    return {
        "refused": refused or _reason_against(compiled),
        "options": {name: value for name, value in compile_options.items() if name != "threads"},
        "inputs": [{"name": leaf.path, "stream": program.inputs.get(number),
                    "dtype": ir_dtype(leaf.dtype), "shape": list(leaf.shape)}
                   for number, leaf in enumerate(leaves)],
        "outputs": compiled.call.described_outputs(),
        "numbers": {stream: _plain(values) for stream, values in numbers.items()},
        "weights": of_module,
        "updated": sorted(program.updated & of_module.keys()),
        "state_dict": {name: members[id(tensor)]
                       for name, tensor in wrapped.user_model.state_dict(keep_vars=True).items()
                       if isinstance(tensor, torch.Tensor) and id(tensor) in members},
        "seed": str(_DEFAULT_SEED if options.random_seed is None
                    else options.random_seed % 2**64),
    }


def _members(model: torch.nn.Module) -> dict[int, str]:
    """The name in ``weights.safetensors`` of each parameter and buffer, by identity."""
    return {id(tensor): name for name, tensor in (*model.named_parameters(),
                                                  *model.named_buffers())}


def _plain(values) -> list:
    """Numbers that JSON can hold: those that are not finite as text."""
    return [value if math.isfinite(value) else str(value) for value in values]


def _reason_against(compiled) -> str | None:
    """Why only Python can run the program; None: nothing speaks against it."""
    program, spec = compiled.program, compiled.interface.spec
    if spec.synthetic_data:
        return "it was compiled with enableSyntheticData()"
    if program.weight_groups:
        return "replicas have weights of their own (replicaGrouping)"
    for number, (strides, start) in program.layouts.items():
        leaf = compiled.arguments.tensor_leaves()[number]
        row_major = torch.empty(leaf.shape, device="meta").stride()
        if start not in (None, 0) or any(
                step not in (None, own) for step, own in zip(strides, row_major)):
            return f"forward depends on the strides of {leaf.path}, which are not row-major"
    return None

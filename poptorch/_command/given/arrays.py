"""Arrays from files and to files."""

import zipfile
from pathlib import Path

import numpy
import torch

from poptorch.errors import Error

_BFLOAT16 = numpy.dtype("V2")  # NumPy has no such type: its two bytes


def read(paths: list[str], names: list[str], where: str) -> list[torch.Tensor]:
    """The tensors of files, in the order of ``names``, the inputs of a program.

    A ``.npy`` file has one tensor, ``.npz`` and ``.pt`` files have several: by the names of inputs,
    or in order. Tensors without names come first, in order.
    """
    listed: list[torch.Tensor] = []
    named: dict[str, torch.Tensor] = {}
    for path in paths:
        found = _of_file(Path(path), where)
        if isinstance(found, dict) and set(found) & set(names):
            unknown = set(found) - set(names)
            if unknown:
                raise Error(f"[{where}] {path} has {', '.join(sorted(unknown))}, and the program "
                            f"takes {', '.join(names)}. Use the names of the inputs.")
            named |= found
        else:
            listed += found.values() if isinstance(found, dict) else found
    missing = [name for name in names if name not in named]
    if len(missing) != len(listed):
        raise Error(f"[{where}] expected {len(names)} arrays ({', '.join(names)}), got "
                    f"{len(named) + len(listed)}. Pass one array for each argument of forward.")
    named |= dict(zip(missing, listed))
    return [named[name] for name in names]


def _of_file(path: Path, where: str) -> list[torch.Tensor] | dict[str, torch.Tensor]:
    try:
        if path.suffix == ".npy":
            return [_tensor(numpy.load(path, allow_pickle=False))]
        if path.suffix == ".npz":
            with numpy.load(path, allow_pickle=False) as found:
                return {name: _tensor(found[name]) for name in found.files}
        if path.suffix == ".pt":
            return _tensors(torch.load(path, weights_only=True, map_location="cpu"))
    except (ValueError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile,
            AttributeError) as error:
        reason = str(error).partition("\n")[0]
        raise Error(f"[{where}] {path} cannot be read: {reason}. Write it with numpy.save, "
                    f"numpy.savez or torch.save.") from error
    except Exception as error:  # UnpicklingError of torch.load
        if isinstance(error, OSError):
            raise
        raise Error(f"[{where}] {path} is not a file of tensors ({type(error).__name__}). Save a "
                    f"tensor, or a list or dictionary of tensors, with torch.save.") from error
    raise Error(f"[{where}] expected a file of arrays that ends with .npy, .npz or .pt, got "
                f"{path}. Convert it.")


def _tensor(array: numpy.ndarray) -> torch.Tensor:
    array = numpy.ascontiguousarray(array).reshape(array.shape)
    if array.dtype == _BFLOAT16:
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _tensors(value) -> list[torch.Tensor] | dict[str, torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    items = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (list, tuple, dict)) or \
            not all(isinstance(item, torch.Tensor) for item in items):
        raise TypeError(f"it has {type(value).__name__}, expected tensors")
    return value if isinstance(value, dict) else list(value)


def write(path: Path, tensor: torch.Tensor) -> None:
    """Writes a ``.npy`` file."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype is torch.bfloat16:
        numpy.save(path, tensor.view(torch.int16).numpy().view(_BFLOAT16))
    else:
        numpy.save(path, tensor.numpy())

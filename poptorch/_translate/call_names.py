"""The functions, operations and layers of torch that a text such as ``Conv2d`` may mean."""

import inspect
import re

import torch
import torch.nn.functional as F

from poptorch._base.checks import near_names

# Where torch keeps functions, and what their operations' names begin with.
_PLACES = {"": torch, "linalg_": torch.linalg, "special_": torch.special, "fft_": torch.fft,
           " functional": F, " tensor": torch.Tensor}
_PREFIX = re.compile(r"(torch\.)?(nn\.functional\.|nn\.|F\.|linalg\.|special\.|fft\.|Tensor\.)?")


def layer_named(name: str) -> type[torch.nn.Module] | None:
    """The layer of torch of a name: ``Conv2d``, ``nn.Conv2d`` or ``torch.nn.Conv2d``."""
    found = getattr(torch.nn, _bare(name), None)
    is_layer = inspect.isclass(found) and issubclass(found, torch.nn.Module)
    return found if is_layer else None


def operations_of(name: str) -> list[str]:
    """The names that the operations of a function or layer may have, the likeliest first."""
    bare = _bare(name)
    if layer_named(name) is not None:
        words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", bare).lower()
        bases = [words, words.replace("_", ""), re.sub(r"\d+d$", "", words),
                 re.sub(r"_?loss$", "", words)]
    else:
        bases = [bare]
    return list(dict.fromkeys(f"{prefix}{base}" for base in bases for prefix in _PLACES
                              if " " not in prefix))


def function_named(name: str):
    """A function of torch's Python API; None if there is none of this name."""
    found = (getattr(place, _bare(name), None) for place in _PLACES.values())
    return next((one for one in found if callable(one) and not inspect.isclass(one)), None)


def near(name: str) -> str:
    """`` Did you mean a or b?`` of names that look like one that is not known."""
    known = {key for place in (*_PLACES.values(), torch.nn) for key in dir(place)
             if not key.startswith("_")}
    return near_names(_bare(name), sorted(known))


def _bare(name: str) -> str:
    return name[_PREFIX.match(name).end():]

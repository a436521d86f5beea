"""What a program depends on of a module, except for values: its layers, their modes, its tensors.
"""

import torch

from poptorch._base import schema
from poptorch._base.module_subclass import plain_class
from poptorch._capture.graph.module_clones import HOOKS
from poptorch._files.problems import other_module
from poptorch._guards.module_guards import hook_keys
from poptorch._guards.training_modes import TrainingModes

# hooks: how many there are of each kind. reads_mode: whether forward asked for the mode.
_LAYER = {"path": str, "class": str, "hooks": [int], "has_own_forward": bool, "training": bool,
          "reads_mode": bool}
# first: the first path of the same tensor.
_TENSOR = {"path": str, "first": str, "requires_grad": bool}
_FORM = {"layers": [_LAYER], "tensors": [_TENSOR]}


def of_module(model: torch.nn.Module, modes: TrainingModes, asked=()) -> dict:
    """A module as data; ``asked`` are the layers whose mode ``forward`` read."""
    asked = set(map(id, asked))
    return {"layers": [{"path": path, "class": plain_class(type(part)).__name__,
                        "hooks": [len(hook_keys(getattr(part, kind, {}))) for kind in HOOKS],
                        "has_own_forward": "forward" in vars(part),
                        "training": modes.mode_of(part), "reads_mode": id(part) in asked}
                       for path, part in model.named_modules()],
            "tensors": _tensors(model)}


def checked(data) -> dict:
    """The description of a module in a file. Raises a ValueError if its form is wrong."""
    schema.check(data, _FORM, "module")
    return data


def check(data: dict, model: torch.nn.Module, modes: TrainingModes, training: bool) -> list:
    """Raises an Error unless a module is like the one that :func:`of_module` described.

    Returns the layers whose mode ``forward`` read.
    """
    own = of_module(model, modes)
    for kind, what in (("layers", "layer"), ("tensors", "parameter or buffer")):
        _check_paths(what, *([row["path"] for row in side[kind]] for side in (data, own)))
    for rows in zip(data["layers"], own["layers"]):
        _check_layer(rows, training)
    for rows in zip(data["tensors"], own["tensors"]):
        _check_tensor(rows, training)
    asked = {layer["path"] for layer in data["layers"] if layer["reads_mode"]}
    return [part for path, part in model.named_modules() if path in asked]


def _tensors(model: torch.nn.Module) -> list[dict]:
    first: dict[int, str] = {}
    return [{"path": path, "first": first.setdefault(id(tensor), path),
             "requires_grad": tensor.requires_grad}
            for named in (model.named_parameters, model.named_buffers)
            for path, tensor in named(remove_duplicate=False)]


def _check_paths(what: str, before: list[str], now: list[str]) -> None:
    one_sided = set(before) ^ set(now)
    for path in before + now:
        if path in one_sided:
            owner = "the file's" if path in before else "this"
            raise other_module(f"{path} is a {what} of {owner} module alone")
    if before != now:
        raise other_module(f"the {what}s of the file's module are in the order "
                           f"{', '.join(before)}, here {', '.join(now)}")


def _check_layer(rows: tuple[dict, dict], training: bool) -> None:
    path = rows[0]["path"] or "the module"
    _check_same(path, "is", *(f"a {row['class']}" for row in rows))
    forward = {True: "a forward of its own", False: "the forward of its class"}
    _check_same(path, "has", *(forward[row["has_own_forward"]] for row in rows))
    for kind, *counts in zip(HOOKS if training else HOOKS[:2], *(row["hooks"] for row in rows)):
        name = kind.strip("_").replace("_", " ")
        _check_same(path, "has", *(f"{count} {name}" for count in counts))


def _check_tensor(rows: tuple[dict, dict], training: bool) -> None:
    path = rows[0]["path"]
    own = {path: "a tensor of its own"}
    _check_same(path, "is", *(own.get(row["first"], row["first"]) for row in rows))
    if training:
        _check_same(path, "has", *(f"requires_grad={row['requires_grad']}" for row in rows))


def _check_same(path: str, verb: str, before: str, now: str) -> None:
    if before != now:
        past = {"is": "was", "has": "had"}[verb]
        raise other_module(f"{path} {past} {before} when the program was compiled, it {verb} {now} "
                           f"here")

"""Which parameters of a module an optimizer trains, and whether it can."""

from collections.abc import Iterator

import torch

from poptorch.errors import Error


def parameters(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """``named_parameters`` that does not make the module bring its weights to the host."""
    parts, seen = [("", module)], set()
    while parts:
        path, part = parts.pop(0)
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        yield from ((path + name, parameter) for name, parameter in part._parameters.items()
                    if parameter is not None)
        parts += [(f"{path}{name}.", child) for name, child in part._modules.items()]


def check(optimizer: torch.optim.Optimizer, module: torch.nn.Module, where: str) -> tuple[int, int]:
    """Checks that an optimizer trains a module.

    Args:
        optimizer: whose parameter groups are looked at.
        module: which is wrapped.
        where: for the message.

    Returns:
        How many of its parameters are none of the module's, and how many it has.

    Raises:
        poptorch.Error: It holds no parameter of the module, or a trained one twice.
    """
    own = {id(parameter): name for name, parameter in parameters(module)}
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if own and not held & own.keys():
        raise Error(f"[{where}] the optimizer {type(optimizer).__name__} holds {len(held)} "
                    f"parameters, none of them is one of the {len(own)} of the wrapped "
                    f"{type(module).__name__}, so nothing would be trained. Make it of "
                    f"parameters() of the module that is wrapped.")
    _check_single(optimizer, own, where)
    return len(held - own.keys()), len(held)


def _check_single(optimizer: torch.optim.Optimizer, names: dict[int, str], where: str) -> None:
    found: dict[int, int] = {}
    for number, group in enumerate(optimizer.param_groups):
        for parameter in group["params"]:
            if id(parameter) in found and id(parameter) in names and parameter.requires_grad:
                first = found[id(parameter)]
                places = f"group {number} twice" if first == number else \
                    f"the groups {first} and {number}"
                raise Error(f"[{where}] {names[id(parameter)]} stands in parameter {places}: "
                            f"step() of the optimizer would update it twice, the device updates it "
                            f"once. Leave it out of one place.")
            found[id(parameter)] = number

"""What an optimizer has once for all parameters, in what ``state_dict()`` returns.

``optimizer.state`` has it under a name, beside the parameters. Code that goes through a saved state
by parameter, as ``torch.distributed.checkpoint`` does, expects parameters alone there: so a saved
state has it in the first parameter group. Both forms are loaded. A copy of an optimizer of
``torch.optim`` saves that form once an executor has it, as torch copies no hooks.
"""

import torch

from poptorch._optimizer.spec import GLOBAL


def watch(optimizer: torch.optim.Optimizer) -> None:
    """Lets saved states of an optimizer have that form, and takes over what was loaded before."""
    if _to_group not in optimizer._optimizer_state_dict_post_hooks.values():
        optimizer.register_state_dict_post_hook(_to_group)
        optimizer.register_load_state_dict_post_hook(_from_group)
    _from_group(optimizer)


def _to_group(optimizer: torch.optim.Optimizer, state_dict: dict) -> None:
    if state_dict["param_groups"] and GLOBAL in state_dict["state"]:
        state_dict["param_groups"][0][GLOBAL] = dict(state_dict["state"].pop(GLOBAL))


def _from_group(optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        if GLOBAL in group:
            optimizer.state[GLOBAL] = dict(group.pop(GLOBAL))

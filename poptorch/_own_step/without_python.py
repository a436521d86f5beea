"""Whether a program can train where no Python code runs ``step()``, and with which numbers."""

from dataclasses import dataclass, field

import torch

from poptorch._own_step.layout import StepLayout, program_path
from poptorch._own_step.variants import AHEAD, Variants


@dataclass
class FixedUpdate:
    """What all updates to come have in common.

    Attributes:
        reason: why Python has to run ``step()``; None: it does not.
        numbers: of one update.
        states: before the next update, by path in the program.
    """

    reason: str | None = None
    numbers: list[float] = field(default_factory=list)
    states: dict[str, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, variants: Variants, layout: StepLayout) -> "FixedUpdate":
        """Tries updates, without changing the optimizer.

        The second and later updates must leave the Python state of the optimizer as it is: then
        they have the same numbers forever. The first may create states.
        """
        with variants.trial():
            first, states = variants.step(), dict(layout.states)
            states |= variants.made_states()
            after = variants.snapshot()
            for _ in range(AHEAD):
                update, change = variants.step(), after.change()
                if variants.version != layout.version:
                    return cls(f"step() of {layout.kind} soon takes a form that the program does "
                               f"not have")
                if change is not None:
                    return cls(f"step() of {layout.kind} changes {change} in Python")
                if update != first:
                    return cls(f"step() of {layout.kind} computes {_difference(first, update)}")
        return cls(None, layout.row(*first),
                   {program_path(path): states[path] for path in layout.states})


def _difference(first: tuple, later: tuple) -> str:
    (form, numbers), (other_form, others) = first, later
    if form != other_form:
        return "a later update by other calls of torch than the next one"
    pair = next(pair for pair in zip(numbers, others) if pair[0] != pair[1])
    return "the number {} in the next update and {} in a later one".format(*pair)

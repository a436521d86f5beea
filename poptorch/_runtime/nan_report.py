"""Which value first was not finite: what a recording program reports, and the replay of a call."""

import math
from dataclasses import dataclass

import torch

from poptorch._base.types import host_tensor, torch_dtype
from poptorch._runtime import device_memory
from poptorch._runtime.compiled import CompiledModel
from poptorch.options import Options

_OF_PHASE = {"backward": " in the backward pass", "update": " in the weight update"}


@dataclass(frozen=True)
class NanReport:
    """The first value of a call that was NaN or infinite.

    Attributes:
        what: the operation that made it; or, where it was there before, ``input x``, ``parameter
            fc.weight``, ``buffer ...`` or ``optimizer ...``.
        condition: how it came about, such as ``division by zero``; else ``NaN`` or ``inf``.
        element: the first such element with its operands; empty where it was there before.
        phase: ``forward``, ``backward`` or ``update``; empty where it was there before.
        location: ``file:line`` and the module; empty where that is not known.
        device_iteration: number of the step.
        micro_batch: its number within the step.
        loop_iterations: numbers of the iterations of loops of the model's, the outermost first.
        replica: its number.
        step: the same numbers in words, without counters that have a single value.
    """

    what: str
    condition: str
    element: str
    phase: str
    location: str
    device_iteration: int
    micro_batch: int
    loop_iterations: tuple[int, ...]
    replica: int
    step: str

    @classmethod
    def of(cls, executable) -> "NanReport | None":
        """What a program recorded in its last run; None: all values were finite."""
        row = executable.first_non_finite()
        return None if row is None else cls(location=row.pop("place"), **row)

    def __str__(self) -> str:
        element = f": {self.element}" if self.element else ""
        step = f", {self.step}" if self.step else ""
        place = f"\n  at {self.location}" if self.location else ""
        phase = _OF_PHASE.get(self.phase, "")
        return f"[{self.what}] {self.condition}{phase}{element}{step}{place}"


def recording(options: Options) -> Options:
    """The same options for a program that records which value first is not finite."""
    own = options.clone()
    own.Precision.enableFloatingPointExceptions(False).recordNonFinite(True)
    own._freeze()
    return own


def replay(compiled: CompiledModel, second: CompiledModel, tensors: list[torch.Tensor]) -> None:
    """Runs a second program of the same module on the states and arguments of a compiled one.

    Nothing that the compiled one or the caller has is changed.
    """
    second.call.bind_like(compiled.call)
    known = {state.path: state.bytes for state in compiled.executable.states()}
    for state in second.executable.states():
        if known.get(state.path) == state.bytes:
            device_memory.write_replicas(second.executable, state, device_memory.read_replicas(
                compiled.executable, state))
        elif state.path in second.program.states:
            tensor = second.program.states[state.path]  # the compiled one does not read it
            value = host_tensor(tensor, state.path).to(torch_dtype(state.dtype))
            if value.numel() == math.prod(state.sizes):
                second.executable.write_state(state.path, value.data_ptr(), value.nbytes)
    second.call.run_for_nothing(tensors)

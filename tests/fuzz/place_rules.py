"""Where the documentation of blocks and strategies puts a layer, computed without the compiler.

A program is a row of layers, each in a block or in none. :func:`spots` gives for each layer where
it runs forward and backward; it knows of a strategy only what it was made from.
"""

import dataclasses

from poptorch import AutoStage, Liveness

STRIDES = {Liveness.AlwaysLive: 1, Liveness.OffChipAfterFwd: 1,
           Liveness.OffChipAfterFwdNoOverlap: 2, Liveness.OffChipAfterEachPhase: 4}


@dataclasses.dataclass
class Spec:
    """What a strategy is made from.

    Attributes:
        kind: of the strategies' names, "sharded", "pipelined", "serial" or "parallel".
        parts: names of blocks by phase and stage; staged strategies have one phase, and none of
            them where ``auto`` makes the stages.
        ipus: the IPU of each stage, by phase; None: left open.
        auto: how stages are made that are not listed.
        liveness: of serial phases.
        separate: whether the backward pass has phases of its own.
    """

    kind: str
    parts: list[list[list[str]]]
    ipus: list[list[int | None]]
    auto: AutoStage | None = None
    liveness: Liveness = Liveness.AlwaysLive
    separate: bool = False

    @property
    def is_phased(self):
        return self.kind in ("serial", "parallel")


@dataclasses.dataclass(frozen=True)
class Spot:
    """Where a layer runs; phases are None where there are none."""

    ipu: int
    stage: int
    forward: int | None = None
    backward: int | None = None


def default_ipu(spec: Spec, phase: int, stage: int) -> int:
    """The IPU of a stage that names none."""
    return 2 * stage + phase % 2 if spec.kind == "parallel" else stage


def _listed(spec: Spec, asked: dict[str, int | None]) -> dict[str, Spot]:
    """The spot of each block of listed stages, and under "" that of the first stage."""
    found = {}
    stride = STRIDES[spec.liveness] if spec.kind == "serial" else 1
    last = len(spec.parts) - 1
    for phase, stages in enumerate(spec.parts):
        for stage, blocks in enumerate(stages):
            wanted = [spec.ipus[phase][stage], *(asked.get(name) for name in blocks)]
            ipu = next((ipu for ipu in wanted if ipu is not None),
                       default_ipu(spec, phase, stage))
            # Three phases: 0, 1, 2 and back 2, 3, 4; with phases of its own back 4, 5, 6.
            back = 2 * last - phase + (2 if spec.separate else 0)
            phases = (phase * stride, back * stride) if spec.is_phased else (None, None)
            for name in (*blocks, *([""] if phase == stage == 0 else [])):
                found[name] = Spot(ipu, stage, *phases)
    return found


def _automatic(spec: Spec, blocks: list[str | None], asked: dict[str, int | None]):
    found, stage = {"": Spot(0, 0)}, -1
    last = None
    for block in blocks:
        name = block or ""
        if name in found:
            stage, last = max(stage, 0), found[name].ipu
            continue
        ipu = asked[name]
        if spec.auto is AutoStage.AutoIncrement:
            stage += ipu != last  # two blocks on one IPU, one after the other, are one stage
        else:
            stage = ipu
        found[name], last = Spot(ipu, stage), ipu
    return found


def spots(spec: Spec, blocks: list[str | None], asked: dict[str, int | None]) -> list[Spot]:
    """Where each layer runs.

    Args:
        spec: the strategy.
        blocks: the block of each layer; None at the start: before the first block; None later:
            what began last goes on.
        asked: the IPU that each block asks for; None: it leaves it open.
    """
    entered = []
    for block in blocks:
        entered.append(block or (entered[-1] if entered else None))
    where = _automatic(spec, entered, asked) if spec.auto else _listed(spec, asked)
    return [where[block or ""] for block in entered]

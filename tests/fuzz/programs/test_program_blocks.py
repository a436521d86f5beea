"""Random programs in blocks, under any strategy, with tensors on the chip or in streaming memory:
the bits of the program without blocks, where each op is rounded by itself."""

import os
import random
from unittest import mock

import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from poptorch.errors import Error
from tests.fuzz.judge import budget
from tests.fuzz.programs import running
from tests.fuzz.programs.draw import draw
from tests.fuzz.programs.program import Program, Setting

ROLES = ("Activation", "Weight", "Optimizer", "Accumulator")


def _phases(count: int) -> list:
    return [poptorch.Phase(f"B{i}") for i in range(count)]


# How a strategy is made for a number of blocks, and the IPUs that they are on.
STRATEGIES = {
    "sharded": (lambda count: poptorch.ShardedExecution(), lambda count, rng: range(count)),
    "sharded, on two IPUs": (lambda count: poptorch.ShardedExecution(), lambda count, rng: [
        0, *(rng.randint(0, 1) for _ in range(count - 2)), 1]),
    "pipelined": (lambda count: poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement),
                  lambda count, rng: range(count)),
    "serial": (lambda count: poptorch.SerialPhasedExecution(*_phases(count)),
               lambda count, rng: [0] * count),
    "parallel": (lambda count: poptorch.ParallelPhasedExecution(*_phases(count)),
                 lambda count, rng: [i % 2 for i in range(count)]),
}


def _with_steps(program: Program) -> Program:
    """With as many micro-batches as a pipeline of four stages needs."""
    steps = {"accumulation": 8} if program.loss else {"iterations": 4}
    return program.but(setting=Setting(**{**vars(program.setting), **steps}))


def _with_blocks(program: Program, ipus, rng: random.Random) -> Program:
    lines, count = list(program.lines), len(ipus)
    cuts = sorted(rng.sample(range(len(lines)), count), reverse=True)
    for number, at in zip(reversed(range(count)), cuts):
        lines.insert(at, f"poptorch.Block.start('B{number}', ipu_id={ipus[number]})")
    return program.but(lines=tuple(lines))


@mock.patch.dict(os.environ, {"POPTORCH_OFF": "fuse_batch_norm,fuse_convolution"})
@budget(15)
@given(st.integers(0, 10**9), st.sampled_from(sorted(STRATEGIES)))
def test_bits_do_not_depend_on_blocks(seed, name):
    program = draw(seed)
    if program is None or len(program.lines) < 2:
        return
    rng, count = random.Random(seed), 4 if len(program.lines) >= 4 else 2
    make, ipus = STRATEGIES[name]
    if name == "pipelined":
        if any(not source.sizes for source in program.of_kind("x")):
            return  # what has no dimension is no batch
        program = _with_steps(program)
    in_blocks = _with_blocks(program, [*ipus(count, rng)], rng)
    plain = running.options_of

    def options_of(setting, training):
        options = plain(setting, training).setExecutionStrategy(make(count))
        for role in rng.sample(ROLES, rng.randint(0, 3)):
            location = poptorch.TensorLocationSettings().minElementsForOffChip(rng.choice((0, 8)))
            location.useOnChipStorage(rng.random() < 0.3)
            getattr(options.TensorLocations, f"set{role}Location")(location)
        return options

    try:  # not in eager, which ends the process for some programs
        expected = running.through_poptorch(program)
    except Exception:
        return  # others look at what is refused
    try:
        with mock.patch.object(running, "options_of", options_of):
            found = running.through_poptorch(in_blocks)
    except Error as error:
        assert "lease report" not in str(error), in_blocks
        return  # the rules of a strategy
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        assert torch.equal(found[key].nan_to_num(), tensor.nan_to_num()), (key, in_blocks)

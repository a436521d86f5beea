"""Random programs from files: the same bits as from the program that was compiled here."""

import torch
from hypothesis import given
from hypothesis import strategies as st

import poptorch
from tests.fuzz.judge import budget
from tests.fuzz.programs.draw import draw
from tests.fuzz.programs.program import NATURAL, Net, Program, entered
from tests.fuzz.programs.running import applied, inputs_of, optimizer_of, options_of


class _Model:
    """An executor of a program with weights of its own."""

    def __init__(self, program: Program):
        self.net = Net(program, NATURAL)
        options = options_of(program.setting, bool(program.loss))
        self.executor = poptorch.trainingModel(
            self.net, options, optimizer_of(program, self.net)) if program.loss else \
            poptorch.inferenceModel(self.net, options)

    def tensors(self, inputs: list) -> list:
        """Results of one call, the inputs afterwards, and a copy of the state."""
        results = self.executor(*inputs)
        self.executor.copyWeightsToHost()
        return [*results, *inputs, *(x.clone() for x in self.net.state_dict().values())]


def _called(model: _Model, program: Program) -> list:
    found = [model.tensors(inputs_of(program, NATURAL, call)) for call in range(2)]
    model.executor.destroy()
    return [tensor for tensors in found for tensor in tensors]


def _check(program: Program, path) -> None:
    try:
        expected = _called(_Model(program), program)
    except Exception:
        return  # others look at what is refused; not in eager, which ends the process for some
    saved, loaded = _Model(program), _Model(program)
    saved.executor.compileAndExport(path, *inputs_of(program, NATURAL, 0), export_model=False)
    saved.executor.destroy()
    loaded.executor.loadExecutable(path)
    for ours, other in zip(_called(loaded, program), expected, strict=True):
        assert ours.dtype is other.dtype and ours.stride() == other.stride(), program
        assert torch.equal(ours.nan_to_num(), other.nan_to_num()), program


@budget(20)
@given(st.integers(0, 10**9))
def test_programs_in_files(tmp_path_factory, seed):
    program = draw(seed)
    if program is None or program.setting.wide or "poptorch.CPU" in str(program):
        return  # a file holds neither the host's functions nor 64-bit types of tests
    with entered(NATURAL), applied(program.setting):
        _check(program, tmp_path_factory.getbasetemp() / "program.poptorch")

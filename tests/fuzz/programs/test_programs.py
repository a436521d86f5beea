"""Random programs compute what PyTorch computes; and the generator and the shrinker."""

import math
from contextlib import nullcontext
from unittest import mock

import pytest
import torch

from tests.fuzz.judge import FACTOR
from tests.fuzz.programs import cases, higher_order, judge, search, shrink, workers
from tests.fuzz.programs import draw as drawing
from tests.fuzz.programs.determined import Determined
from tests.fuzz.programs.draw import draw, with_possible_setting
from tests.fuzz.programs.example import EXAMPLE, W, X
from tests.fuzz.programs.program import (
    NATURAL,
    WIDE,
    Program,
    Setting,
    Source,
    made_module,
    reads_of,
    source_text,
    targets_of,
)
from tests.fuzz.programs.vocabulary import base
from tests.fuzz.programs.workers import Workers
from tests.helpers import run_python

SECONDS = 15.0 if FACTOR == 1 else 60.0 * FACTOR
# At most this part of the programs is refused, or found wrong: of the last 490,000 three were, by
# faults of the judge's. In the default run none may be.
REFUSED, WRONG = 0.01, 0.00001


def at_most(part: float, judged: int) -> float:
    """A number of programs that a search of so many hardly exceeds, if this part of all fails."""
    return part * judged + 4 * math.sqrt(part * judged)


@pytest.mark.sampled
def test_the_program_of_a_seed_is_the_same_in_each_process(seed):
    """Whatever was drawn before, and in whatever order sets have their elements."""
    code = """if True:
        import hashlib, sys
        from tests.fuzz.programs.draw import draw
        texts = [str(draw(seed)) for seed in {seeds}]
        print("\\n" + hashlib.sha256("".join(texts[::{step}]).encode()).hexdigest())
    """
    seeds = range(seed * 1000, seed * 1000 + 200)
    found = [run_python(code.format(seeds=repr(order), step=step), PYTHONHASHSEED=str(step + 2))
             for order, step in ((seeds, 1), (seeds[::-1], -1))]
    assert found[0].splitlines()[-1] == found[1].splitlines()[-1]


def test_fresh_programs(seed, tell):
    """Some seconds of them; ``make fuzz`` takes more. What is found is shown, with its seed."""
    processes, tally = Workers(2, SECONDS), search.Tally()
    for part in processes.search(seed * 1000, 10**9):
        tally.add(part)
    processes.end()
    shown = "\n\n".join(finding.words for _, _, finding in tally.found)
    tell(f"{tally}\n{shown}".strip())
    assert tally.judged > 20
    assert {finding.kind for _, _, finding in tally.found} <= {"wrong"}, shown
    assert len(tally.found) <= at_most(WRONG, tally.judged), (
        f"{shown}\n\n`python -m tests.fuzz.programs --replay SEED` shrinks a program. Keep what it "
        f"prints as a file in a folder of tests/fuzz/programs/cases.")
    assert sum(tally.refused.values()) <= at_most(REFUSED, tally.judged), tally


@pytest.mark.parametrize("name", cases.names())
def test_kept_cases(name):
    finding = search.judged(cases.load(name))
    assert finding is None, finding.words


def test_a_seed_gives_the_same_program():
    programs = [draw(seed) for seed in range(30)]
    assert programs == [draw(seed) for seed in range(30)]
    assert sum(program is not None for program in programs) > 20


def test_what_is_rejected_at_the_end_gives_no_program():
    with mock.patch.object(drawing._Drawing, "program", side_effect=base.Rejected):
        assert draw(1) is None


def test_modules_with_large_weights_are_not_drawn():
    d = drawing.Draw(1)
    d.module("nn.Linear(1000, 900)")
    with pytest.raises(base.Rejected):
        d.module("nn.Linear(1000, 1001)")
    assert len(d.modules) == 1


def test_a_program_prints_as_what_makes_it_again():
    names = {"Program": Program, "Source": Source, "Setting": Setting}
    for seed in range(30):
        program = draw(seed)
        assert eval(str(program), names) == program


def test_names_of_a_line():
    line = "v3, v4 = torch.var_mean(x0 + w12, -1)"
    assert targets_of(line) == ["v3", "v4"]
    assert reads_of(line) == ["x0", "w12"]
    assert targets_of("v3.add_(x0)") == []
    assert reads_of("v3.add_(x0)") == ["v3", "x0"]


def test_programs_cover_what_they_are_for():
    programs = [program for seed in range(400) if (program := draw(seed))]
    text = "\n".join(map(str, programs))
    for word in ("F16", "BF16", "F64", "U8", "BOOL", "layout='stepped'", "add_(", ".expand(",
                 "as_strided", "_neg_view", "diagonal", "split", "sum(", "softmax", "torch.cat",
                 "iterations=", "accumulation=", "replicas=", "poison=", "reload_ir=", "off=",
                 "algorithms=", "isa=", "threads=", "wide=", "custom.cube(", "custom.wave(",
                 "custom.named("):
        assert word in text, word
    assert any(0 in source.sizes for program in programs for source in program.sources)


def test_modules_are_as_after_training():
    """Zeros and ones would hide a sign or a factor that is wrong; all worlds have the same."""
    text = "nn.BatchNorm1d(3).to(F32)"
    natural, wide = (made_module(text, world, 5) for world in (NATURAL, WIDE))
    for name, tensor in natural.state_dict().items():
        if tensor.is_floating_point():
            assert tensor.unique().numel() == 3
            assert not torch.isin(tensor, torch.tensor([0.0, 1.0])).any()
        torch.testing.assert_close(tensor, wide.state_dict()[name].to(tensor.dtype), rtol=0, atol=0)
    assert wide.running_mean.dtype is torch.float64


# -- the judge ---------------------------------------------------------------------------------


def test_operands_of_a_scan_have_gradients():
    """Zeros where a result does not depend on them, as with PyTorch's own."""
    carry, rows = (torch.ones(sizes, requires_grad=True) for sizes in ((2,), (3, 2)))
    last, all_rows = higher_order.scan(lambda a, b: (b * 2, a * 1), carry, rows)
    assert torch.autograd.grad(last.sum(), carry, retain_graph=True)[0].tolist() == [0, 0]
    assert torch.autograd.grad(all_rows.sum(), carry)[0].tolist() == [1, 1]
    outside = torch.ones(2, requires_grad=True)
    found = higher_order.map(lambda a: a.detach() * outside.detach(), rows)
    assert torch.autograd.grad(found.sum(), outside)[0].tolist() == [0, 0]


def test_replicas_do_not_change_parameters_or_buffers():
    program = EXAMPLE.but(setting=Setting(replicas=2))
    assert with_possible_setting(program).setting.replicas == 2
    for name, kind in (("w0", W), ("b0", Source("b0", (4,), "F32"))):
        changing = program.but(sources=(X, kind), lines=(f"v0 = {name}.detach()", "v0.add_(x0[0])"),
                               outputs=("v0",), loss="")
        assert with_possible_setting(changing).setting.replicas == 1


def test_rows_ask_for_finite_numbers():
    """Also of what is computed from others, in other calls too."""
    d = mock.Mock(sources=[Source("x0", (1,), "F32", fill="special"), Source("x1", (1,), "F32")],
                  lines=["v0 = x0.expand([1])", "v1 = x1 * 1", "v2 = x1 * 2", "v2.add_(v0)"],
                  env={f"v{i}": torch.ones(1) for i in range(3)})
    assert base.finite(d, "v1") == "v1"
    for name in ("v0", "v2"):
        with pytest.raises(base.Rejected):
            base.finite(d, name)


@pytest.mark.parametrize("write, is_determined", [
    (lambda x, i: x.mul_(x), True), (lambda x, i: x.copy_(x[:]), True),
    (lambda x, i: x.scatter_(0, i, x + 0), True), (lambda x, i: x.cumsum_(0), True),
    (lambda x, i: x.scatter_(0, i, x[:]), False), (lambda x, i: x.masked_scatter_(i > 1, x), False),
    (lambda x, i: x[1:].add_(x[:-1]), False),
    (lambda x, i: torch._foreach_sub_([x.view(2, 2)], [x.view(2, 2).t()]), False)])
def test_writes_whose_result_depends_on_the_order_are_not_drawn(write, is_determined):
    x = torch.arange(8.0)[::2]  # eager does not find out that such tensors share elements
    with Determined(), nullcontext() if is_determined else pytest.raises(base.Rejected):
        write(x, torch.tensor([3, 0, 1, 2]))


def test_a_program_that_does_not_end_is_given_up(monkeypatch):
    """The process that is busy with it is replaced; poptorch's fault is a finding."""
    class Stuck(Workers):
        def _started(self, number):
            process = mock.Mock(exitcode=-9, is_alive=mock.Mock(return_value=True))
            started.append(process)
            return process, mock.Mock(), [3, is_ours]

    monkeypatch.setattr(workers, "LIMIT", 2.5)
    for is_ours in (0, 1):
        started = []
        tally = next(Stuck(1, 60.0).search(0, 40))
        assert len(started) == 2 and started[0].kill.called and not started[1].kill.called
        assert len(tally.found) == is_ours and sum(tally.invalid.values()) == 1 - is_ours
    assert "the process ended with -9" in tally.found[0][2].words


def test_a_failure_is_made_small():
    def judged(program):
        text = source_text(program)
        compile(text, "x", "exec")
        return judge.Finding("wrong", "") if "cumsum" in text else None

    program = EXAMPLE.but(
        sources=(X, W, Source("x1", (3, 4), "BF16", layout="stepped")),
        lines=("v0 = x0 * w0", "v1 = v0.exp()", "v2 = v1 + x1", "v3 = v2.cumsum(-1)",
               "v4 = v3.reshape([12])", "v5 = v4.sum()"),
        outputs=("v0", "v4", "v5"), loss="v5.to(F32).sum() + v4.to(F32).mean()",
        setting=Setting(off=("cse", "dce"), algorithms=("conv:im2col",), threads=3, poison=True,
                        accumulation=2))
    with mock.patch.object(shrink, "judged", judged):
        small = shrink.shrunk(program, "wrong")
    assert [line.split(".")[-1] for line in small.lines] == ["cumsum(-1)"]
    assert small.setting == Setting()
    assert len(small.outputs) == 1
    assert small.loss == ""
    assert len(small.sources) <= 2
    assert all(source.layout == "plain" for source in small.sources)

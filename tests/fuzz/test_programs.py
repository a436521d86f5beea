"""Random programs compute what PyTorch computes; and the generator, the judge and the shrinker."""

import math
from contextlib import nullcontext
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fuzz.judge import FACTOR
from tests.fuzz.programs import cases, higher_order, judge, search, shrink, workers
from tests.fuzz.programs import draw as drawing
from tests.fuzz.programs.determined import Determined
from tests.fuzz.programs.draw import draw, with_possible_setting
from tests.fuzz.programs.perturbed import Perturbing, perturbed
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
from tests.fuzz.programs.running import eager, through_poptorch
from tests.fuzz.programs.undetermined import is_undetermined
from tests.fuzz.programs.vocabulary import base
from tests.fuzz.programs.workers import Workers
from tests.helpers import run_python

SECONDS = 60.0  # of the default run
# At most this part of the programs is refused, or still found wrong. The aim of the second is 0:
# lower it with each fault that is mended.
REFUSED, WRONG = 0.01, 0.0002
X = Source("x0", (3, 4), "F32")
W = Source("w0", (4,), "F32")
EXAMPLE = Program(
    seed=1, sources=(X, W), modules=(), lines=("v0 = x0 * w0", "v1 = v0.exp()"),
    outputs=("v0", "v1"), loss="v1.to(F32).sum()", setting=Setting(calls=2))


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
    """A minute of them; ``make fuzz`` takes more. What is found is shown, with its seed."""
    processes, tally = Workers(2, SECONDS * FACTOR), search.Tally()
    for part in processes.search(seed * 1000, 10**9):
        tally.add(part)
    processes.end()
    shown = "\n\n".join(finding.words for _, _, finding in tally.found)
    tell(f"{tally}\n{shown}".strip())
    assert tally.judged > 20
    assert len(tally.found) <= at_most(WRONG, tally.judged), (
        f"{shown}\n\n`python -m tests.fuzz.programs --replay SEED` shrinks a program. Keep what it "
        f"prints as a file of tests/fuzz/programs/cases.")
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


def damaged(name, change, program=EXAMPLE):
    """What the judge finds when one tensor of poptorch's run is another."""
    run = through_poptorch(program)
    run[name] = change(run[name])
    with mock.patch.object(judge, "through_poptorch", return_value=run):
        return judge.judge(program)


def test_the_judge_accepts_what_is_right():
    assert judge.judge(EXAMPLE) is None


@pytest.mark.parametrize("name", [
    "call 0 result 1", "call 1 result 2", "call 0 input 0", "gradient w0", "state w0"])
def test_the_judge_finds_a_wrong_number(name):
    def change(x):
        return torch.where(torch.arange(x.numel()).view(x.shape) == 0, x + 1e-3, x)

    finding = damaged(name, change)
    assert finding.kind == "wrong"
    assert finding.words.startswith(f"{name}: error 1.00e-03")


@pytest.mark.parametrize("size, own, accepted, found", [
    (1.0, 1e-3, 3e-3, 5e-3),
    (1.0, 8.0, 8e3, 9e3),  # no digit of eager's is right
    (0.0, 0.0, 100.0, 130.0),  # the largest number of the run is 1e18
])
def test_the_judge_measures_an_error_by_eagers(size, own, accepted, found):
    largest = 1e18 if size == 0.0 else 1.0
    reference = {"gradient w0": torch.tensor([size], dtype=torch.float64),
                 "call 0 result 1": torch.tensor(7), "call 0 result 2": torch.zeros(0),
                 "state w1": torch.tensor([10.0], dtype=torch.float64),
                 "call 0 result 0": torch.tensor([largest], dtype=torch.float64)}
    near = {**reference, "gradient w0": torch.tensor([size + own])}
    for error, is_found in ((accepted, False), (found, True)):
        ours = {**reference, "gradient w0": torch.tensor([size - error])}
        with mock.patch.object(judge, "RUNS", ()):
            assert (judge._judged(EXAMPLE, ours, near, reference) is not None) is is_found


def test_the_judge_says_nothing_of_training_in_which_no_digit_is_determined():
    """Runs of eager that differ by more than all numbers; one tensor of roundings is no such run.
    """
    reference = {"state w0": torch.ones(2, dtype=torch.float64),
                 "gradient w0": torch.zeros(2, dtype=torch.float64)}
    ours = {name: x + 0.5 for name, x in reference.items()}
    for error, is_determined in ((1e-6, True), (2.0, False)):
        runs = [{name: (x + error).float() for name, x in reference.items()}]
        with mock.patch.object(judge, "perturbed", return_value=runs), \
                mock.patch.object(judge, "ORDER", judge.FACTOR):
            if is_determined:
                assert judge._judged(EXAMPLE, ours, runs[0], reference).kind == "wrong"
            else:
                ours = {name: x + 100.0 for name, x in reference.items()}
                with pytest.raises(judge.Invalid, match="no digit"):
                    judge._judged(EXAMPLE, ours, runs[0], reference)
    runs = [{"state w0": torch.ones(2), "gradient w0": torch.tensor([0.0, math.nan])}]
    ours = {name: x + 100.0 for name, x in reference.items()}
    with mock.patch.object(judge, "perturbed", return_value=runs), \
            pytest.raises(judge.Invalid, match="no digit"):
        judge._judged(EXAMPLE, ours, runs[0], reference)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("call", ["F.layer_norm({}, (4,))", "F.group_norm({}, 1)",
                                  "F.batch_norm({}, None, None, training=True)"])
def test_norms_whose_variance_overflows_say_nothing(call, wide):
    large = "x0 * 1e200" if wide else "x0 * 1e30"
    for factor, is_so in (("x0", False), (large, True)):
        program = EXAMPLE.but(lines=(f"v0 = {call.format(factor)}",), outputs=("v0",), loss="",
                              setting=Setting(wide=wide))
        assert is_undetermined(program) == is_so


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
    (lambda x, i: x[1:].add_(x[:-1]), False)])
def test_writes_whose_result_depends_on_the_order_are_not_drawn(write, is_determined):
    x = torch.arange(8.0)[::2]  # eager does not find out that such tensors share elements
    with Determined(), nullcontext() if is_determined else pytest.raises(base.Rejected):
        write(x, torch.tensor([3, 0, 1, 2]))


def test_the_judge_moves_each_step_of_a_recurrent_layer():
    """Also where eager has one operation for all of it."""
    gates = EXAMPLE.but(
        sources=(Source("x0", (2, 3, 4), "F32"),), modules=(("m0", "nn.LSTM(4, 5).to(F32)"),),
        lines=("v0 = m0(x0)[0]",),
        outputs=("v0",), loss="v0.to(F32).sum()")
    met = []

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            met.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    with Noting():
        assert perturbed(gates, 1, 1)
    assert not [name for name in met if "mkldnn" in name] and "tanh" in " ".join(met)


def test_the_judge_moves_each_step_of_attention():
    program = EXAMPLE.but(
        sources=(Source("x0", (2, 1, 3, 4), "F32"),),
        lines=("v0 = F.scaled_dot_product_attention(x0, x0, x0)",), outputs=("v0",), loss="")
    with mock.patch.object(Perturbing, "_move", side_effect=lambda x: x) as moved:
        perturbed(program, 1, 1)
    assert moved.call_count > 2


@pytest.mark.parametrize("line", ["v0 = x0.sigmoid()", "v0 = x0.mul(99).tanh()", "v0 = x0.sin()"])
def test_the_judge_moves_nothing_beyond_one(line):
    """Else eager would refuse what takes probabilities in all runs but those that move nothing."""
    program = EXAMPLE.but(sources=(Source("x0", (3, 4), "BF16"),), lines=(line,), outputs=("v0",),
                          loss="")
    for run in perturbed(program, 1, 4):
        assert run["call 0 result 0"].abs().max() <= 1


def test_the_judge_knows_what_a_norm_of_one_element_leaves():
    program = EXAMPLE.but(
        sources=(Source("x0", (2, 2), "F32", fill="whole"), Source("w0", (2,), "F32")),
        lines=("v0 = F.group_norm(x0, 2, w0)", "v1 = v0.any()"), outputs=("v1",), loss="",
        setting=Setting(wide=True))
    found = {bool(run["call 0 result 0"]) for run in perturbed(program, 1, 6)}
    assert found == {True, False}


def test_the_judge_finds_another_dtype_shape_or_special_value():
    assert "expected torch.float32[3, 4]" in damaged("call 0 result 0", torch.Tensor.half).words
    assert "expected torch.float32[3, 4]" in damaged("call 0 result 0", torch.Tensor.t).words
    nan = damaged("call 0 result 0", lambda x: x.masked_fill(x == x.max(), math.nan))
    assert nan.words.startswith("call 0 result 0: nan at [")


def test_the_judge_finds_a_finite_number_for_nan():
    program = EXAMPLE.but(lines=("v0 = x0 * w0", "v1 = v0 / (v0 - v0)"), loss="")
    finding = damaged("call 0 result 1", lambda x: x.nan_to_num(), program)
    assert "expected nan at" in finding.words or "expected inf at" in finding.words


def test_the_judge_finds_wrong_integers():
    program = EXAMPLE.but(lines=("v0 = x0 > w0", "v1 = v0.sum(0)"), loss="")
    assert judge.judge(program) is None
    assert damaged("call 0 result 1", lambda x: x + 1, program).kind == "wrong"


def test_the_judge_takes_integers_that_only_eager_has_wrong():
    right, near = torch.tensor([1, 2]), torch.tensor([1, 3])
    assert not judge._integers_differ("x", right, [near], right)
    assert "3 at [1], expected 2" in judge._integers_differ("x", near, [right], right)


def test_the_judge_takes_no_integers_that_leave_int32_on_the_way():
    program = EXAMPLE.but(lines=("v0 = (x0 > w0).sum(0) + 65536", "v1 = v0 * v0 - v0 * v0 + v0"),
                          outputs=("v1",), loss="")
    assert judge.judge(program) is None
    with pytest.raises(judge.Invalid, match="on the way"):
        damaged("call 0 result 0", lambda x: x + 1, program)


def test_the_judge_says_nothing_of_nan_that_counts_0_times():
    """Eager has it in bfloat16, and in small matrices of a batch; not where a library computes."""
    lines = ("v0 = x0 / (x0 - x0)", "v1 = torch.addmm(w0, x0.t(), v0, alpha=0)")
    program = EXAMPLE.but(lines=lines, outputs=("v1",), loss="")
    with pytest.raises(judge.Invalid, match="in some types or sizes only"):
        damaged("call 0 result 0", lambda x: x * math.nan, program)
    program = program.but(lines=("v0 = x0 * 2", lines[1]))
    assert damaged("call 0 result 0", lambda x: x * math.nan, program).kind == "wrong"


def test_the_judge_says_nothing_of_gradients_of_hardswish_at_nan():
    line = "v1 = F.hardswish(torch.where(w0 > 9, w0, float('nan')))"
    program = EXAMPLE.but(lines=(line,), outputs=("v1",))
    with pytest.raises(judge.Invalid, match="in some types or sizes only"):
        damaged("gradient w0", lambda x: x + 1, program)
    program = program.but(lines=("v1 = F.hardswish(w0)",))
    assert damaged("gradient w0", lambda x: x + 1, program).kind == "wrong"


def test_the_judge_says_nothing_of_what_a_rounding_decides():
    """(x * 3) / 3 > x where x is what the rounding of the division says."""
    program = EXAMPLE.but(lines=("v0 = (x0 * 3.1) / 3.1", "v1 = v0 > x0"), loss="")
    assert damaged("call 0 result 1", torch.logical_not, program) is None


def test_the_judge_says_nothing_of_equality_that_a_rounding_decides():
    """By how many roundings such numbers differ nobody knows."""
    lines = ("v0 = (x0.exp() + 1).log()", "v1 = v0 == w0")
    source = Source("w0", (3, 4), "F32")
    program = EXAMPLE.but(sources=(EXAMPLE.sources[0], source), lines=lines, outputs=("v1",),
                          loss="")
    assert damaged("call 0 result 0", torch.logical_not, program).kind == "wrong"
    program = program.but(lines=(lines[0], "v1 = v0 == (x0.exp() + 1).log() * (1 + 2.0**-21)"))
    assert damaged("call 0 result 0", torch.logical_not, program) is None


def test_the_judge_moves_what_is_compared_with_bools_and_integers():
    lines = ("v0 = x0 == (w0 > 0)", "v1 = x0.ne(1)", "v2 = x0 == (w0 > 0).to(I64)")
    program = EXAMPLE.but(lines=lines, outputs=("v0", "v1", "v2"), loss="")
    assert len(perturbed(program, 1, 6)) == 6


@pytest.mark.parametrize("line", [
    "v0 = torch.lerp(x0, x0 * 0.3 / -0.7, 0.7)",
    "v0 = x0 * 0.7 - x0 * 0.7000001",
    "v0 = torch.addcmul(x0 * -0.09, x0, torch.full((3, 4), 0.3), value=0.3)"])
def test_the_judge_knows_that_what_nearly_cancels_may_cancel(line):
    program = EXAMPLE.but(lines=(line, "v1 = v0.to(BOOL)"), outputs=("v1",), loss="")
    assert damaged("call 0 result 0", torch.logical_not, program) is None


def test_errors_and_accidents_are_told_apart():
    error = judge.Error("[x] no")
    with mock.patch.object(judge, "through_poptorch", side_effect=error):
        assert judge.judge(EXAMPLE).kind == "refused"
    with mock.patch.object(judge, "through_poptorch", side_effect=KeyError("x")):
        assert judge.judge(EXAMPLE).kind == "broken"
    with pytest.raises(judge.Invalid):
        judge.judge(EXAMPLE.but(lines=("v0 = x0 @ x0", "v1 = v0")))


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


def test_the_worlds_agree():
    """Eager in float64 differs from eager in float32 by roundings alone."""
    narrow, wide = eager(EXAMPLE, NATURAL), eager(EXAMPLE, WIDE)
    assert narrow.keys() == wide.keys()
    for name, tensor in narrow.items():
        torch.testing.assert_close(tensor.double(), wide[name], rtol=1e-4, atol=1e-5)


# -- the shrinker ------------------------------------------------------------------------------


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

"""The judge of random programs: what it finds, and of what it says nothing."""

import math
from unittest import mock

import pytest
import torch
from torch import _higher_order_ops
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fuzz.programs import higher_order, judge
from tests.fuzz.programs.example import EXAMPLE
from tests.fuzz.programs.perturbed import Perturbing, perturbed
from tests.fuzz.programs.program import NATURAL, WIDE, Setting, Source
from tests.fuzz.programs.running import eager, through_poptorch
from tests.fuzz.programs.undetermined import is_undetermined


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


@pytest.mark.parametrize("computed, is_wrong", [(torch.float32, False), (torch.float64, True)])
def test_the_judge_accepts_roundings_of_the_type_that_is_computed_in(computed, is_wrong):
    """A float64 buffer that is float32 on the device: eager's one rounding may be small."""
    reference = {"state b0": torch.tensor([2.5], dtype=torch.float64)}
    near = {"state b0": torch.tensor([2.5], dtype=computed)}
    ours = {"state b0": reference["state b0"] + 2.0**-23}
    with mock.patch.object(judge, "RUNS", ()):
        assert (judge._judged(EXAMPLE, ours, near, reference) is not None) is is_wrong


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


@pytest.mark.parametrize("number, is_wrong", [(3e3, False), (1e6, True)])
def test_the_judge_knows_the_order_of_magnitude_of_what_has_no_right_digit(number, is_wrong):
    """In a run of eager's nearly nothing may be left of the largest number."""
    reference = {"state b0": torch.tensor([1.0, 100.0], dtype=torch.float64)}
    runs = [{"state b0": torch.tensor([1.0, 2.0])}]
    ours = {"state b0": torch.tensor([1.0, number])}
    with mock.patch.object(judge, "perturbed", return_value=runs):
        finding = judge._judged(EXAMPLE.but(loss=""), ours, runs[0], reference)
    assert (finding is not None) is is_wrong


def test_the_judge_says_nothing_of_training_that_overflows_on_the_way():
    reference = {"state w0": torch.full((2,), math.nan).double(),
                 "call 0 result 0": torch.tensor([1e60, 1.0], dtype=torch.float64)}
    near = {name: x.float() for name, x in reference.items()}
    ours = {**near, "state w0": torch.ones(2)}
    with mock.patch.object(judge, "perturbed", return_value=[near]), \
            pytest.raises(judge.Invalid, match="no digit"):
        judge._judged(EXAMPLE, ours, near, reference)
    reference["call 0 result 0"].fill_(1)
    near["call 0 result 0"].fill_(1)
    ours["call 0 result 0"].fill_(1)
    with mock.patch.object(judge, "perturbed", return_value=[near]):
        assert judge._judged(EXAMPLE, ours, near, reference).kind == "wrong"


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("call", ["F.layer_norm({}, (4,))", "F.group_norm({}, 1)",
                                  "F.batch_norm({}, None, None, training=True)"])
def test_norms_whose_variance_overflows_say_nothing(call, wide):
    large = "x0 * 1e200" if wide else "x0 * 1e30"
    for factor, is_so in (("x0", False), (large, True)):
        program = EXAMPLE.but(lines=(f"v0 = {call.format(factor)}",), outputs=("v0",), loss="",
                              setting=Setting(wide=wide))
        assert is_undetermined(program) == is_so


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


def test_the_judge_knows_that_the_tail_of_a_gelu_may_be_0():
    """The probability there is one less another, or not."""
    program = EXAMPLE.but(
        sources=(Source("x0", (4,), "F32", fill="positive"),), outputs=("v0", "v1"), loss="",
        lines=("v0 = F.gelu(x0.clamp(0, 1) * 0 - 5.2)", "v1 = F.gelu(x0.clamp(0, 1) * 0 - 1)"))
    runs = perturbed(program, 1, 6)
    assert {bool(run["call 0 result 0"].any()) for run in runs} == {True, False}
    assert all((run["call 0 result 1"] + 0.158655).abs().max() < 1e-5 for run in runs)


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


def test_the_judge_takes_integers_that_leave_int32_on_the_way():
    program = EXAMPLE.but(lines=("v0 = (x0 > w0).sum(0) + 65536", "v1 = v0 * v0 - v0 * v0 + v0"),
                          outputs=("v1",), loss="")
    assert judge.judge(program) is None
    assert damaged("call 0 result 0", lambda x: x + 1, program).kind == "wrong"


def test_the_judge_says_nothing_of_nan_that_counts_0_times():
    """Eager has it in bfloat16, and in small matrices of a batch; not where a library computes."""
    lines = ("v0 = x0 / (x0 - x0)", "v1 = torch.addmm(w0, x0.t(), v0, alpha=0)")
    program = EXAMPLE.but(lines=lines, outputs=("v1",), loss="")
    with pytest.raises(judge.Invalid, match="types, sizes or on some processors only"):
        damaged("call 0 result 0", lambda x: x * math.nan, program)
    program = program.but(lines=("v0 = x0 * 2", lines[1]))
    assert damaged("call 0 result 0", lambda x: x * math.nan, program).kind == "wrong"


def test_the_judge_says_nothing_of_gradients_of_hardswish_at_nan():
    line = "v1 = F.hardswish(torch.where(w0 > 9, w0, float('nan')))"
    program = EXAMPLE.but(lines=(line,), outputs=("v1",))
    with pytest.raises(judge.Invalid, match="types, sizes or on some processors only"):
        damaged("gradient w0", lambda x: x + 1, program)
    program = program.but(lines=("v1 = F.hardswish(w0)",))
    assert damaged("gradient w0", lambda x: x + 1, program).kind == "wrong"


def test_the_judge_says_nothing_of_interpolation_of_infinities():
    line = "v0 = F.interpolate(x0 / {}, scale_factor=1.5, mode='bilinear', align_corners=False)"
    program = EXAMPLE.but(sources=(Source("x0", (1, 1, 1, 1), "F32"),), outputs=("v0",), loss="")
    with pytest.raises(judge.Invalid, match="types, sizes or on some processors only"):
        damaged("call 0 result 0", lambda x: x * 0, program.but(lines=(line.format("0"),)))
    finite = program.but(lines=(line.format("2"),))
    assert damaged("call 0 result 0", lambda x: x + 1, finite).kind == "wrong"


@pytest.mark.parametrize("function", ["var_mean", "std_mean"])
def test_the_judge_says_nothing_of_means_beside_variances_of_infinities(function):
    """NaN where the infinity is not the last number of a row."""
    line = f"v0, v1 = torch.{function}(torch.stack((x0 / {{}}, x0)), 0)"
    for divisor, is_so in (("2", False), ("0", True)):
        program = EXAMPLE.but(lines=(line.format(divisor),), outputs=("v1",), loss="")
        assert is_undetermined(program) == is_so


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_the_judge_says_nothing_of_batch_norm_that_takes_gradients_for_other_channels(dtype):
    """Their strides fit a row-major and a channels-last tensor here."""
    lines = ("v0 = F.batch_norm(w0, x0, x0.abs() + 1)", "v1 = v0.permute([0, 3, 2, 1])",
             "v2 = torch.stack((v1, w1.to(F32), v1), -1)")
    program = EXAMPLE.but(
        sources=(Source("x0", (2,), dtype), Source("w0", (2, 2, 2, 1), dtype),
                 Source("w1", (2, 1, 2, 2), dtype)),
        lines=lines, outputs=("v2",), loss="v2.to(F32).pow(2).sum()")
    assert is_undetermined(program)
    assert not is_undetermined(program.but(lines=(lines[0], "v1 = v0.mT", "v2 = v1 * 2")))


def test_the_judge_knows_that_a_norm_of_equal_numbers_may_be_0():
    """What is computed by its size is NaN then; also behind another norm that leaves roundings."""
    lines = ("v0 = F.instance_norm(x0, None, None, w0, w0)", "v1 = F.group_norm(v0, 1, w0)",
             "v2 = v1 / v1.abs().max()")
    program = EXAMPLE.but(
        sources=(Source("x0", (2, 1, 1, 2), "F32", layout="expanded"), Source("w0", (1,), "F32")),
        lines=lines, outputs=("v2",), loss="")
    assert any(run["call 0 result 0"].isnan().any() for run in perturbed(program, 1, 6))


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
    "v0 = torch.addcmul(x0 * -0.09, x0, torch.full((3, 4), 0.3), value=0.3)",
    "v0 = F.interpolate(torch.tensor([[[1.0, -2.0]]]), scale_factor=3, mode='linear')[0, :, 2:3]"
    ".expand(3, 4)"])
def test_the_judge_knows_that_what_nearly_cancels_may_cancel(line):
    program = EXAMPLE.but(lines=(line, "v1 = v0.to(BOOL)"), outputs=("v1",), loss="")
    assert damaged("call 0 result 0", torch.logical_not, program) is None


def test_the_judge_says_nothing_of_what_is_saturated():
    """Of 64 pairs of hyperbolic tangents near 1 all may be equal, or none."""
    lines = ("v0 = (x0.sigmoid() + 8).tanh().argmin(0)", "v1 = v0.amax()")
    program = EXAMPLE.but(sources=(Source("x0", (2, 64), "F32"),), lines=lines, outputs=("v1",),
                          loss="")
    assert damaged("call 0 result 0", torch.zeros_like, program) is None
    program = program.but(lines=("v0 = x0.tanh().argmin(0)", lines[1]))
    assert damaged("call 0 result 0", torch.zeros_like, program).kind == "wrong"


def test_the_judge_says_nothing_of_the_sign_of_what_is_small_in_an_eigenvector():
    vectors = "torch.linalg.eigh(torch.diag(1.0 * torch.arange(4)) + 1e-8)[1]"
    for part, is_determined in (("0, 1:", False), ("[0, 1, 2, 3], [0, 1, 2, 3]", True)):
        lines = (f"v0 = {vectors}[{part}]", "v1 = v0 > 0")
        program = EXAMPLE.but(lines=lines, outputs=("v1",), loss="")
        finding = damaged("call 0 result 0", torch.logical_not, program)
        assert (finding is not None) is is_determined


def test_what_stands_for_scans_and_maps_lies_in_memory_as_they_do():
    x, rows = torch.ones(1, 5, 3, 2).contiguous(memory_format=torch.channels_last), torch.ones(4, 1)
    with torch.no_grad():
        for n in (1, 4):
            pairs = [(module.scan(lambda v, row: (v * row, v * row), x, rows[:n])[1],
                      module.map(lambda row: x * row, rows[:n]))
                     for module in (higher_order, _higher_order_ops)]
            ours, torchs = ([result.stride() for result in pair] for pair in pairs)
            assert ours == torchs


def test_errors_and_accidents_are_told_apart():
    error = judge.Error("[x] no")
    with mock.patch.object(judge, "through_poptorch", side_effect=error):
        assert judge.judge(EXAMPLE).kind == "refused"
    with mock.patch.object(judge, "through_poptorch", side_effect=KeyError("x")):
        assert judge.judge(EXAMPLE).kind == "broken"
    with pytest.raises(judge.Invalid):
        judge.judge(EXAMPLE.but(lines=("v0 = x0 @ x0", "v1 = v0")))


def test_the_worlds_agree():
    """Eager in float64 differs from eager in float32 by roundings alone."""
    narrow, wide = eager(EXAMPLE, NATURAL), eager(EXAMPLE, WIDE)
    assert narrow.keys() == wide.keys()
    for name, tensor in narrow.items():
        torch.testing.assert_close(tensor.double(), wide[name], rtol=1e-4, atol=1e-5)


def test_the_judge_says_nothing_of_paths_of_zeros_in_some_transforms():
    line = "v1 = torch.func.{}(lambda a: a.prod(-1).sum())(w0)"
    program = EXAMPLE.but(sources=(Source("w0", (1,), "F32"), Source("w1", (1,), "F32")),
                          outputs=("v1",), loss="v1.sum() + w1.sum()")
    with pytest.raises(judge.Invalid, match="zeros or none by the transform"):
        judge.judge(program.but(lines=(line.format("jacrev"),)))
    assert judge.judge(program.but(lines=(line.format("grad"),))) is None


@pytest.mark.parametrize("factor", [0, 1])
def test_the_judge_says_nothing_of_paths_of_zeros_that_a_value_decides(factor):
    program = EXAMPLE.but(
        sources=(Source("w0", (2, 1), "F32"), Source("w1", (1,), "F32")),
        lines=(f"v1 = w0 * {factor}",
               "v2 = torch.autograd.grad(v1.prod(-1).sum(), v1, create_graph=True)[0]"),
        outputs=("v2",), loss="v2.sin().sum() + w1.sum()")
    if factor == 0:
        with pytest.raises(judge.Invalid, match="or by a value"):
            judge.judge(program)
    else:
        assert judge.judge(program) is None

"""Operators without a row: argument lists, widened integers, several results, errors."""

import threading

import numpy as np
import pytest
import torch

from poptorch import _C
from poptorch.errors import Error

DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.int32: "i32", torch.int64: "i64"}
DTYPES |= {torch.bool: "bool", torch.float16: "f16", torch.uint8: "u8"}


def run(overload, operands, args, results, salt=None, **attrs):
    """The results of an opaque op as tensors; `results` holds (dtype, sizes)."""
    attrs |= {"overload": overload, "args": args} | ({} if salt is None else {"salt": salt})
    arrays = [None if x is None else x.numpy() for x in operands]
    return [torch.from_numpy(out) for out in _C.evaluate("aten", arrays, attrs, results)]


def check(overload, operands, args, expected, salt=None):
    """Compares with tensors, after their types are narrowed."""
    narrow = {torch.int64: torch.int32, torch.float64: torch.float32}
    expected = [x.to(narrow.get(x.dtype, x.dtype)) for x in expected]
    types = [(DTYPES[x.dtype], list(x.shape)) for x in expected]
    for ours, other in zip(run(overload, operands, args, types, salt), expected, strict=True):
        assert torch.equal(ours, other)


x = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 7 - 0.5
i = torch.tensor([[0, 2], [1, 1]], dtype=torch.int32)

F32 = [("f32", [3, 4])]

CASES = {
    "tensor and scalar": ("aten::mul.Scalar", [x], ["%0", 3], [x * 3]),
    "defaults": ("aten::logit", [x.sigmoid()], ["%0"], [torch.logit(x.sigmoid())]),
    "none": ("aten::clamp", [x], ["%0", None, 0.25], [x.clamp(max=0.25)]),
    "optional tensor": ("aten::clamp.Tensor", [x, x + 0.1], ["%0", None, "%1"], [x]),
    "absent operand": ("aten::clamp.Tensor", [x, None, x], ["%0", "%1", "%2"], [x]),
    "tensors": (
        "aten::stack",
        [x, x + 1],
        [["%0", "%1", "%0"], 1],
        [torch.stack([x, x + 1, x], 1)],
    ),
    "optional tensors": ("aten::index.Tensor", [x, i], ["%0", [None, "%1"]], [x[:, i.long()]]),
    "ints": ("aten::roll", [x], ["%0", [1, 2], [0, 1]], [x.roll((1, 2), (0, 1))]),
    "one int for a list": ("aten::roll", [x], ["%0", 5], [x.roll(5)]),
    "floats": (
        "aten::upsample_nearest2d.vec",
        [x[None, None]],
        ["%0", None, [2.0, 2.0]],
        [torch.nn.functional.interpolate(x[None, None], scale_factor=2.0)],
    ),
    "bool": ("aten::logcumsumexp", [x], ["%0", 1], [x.logcumsumexp(1)]),
    "string": (
        "aten::div.Tensor_mode",
        [x, x + 3],
        ["%0", "%1", "floor"],
        [x.div(x + 3, rounding_mode="floor")],
    ),
    "widened index": ("aten::take", [x, i], ["%0", "%1"], [x.take(i.long())]),
    "narrowed result": ("aten::argsort", [x], ["%0", 1, True], [x.argsort(1, descending=True)]),
    "several results": ("aten::sort.stable", [x], ["%0", True, 0, True], list(x.sort(0, True))),
    "list of results": ("aten::unbind.int", [x], ["%0", 1], list(x.unbind(1))),
    "view": ("aten::t", [x], ["%0"], [x.t()]),
    "expanded view": ("aten::expand", [x[:1]], ["%0", [5, 4]], [x[:1].expand(5, 4)]),
    "operand itself": ("aten::alias", [x], ["%0"], [x]),
    "memory format": ("aten::clone", [x], ["%0", "contiguous_format"], [x]),
    "half": ("aten::mul.Scalar", [x.half()], ["%0", 3], [x.half() * 3]),
    "empty": ("aten::cumsum", [x[:0]], ["%0", 0], [x[:0]]),
    "refuses zeros": (
        "aten::linalg_inv_ex",
        [torch.eye(3) * 2],
        ["%0", True],
        [torch.eye(3) / 2, torch.tensor(0)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_calls(name):
    overload, operands, args, expected = CASES[name]
    for _ in range(2):
        check(overload, operands, args, expected)


def test_dtype_attribute():
    check("aten::sum", [i], ["%0", _C.DType("f32")], [i.float().sum()])
    args = ["%0", 7, _C.DType("i64"), "strided", "cpu"]
    check("aten::full_like", [x], args, [torch.full((3, 4), 7)])


def test_complex_operands_and_results_are_pairs():
    z, w = (torch.randn(3, 4, dtype=torch.complex64) for _ in range(2))
    pairs, others = torch.view_as_real(z), torch.view_as_real(w)
    for overload, args, expected in (
            ("aten::mul.Tensor", ["%complex0", "%complex1"], z * w),
            ("aten::mul.Scalar", ["%complex0", [0.0, 2.0]], z * 2j),
            ("aten::where.self", ["%3", "%complex0", "%complex1"], torch.where(x > 0, z, w)),
            ("aten::_conj", ["%complex0"], z.conj()),
            ("aten::complex", ["%2", "%2"], torch.complex(x, x)),
            ("aten::full_like", ["%0", [1.0, 3.0], "complex64"], torch.full((3, 4, 2), 1 + 3j))):
        types = [("f32", [*expected.shape, 2])]
        found, = run(overload, [pairs, others, x, x > 0], args, types)
        assert torch.equal(found, torch.view_as_real(expected.resolve_conj())), overload
    found, = run("aten::cat", [pairs, others], [["%complex0", "%complex1"], 0], [
        ("f32", [6, 4, 2])])
    assert torch.equal(found, torch.cat([pairs, others]))
    # Strides are those of the pairs; where their parts lie apart, a copy is passed.
    for strides in ([2, 6, 1], [0, 2, 1], [16, 4, 2]):
        found, = run("aten::abs", [pairs], ["%complex0"], [("f32", [3, 4])], strides=strides)
        torch.testing.assert_close(found, z.abs())
    with pytest.raises(Error, match="argument other is of type .*, given \\[1\\.0\\]"):
        run("aten::mul.Scalar", [pairs], ["%complex0", [1.0]], [("f32", [3, 4, 2])])


def test_scalar_keeps_its_kind():
    wanted = [("i32", [2, 2])]
    assert run("aten::floor_divide.Scalar", [i], ["%0", 2], wanted)[0].dtype == torch.int32
    out = run("aten::mul.Scalar", [i], ["%0", 0.5], [("f32", [2, 2])])[0]
    assert torch.equal(out, i * 0.5)


@pytest.mark.parametrize("laid_out", [
    lambda a: a, lambda a: a.t().contiguous().t(), lambda a: a.new_zeros(3, 9)[:, ::3].copy_(a)])
def test_operands_have_the_strides_of_the_program(laid_out):
    """The factors of A, where it is row-major, are those of its transpose."""
    a = laid_out(torch.rand(3, 3) + torch.eye(3))
    expected = torch.ops.aten._linalg_det(a)
    types = [("f32", []), ("f32", [3, 3]), ("i32", [3])]
    found = run("aten::_linalg_det", [a.contiguous()], ["%0"], types, strides=list(a.stride()))
    for ours, other in zip(found, expected, strict=True):
        assert torch.equal(ours, other.to(ours.dtype))


def test_strides_of_elements_on_each_other():
    a = torch.rand(3, 1)
    found, = run("aten::clone", [a.expand(3, 4).contiguous()], ["%0"], F32, strides=[1, 0])
    assert torch.equal(found, a.expand(3, 4))


def test_undefined_results_are_zero_or_nothing():
    g, w = torch.ones(1, 2, 3, 3), torch.ones(2, 2, 1, 1)
    mask = [True, False, False]
    geometry = [[1, 1], [0, 0], [1, 1], False, [0, 0], 1]
    args = ["%0", "%1", "%2", None, *geometry, mask]
    types = [("f32", [1, 2, 3, 3]), ("f32", [2, 2, 1, 1]), ("f32", [0])]
    dx, dw, db = run("aten::convolution_backward", [g, g, w], args, types)
    assert (dx == 2).all() and (dw == 0).all() and db.numel() == 0


def test_random_operators_follow_their_generator():
    p = torch.full((4, 1000), 0.5)
    state = torch.random.get_rng_state()

    def draw(counter, salt):
        rng = torch.tensor([1, 2, 0, counter], dtype=torch.int32)
        types = [("f32", [4, 1000])]
        return run("aten::bernoulli", [p, rng], ["%0", "%rng1"], types, salt)[0]

    first = draw(0, 5)
    assert torch.equal(first, draw(0, 5))
    assert not torch.equal(first, draw(1, 5)) and not torch.equal(first, draw(0, 6))
    assert abs(first.mean().item() - 0.5) < 0.05
    assert torch.equal(state, torch.random.get_rng_state())


def test_own_operators():
    library = torch.library.Library("poptorch_test_opaque", "DEF")
    library.define("twice(Tensor x, *, bool negate=False) -> Tensor")
    library.impl("twice", lambda x, *, negate=False: x * (-2 if negate else 2), "CPU")
    check("poptorch_test_opaque::twice", [x], ["%0"], [x * 2])
    check("poptorch_test_opaque::twice", [x], ["%0", True], [x * -2])


@pytest.mark.parametrize("x", [x, torch.arange(100_000.0)], ids=["small", "large"])
def test_what_an_operator_keeps_is_not_planned_memory(x):
    name = f"poptorch_test_keeping_{x.numel()}"
    library = torch.library.Library(name, "DEF")
    kept, arrays = [], []

    def keeps(x):
        kept.append((x, x[1:], x + 1))
        arrays.append(x.numpy())
        return x * 3

    library.define("keeps(Tensor x) -> Tensor")
    library.impl("keeps", keeps, "CPU")
    for factor in range(3):
        check(f"{name}::keeps", [x * factor], ["%0"], [x * factor * 3])
    assert len(kept) == 3  # one for each call, and none on zeros
    for factor, (operand, view, made) in enumerate(kept):
        assert torch.equal(operand, x * factor) and torch.equal(view, operand[1:])
        assert torch.equal(made, x * factor + 1)
        assert np.array_equal(arrays[factor], operand)
    kept[0][0].fill_(1)
    for _ in range(3):  # freed at any time, to whoever owns it
        kept.pop()
        check(f"{name}::keeps", [x], ["%0"], [x * 3])


def test_an_operator_may_start_to_keep_what_it_makes():
    library = torch.library.Library("poptorch_test_late", "DEF")
    kept, calls = [], []

    def late(x):
        calls.append(1)
        y = x + 1
        if len(calls) > 2:
            kept.append(y)
        return y

    library.define("late(Tensor x) -> Tensor")
    library.impl("late", late, "CPU")
    for factor in range(5):
        check("poptorch_test_late::late", [x * factor], ["%0"], [x * factor + 1])
    assert [torch.equal(y, x * factor + 1) for factor, y in enumerate(kept, 2)] == [True] * 3


def test_an_operator_frees_on_another_thread():
    library = torch.library.Library("poptorch_test_threads", "DEF")

    def frees(x):
        for value in (1, 2):  # the second block is where the first one was
            box = [x + value]
            thread = threading.Thread(target=box.clear)
            thread.start()
            thread.join()
        return x * 3

    library.define("frees(Tensor x) -> Tensor")
    library.impl("frees", frees, "CPU")
    large = torch.arange(100_000.0)
    for factor in range(3):
        check("poptorch_test_threads::frees", [large * factor], ["%0"], [large * factor * 3])


@pytest.mark.parametrize(
    ("overload", "operands", "args", "words"),
    [
        ("aten::nothing_like_it", [x], ["%0"], "PyTorch has no operator of this name"),
        ("aten::add_.Tensor", [x, x], ["%0", "%1"], "writes to its argument self"),
        ("aten::is_nonzero", [x], ["%0"], "returns bool, a program computes tensors"),
        ("aten::bernoulli", [x], ["%0"], "draws random numbers, no generator is given"),
        ("aten::roll", [x], ["%0", "one"], 'argument shifts is of type .*, given "one"'),
        ("aten::roll", [x], ["%1", 1], "argument self is %1, the op has 1 operands"),
        ("aten::roll", [x], [], "argument self is missing"),
        ("aten::roll", [x], ["%0", 1, 0, 4], "takes 3 arguments, given 4"),
        ("aten::roll", [x], ["%0", 1, 7], "PyTorch refused the call on .*Dimension out of range"),
        ("aten::conv_transpose2d.input", [torch.ones(2, 3, 4, 4), torch.ones(3, 0, 2, 2)],
         ["%0", "%1"], "PyTorch refused the call on .*could not create a primitive descriptor"),
        ("aten::narrow", [x], ["%0", 0, 0, 2], r"sizes \[2, 4\], expected \[3, 4\]"),
    ],
)
def test_errors(overload, operands, args, words):
    with pytest.raises(Error, match=words) as error:
        run(overload, operands, args, F32)
    assert f"[{overload}]" in str(error.value)


def test_steady_state_takes_no_memory_from_torch():
    arrays = [x.numpy(), i.numpy()]
    attrs = {"overload": "aten::take", "args": ["%0", "%1"]}
    counts = []
    for _ in range(3):
        before = _C.aten_allocations()
        out = _C.evaluate("aten", arrays, attrs, [("f32", [2, 2])])[0]
        counts.append(_C.aten_allocations() - before)
    assert counts[1:] == [0, 0] and np.array_equal(out, x.numpy().take(i.numpy()))

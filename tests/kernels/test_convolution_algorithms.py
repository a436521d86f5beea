"""Each algorithm of convolutions on all problems that it applies to, and who chooses it."""

import functools
import random
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from poptorch import _C
from tests import helpers

NAMES = [name for family, name, _ in _C.algorithms() if family == "conv"]
# What only some processors have: a word of /proc/cpuinfo.
UNITS = {"bf16x3_convolution": "amx_bf16", "bf16_unit": "avx512_bf16",
         "bf16_im2col": "avx512_bf16"}
DTYPES = {"upcast": ("bf16",), "bf16_unit": ("bf16",), "bf16_im2col": ("bf16",),
          "direct_weight_gradient": ("f32", "bf16")}
LAYOUTS = ("rows", "channels_last", "last_operands", "image_in_rows", "all_but_gradient_in_rows")
DIRECTIONS = {"forward": None, "dx": (True, False, False), "dw": (False, True, False),
              "gradients": (True, True, True)}


@dataclass(frozen=True)
class Problem:
    """Sizes of a convolution: of the image, channels first, and of the weight."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False

    @property
    def geometry(self):
        """Attributes of the rows, in the order of ATen's arguments."""
        return {"stride": list(self.stride), "padding": list(self.padding),
                "dilation": list(self.dilation), "transposed": self.transposed,
                "output_padding": [0] * len(self.stride), "groups": self.groups}

    def run(self, direction, g, x, w):
        """The results that PyTorch computes, those that are asked for."""
        if direction == "forward":
            return [torch.ops.aten.convolution(x, w, None, *self.geometry.values())]
        mask = DIRECTIONS[direction]
        found = torch.ops.aten.convolution_backward(
            g, x, w, [g.shape[1]], *self.geometry.values(), list(mask))
        return [result for result, wanted in zip(found, mask) if wanted]


def problem(x, w, stride=1, padding=0, dilation=1, **others):
    """A problem; one number stands for all spatial dimensions."""
    each = [(n,) * (len(x) - 2) if isinstance(n, int) else n for n in (stride, padding, dilation)]
    return Problem(x, w, *each, **others)


# In one dimension no window reads a pixel. Of the first three oneDNN ends the process.
SEEING_PADDING_ALONE = [
    problem((2, 2, 7, 1), (4, 1, 4, 1), stride=(3, 2), padding=(0, 3), dilation=(1, 2), groups=2),
    problem((2, 8, 6, 2), (4, 8, 3, 1), stride=(1, 3), padding=(1, 1), dilation=(1, 3)),
    problem((1, 3, 3, 4, 1), (5, 3, 2, 3, 2), stride=(1, 1, 2), padding=(0, 1, 5), dilation=2),
    problem((2, 4, 1), (4, 4, 1), stride=3, padding=2, dilation=2),
    problem((2, 16, 1, 9), (16, 16, 1, 3), stride=(3, 1), padding=(2, 1)),
    problem((2, 6, 2, 2), (6, 4, 2, 1), stride=(1, 4), padding=(0, 1), transposed=True),
]

PROBLEMS = [
    problem((2, 16, 9, 7), (32, 16, 3, 3), padding=1),
    problem((1, 32, 40, 38), (48, 32, 3, 3), padding=(1, 0)),
    problem((2, 64, 20, 20), (64, 64, 3, 3), padding=1),
    problem((3, 16, 5, 6), (16, 16, 3, 3), padding=2),
    problem((2, 32, 12, 11), (64, 32, 5, 3), padding=(2, 1)),
    problem((3, 40, 9, 8), (24, 40, 3, 3), stride=2, padding=1),
    problem((2, 36, 14, 15), (20, 36, 3, 3), padding=(2, 3), dilation=(2, 3)),
    problem((2, 20, 10, 10), (12, 10, 3, 3), padding=1, groups=2),
    problem((2, 24, 11, 9), (24, 1, 3, 3), padding=1, groups=24),
    problem((2, 19, 12, 9), (19, 1, 5, 5), stride=2, padding=2, groups=19),
    problem((2, 8, 9, 9), (8, 1, 3, 3), padding=4, dilation=2, groups=8),
    problem((2, 8, 2, 1), (8, 1, 3, 3), padding=1, groups=8),  # no window within the image
    problem((1, 140, 5, 13), (140, 1, 7, 7), padding=3, groups=140),
    problem((2, 17, 9, 14), (17, 1, 5, 5), padding=(2, 0), groups=17),
    problem((1, 33, 8, 19), (33, 1, 3, 3), stride=2, padding=1, groups=33),
    problem((1, 6, 7, 15), (6, 1, 3, 2), stride=3, padding=1, groups=6),
    problem((3, 1, 12, 12), (32, 1, 3, 3), padding=1),
    problem((2, 3, 19, 23), (16, 3, 7, 7), stride=2, padding=3),
    problem((2, 5, 9, 10), (7, 5, 3, 3), padding=1),
    problem((2, 48, 8, 9), (80, 48, 1, 1)),
    problem((3, 20, 9, 9), (9, 20, 1, 1), stride=2),
    problem((2, 16, 2, 3), (8, 16, 1, 1)),
    problem((4, 6, 1, 1), (5, 6, 1, 1)),
    problem((2, 12, 7, 8), (12, 6, 3, 3), stride=2, padding=1, transposed=True),
    problem((2, 8, 6, 5), (8, 4, 2, 2), stride=2, transposed=True, groups=2),
    problem((2, 16, 50), (24, 16, 3), padding=1),
    problem((2, 32, 41), (32, 32, 3), padding=4, dilation=4),
    problem((1, 4, 64), (8, 4, 9), stride=4, padding=4),
    problem((2, 3, 6, 7, 8), (8, 3, 3, 3, 3), padding=1),
    problem((1, 16, 5, 5, 5), (8, 16, 1, 1, 1)),
    *SEEING_PADDING_ALONE,
]


def drawn(rng: random.Random) -> Problem:
    """A random problem."""
    dims = rng.choice((1, 2, 2, 2, 2, 3))
    each = lambda least, most: tuple(rng.randint(least, most) for _ in range(dims))  # noqa: E731
    groups = rng.choice((1, 1, 1, 2, 4))
    inputs, outputs = (groups * rng.choice((1, 2, 3, 5, 8, 16, 32, 36)) for _ in range(2))
    kernel = rng.choice((each(1, 4), (3,) * dims, (3,) * dims, (1,) * dims))
    dilation = rng.choice(((1,) * dims, (1,) * dims, each(1, 3)))
    if rng.random() < 0.15:
        groups, outputs = inputs, inputs
    transposed = rng.random() < 0.15
    is_small = rng.random() < 0.15  # some windows of these see padding alone
    padding = each(0, 5 if is_small else 2)
    if transposed:
        padding = tuple(min(p, d * (k - 1)) for p, d, k in zip(padding, dilation, kernel))
    sizes = tuple(rng.randint(d * (k - 1) + 1, d * (k - 1) + 12 // dims)
                  for d, k in zip(dilation, kernel))
    stride = rng.choice(((1,) * dims, (1,) * dims, each(1, 3)))
    if is_small and not transposed:
        stride = each(1, 4)
        sizes = tuple(max(rng.randint(1, 3), d * (k - 1) + 1 - 2 * p)
                      for d, k, p in zip(dilation, kernel, padding))
    w = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    return Problem((rng.randint(1, 3), inputs, *sizes), (*w, *kernel), stride, padding, dilation,
                   groups, transposed)


def last(tensor):
    """The same numbers, with channels last in memory."""
    return tensor.movedim(1, -1).contiguous().movedim(-1, 1)


def array(tensor, dtype):
    """As ``evaluate`` takes it, with its strides."""
    if dtype != "bf16":
        return tensor.numpy()
    return tensor.view(torch.int16).numpy().view(np.uint16), "bf16"


@functools.cache
def operands_of(of, dtype):
    """Gradient, image and weight."""
    narrow = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    x, w = (torch.empty(sizes, device="meta") for sizes in (of.x, of.w))
    y = of.run("forward", None, x, w)[0]
    return tuple(torch.randn(sizes).to(narrow) for sizes in (y.shape, of.x, of.w))


@functools.cache
def of_pytorch(of, direction, dtype):
    """The results in this dtype, and in float64.

    Those of 16 bits are computed in float32 and rounded once: PyTorch's own for bfloat16 read past
    the image where kernels are spread, and are then any number, or NaN.
    """
    tensors = operands_of(of, dtype)
    single, wide = (of.run(direction, *(t.to(to) for t in tensors))
                    for to in (torch.float32, torch.float64))
    return [result.to(tensors[0].dtype) for result in single], wide


class Call:
    """A problem in one direction, layout and dtype."""

    def __init__(self, of, direction, layout, dtype="f32"):
        self.problem, self.direction, self.layout, self.dtype = of, direction, layout, dtype
        g, x, w = operands_of(of, dtype)
        self.op = "convolution" if direction == "forward" else "convolution_backward"
        self.attrs = of.geometry
        if direction != "forward":
            mask = list(DIRECTIONS[direction])
            self.attrs = {"bias_sizes": [g.shape[1]], **self.attrs, "output_mask": mask}
        ours = (x, w, None) if direction == "forward" else (g, x, w)
        in_rows = {"channels_last": [], "image_in_rows": [x], "all_but_gradient_in_rows": [x, w]}
        if layout in in_rows:
            self.attrs = self.attrs | {"layout": "channels_last"}
            stay = list(map(id, in_rows[layout]))
            ours = [t if t is None else t.movedim(1, -1) if id(t) in stay
                    else t.movedim(1, -1).contiguous() for t in ours]
        elif layout == "last_operands":
            ours = [t if t is None else last(t) for t in ours]
        self.operands = [t if t is None else array(t, dtype) for t in ours]

    @property
    def used(self):
        """The algorithm that is chosen."""
        return _C.algorithm_of(self.op, self.operands, self.attrs)

    def of(self, name):
        """What ``used`` says where ``name`` computes it."""
        if self.direction == "gradients":
            return name
        prefix = "" if self.direction == "forward" else f"{self.direction}="
        return prefix + name

    def is_by(self, name):
        if name in ("upcast", "reorder"):
            prefix = name if name == "upcast" else self.of(name)
            return self.direction != "gradients" and self.used.startswith(f"{prefix} ")
        return self.used == self.of(name)

    def check(self):
        found = _C.evaluate(self.op, self.operands, self.attrs, threads=2)
        if self.direction != "forward":
            found = [y for y, wanted in zip(found, DIRECTIONS[self.direction]) if wanted]
        eager, wide = of_pytorch(self.problem, self.direction, self.dtype)
        for y, narrow, reference in zip(found, eager, wide, strict=True):
            ours = torch.from_numpy(y)
            if self.dtype == "bf16":
                ours = torch.from_numpy(y.view(np.int16)).view(torch.bfloat16)
            if "layout" in self.attrs and ours.dim() > 2:
                ours = ours.movedim(-1, 1)
            helpers.check_op_sample(ours, narrow, reference, f"{self.problem} {self.direction}")


def check_all(name, problems, dtypes, layouts=LAYOUTS):
    """Runs an algorithm on all problems that it applies to; how many there were."""
    count = 0
    for one in problems:
        for direction in DIRECTIONS:
            for layout in layouts:
                for dtype in dtypes:
                    call = Call(one, direction, layout, dtype)
                    if call.is_by(name):
                        call.check()
                        count += 1
    return count


def has_unit(name):
    """Whether this processor has what an algorithm is for, and may use it."""
    with open("/proc/cpuinfo", encoding="utf-8") as text:
        least = "amx" if UNITS[name].startswith("amx") else "avx512"
        levels = _C.machine_isas()
        return UNITS[name] in text.read().split() \
            and least in levels[:levels.index(_C.isa()) + 1]


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_each_problem(isa, name, monkeypatch):
    monkeypatch.setenv("POPTORCH_ALGORITHM", f"conv:{name}")
    if name == "blocked_pointwise":
        pytest.skip("of packed_convolution: test_packed")
    count = check_all(name, PROBLEMS, DTYPES.get(name, ("f32",)))
    if count == 0 and name in UNITS and not has_unit(name):
        pytest.skip(f"no {UNITS[name]} here")
    assert count > 0


@pytest.mark.parametrize("one", SEEING_PADDING_ALONE, ids=str)
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", ["", "onednn", "onednn_joint"])
def test_nothing_but_padding(one, direction, name, monkeypatch):
    """Not even where another algorithm is asked for."""
    monkeypatch.setenv("POPTORCH_ALGORITHM", f"conv:{name}" if name else "")
    for dtype in ("f32", "f16", "bf16"):
        call = Call(one, direction, "channels_last", dtype)
        call.check()
        assert set(call.used.replace("=", " ").split()) - {"dw", "dx"} == {"no_products"}


@pytest.mark.parametrize("one", SEEING_PADDING_ALONE, ids=str)
@pytest.mark.parametrize("direction", ["forward", "dx", "dw"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_padding_is_multiplied_as_zeros_are(one, direction, number):
    """By numbers that are not finite it is NaN, as in eager; each operand has one by turns."""
    names = {"forward": ("x", "w"), "dx": ("g", "w"), "dw": ("g", "x")}[direction]
    for name in names:
        tensors = dict(zip("gxw", (t.clone() for t in operands_of(one, "f32"))))
        tensors[name].view(-1)[0] = number
        call = Call(one, direction, "channels_last")
        order = ("x", "w") if direction == "forward" else ("g", "x", "w")
        call.operands = [tensors[n].movedim(1, -1).contiguous().numpy() for n in order]
        call.operands += [None] * (direction == "forward")
        found = _C.evaluate(call.op, call.operands, call.attrs, threads=2)
        ours = torch.from_numpy(next(y for y in found if y.size)).movedim(-1, 1)
        expected, = one.run(direction, *(t.double() for t in tensors.values()))  # not by oneDNN
        torch.testing.assert_close(ours.double(), expected, equal_nan=True)


@pytest.mark.parametrize("name", ["direct_weight_gradient", "bf16_im2col", "im2col"])
@pytest.mark.parametrize("width", [7, 8])
def test_a_pixel_that_only_some_taps_see(name, width, monkeypatch):
    """An infinite one makes no other tap's gradient NaN, also where the last one of a line shares a
    word of two 16-bit numbers with it."""
    monkeypatch.setenv("POPTORCH_ALGORITHM", f"conv:{name}")
    one = problem((2, 32, 5, width), (12, 32, 3, 3))
    for dtype in DTYPES.get(name, ("f32",)):
        tensors = [t.clone() for t in operands_of(one, dtype)]
        tensors[1][..., -1] = torch.inf
        call = Call(one, "dw", "channels_last", dtype)
        call.operands = [array(t.movedim(1, -1).contiguous(), dtype) for t in tensors]
        if name == "bf16_im2col" and not call.is_by(name) and not has_unit(name):
            pytest.skip(f"no {UNITS[name]} here")
        found = _C.evaluate(call.op, call.operands, call.attrs, threads=2)[1]
        ours = torch.from_numpy(found if dtype == "f32" else found.view(np.int16))
        if dtype == "bf16":
            ours = ours.view(torch.bfloat16)
        expected, = one.run("dw", *(t.double() for t in tensors))
        assert expected[..., :2].isfinite().all() and not expected[..., 2].isfinite().any()
        torch.testing.assert_close(ours.movedim(-1, 1).double(), expected, rtol=2**-7, atol=0.25,
                                   equal_nan=True)


def test_random_problems(seed, monkeypatch):
    rng = random.Random(seed)
    problems = [drawn(rng) for _ in range(12)]
    for name in NAMES:
        monkeypatch.setenv("POPTORCH_ALGORITHM", f"conv:{name}")
        check_all(name, problems, ("f32", "bf16"), [*LAYOUTS[:2], *LAYOUTS[3:]])


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_products_of_16_bits(monkeypatch, dtype):
    monkeypatch.setenv("POPTORCH_ALGORITHM", "conv:pointwise")
    assert check_all("pointwise", PROBLEMS, (dtype,)) > 0


PACKED = [one for one in PROBLEMS
          if len(one.x) == 4 and one.groups == 1 and not one.transposed]


@pytest.mark.parametrize("is_packed", [True, False], ids=["packed", "as_they_lie"])
@pytest.mark.parametrize("name", NAMES)
def test_packed(isa, name, is_packed, monkeypatch):
    """pack_convolution and packed_convolution agree."""
    monkeypatch.setenv("POPTORCH_ALGORITHM", f"conv:{name}")
    monkeypatch.setenv("POPTORCH_GEMM", "loops")
    for one in PACKED:
        x, w, bias = torch.randn(one.x), torch.randn(one.w), torch.randn(one.w[0])
        geometry = {key: one.geometry[key] for key in ("stride", "padding", "dilation", "groups")}
        weight = w.numpy()
        if is_packed:
            packing = geometry | {"input_size": list(one.x)}
            packed_by = _C.algorithm_of("pack_convolution", [weight], packing)
            weight = _C.evaluate("pack_convolution", [weight], packing, threads=2)[0]
        attrs = geometry | {"weight_size": list(one.w), "activation": "silu"}
        operands = [x.movedim(1, -1).contiguous().numpy(), weight, bias.numpy()]
        used = _C.algorithm_of("packed_convolution", operands, attrs)
        assert not is_packed or packed_by == used
        if used != name:
            continue
        ours = torch.from_numpy(_C.evaluate("packed_convolution", operands, attrs, threads=2)[0])
        eager, wide = (torch.nn.functional.silu(torch.ops.aten.convolution(
            *tensors, *one.geometry.values()))
            for tensors in ((x, w, bias), (x.double(), w.double(), bias.double())))
        helpers.check_op_sample(ours.movedim(-1, 1), eager, wide, f"{one} by {name}")


def test_forced_where_it_applies_only(monkeypatch):
    """The first of several that applies; the ordinary choice where none does."""
    call = Call(PROBLEMS[0], "forward", "channels_last")
    strided = Call(PROBLEMS[5], "forward", "channels_last")
    ordinary = strided.used
    monkeypatch.setenv("POPTORCH_ALGORITHM", "conv:depthwise,conv:winograd,conv:onednn")
    assert (call.used, strided.used) == ("winograd", "onednn")
    monkeypatch.setenv("POPTORCH_ALGORITHM", "conv:depthwise")
    assert strided.used == ordinary


def test_switches_of_the_same_name_turn_algorithms_off(monkeypatch):
    call = Call(PROBLEMS[8], "forward", "channels_last")
    assert call.used == "depthwise"
    monkeypatch.setenv("POPTORCH_OFF", "depthwise")
    assert call.used == "onednn"


def test_gradients_by_one_call_or_by_several(monkeypatch):
    """One call where both would be PyTorch's; what is forced is computed by itself."""
    one = PROBLEMS[7]
    channels_last = Call(one, "gradients", "channels_last")
    assert channels_last.used == "onednn_joint"
    monkeypatch.setenv("POPTORCH_ALGORITHM", "conv:onednn")
    assert channels_last.used == "dw=onednn dx=onednn"
    monkeypatch.setenv("POPTORCH_ALGORITHM", "conv:im2col")
    rows = Call(one, "gradients", "rows")
    assert rows.used == "dw=im2col dx=onednn"
    rows.check()


@pytest.mark.parametrize("direction", ["forward", "dw"])
def test_copies_of_an_image_in_rows_are_our_own(direction):
    """PyTorch's take longer; what oneDNN computes of them is the same."""
    call = Call(PROBLEMS[7], direction, "image_in_rows")
    assert call.used == call.of("reorder onednn")
    call.check()

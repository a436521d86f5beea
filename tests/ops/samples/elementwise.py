"""Samples of the element-wise family."""

import torch

from tests.ops.sample import Bad, Sample, bools, integers, numbers, randn, scalar, uniform

INFINITY, NAN = float("inf"), float("nan")
LARGE = 70_000  # enough for several threads
ONE_TYPE = ("f32",)

# Values at the edges of common functions; each stays finite in f32 where it is in f64.
EDGES = (0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-30, -1e-30, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5)


def unary(op, values=lambda *sizes: randn(*sizes) * 3, attrs=None, **how):
    """Samples of a floating-point function: some shapes, many elements, edges."""
    attrs = attrs or {}
    return [
        Sample(op, lambda: [values(5, 7)], attrs, **how),
        Sample(op, lambda: [values(2, 3, 4, 37)], attrs, note="4d", **how),
        Sample(op, lambda: [values()], attrs, note="0d", **how),
        Sample(op, lambda: [values(0, 3)], attrs, note="empty", **how),
        Sample(op, lambda: [values(LARGE)], attrs, note="large", **how | {"dtypes": ONE_TYPE}),
        Sample(op, lambda: [numbers(*EDGES)], attrs, note="edges", **how),
    ]


def whole(op, low=-9, high=9, attrs=None, **how):
    """Samples of a function that takes integers too."""
    attrs = attrs or {}
    return [
        Sample(op, lambda dtype=dtype: [integers(low, high, 4, 33, dtype=dtype)], attrs,
               note=str(dtype).removeprefix("torch."), **how)
        for dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    ]


def positive(*sizes):
    return uniform(1e-3, 5.0, *sizes)


def within_one(*sizes):
    return uniform(-0.999, 0.999, *sizes)


def above_one(*sizes):
    return uniform(1.001, 20.0, *sizes)


UNARY = [
    *unary("neg"), *whole("neg"),
    *unary("abs"), *whole("abs"),
    *unary("sign"), *whole("sign"),
    *unary("exp"), *unary("exp2"), *unary("expm1"),
    *unary("log", positive), *unary("log2", positive), *unary("log10", positive),
    *unary("log1p", positive),
    *unary("sqrt", positive), *unary("rsqrt", positive), *unary("reciprocal", positive),
    *unary("sin"), *unary("cos"), *unary("tan", within_one),
    Sample("sin", lambda: [randn(100) * 1e5], note="large angles"),
    Sample("cos", lambda: [randn(100) * 1e5], note="large angles"),
    *unary("asin", within_one), *unary("acos", within_one), *unary("atan"),
    *unary("sinh"), *unary("cosh"), *unary("asinh"), *unary("acosh", above_one),
    *unary("atanh", within_one), *unary("tanh"), *unary("sigmoid"), *unary("erf"), *unary("erfc"),
    *unary("floor"), *whole("floor"), *unary("ceil"), *whole("ceil"),
    *unary("round"), *whole("round"), *unary("trunc"), *whole("trunc"), *unary("frac"),
    *whole("bitwise_not"), Sample("bitwise_not", lambda: [bools(40)], note="bool"),
    *unary("logical_not", lambda *sizes: torch.randint(-1, 2, sizes).float()),
    *whole("logical_not", -1, 2), Sample("logical_not", lambda: [bools(40)], note="bool"),
    *unary("isnan"), *whole("isnan"), *unary("isinf"), *whole("isinf"),
    *unary("isfinite"), *whole("isfinite"),
]

ACTIVATIONS = [
    *unary("relu"), *whole("relu"),
    *unary("gelu"), *unary("gelu", attrs={"approximate": "tanh"}),
    *unary("silu"), *unary("mish"),
    *unary("softplus"), *unary("softplus", attrs={"beta": 2.0, "threshold": 1.5}),
    *unary("elu"), *unary("elu", attrs={"alpha": 1.7, "scale": 1.05, "input_scale": 0.5}),
    *unary("leaky_relu"), *unary("leaky_relu", attrs={"negative_slope": 0.3}),
    *unary("hardtanh"), *unary("hardtanh", attrs={"min_val": 0.0, "max_val": 6.0}),
    *whole("hardtanh", attrs={"min_val": -3.0, "max_val": 4.0}),
    *unary("hardsigmoid"), *unary("hardswish"),
    *unary("threshold", attrs={"threshold": 0.5, "value": -2.0}),
    *whole("threshold", attrs={"threshold": 2.0, "value": -5.0}),
    *unary("clamp", attrs={"min": -1.0, "max": 0.5}), *unary("clamp", attrs={"min": 0.25}),
    *unary("clamp", attrs={"max": 0.25}),
    *whole("clamp", attrs={"min": -2.0, "max": 3.0}, reference=lambda x: x.clamp(-2, 3)),
]


def backward(op, attrs=None, saved=lambda *sizes: randn(*sizes) * 3, **how):
    """Samples of the gradient of an activation."""
    attrs = attrs or {}
    return [
        Sample(op, lambda: [randn(6, 21), saved(6, 21)], attrs, **how),
        Sample(op, lambda: [randn(LARGE), saved(LARGE)], attrs, note="large",
               **how | {"dtypes": ONE_TYPE}),
        Sample(op, lambda: [randn(6, 21), saved(6, 1).expand(6, 21)], attrs, note="row", **how),
        Sample(op, lambda: [torch.ones(9), numbers(*(0.0, 1.0, -1.0, 3.0, -3.0, 20.0, -20.0, 0.5,
                                                     NAN))], attrs, note="edges", **how),
    ]


def elu_backward(grad, x):
    return torch.ops.aten.elu_backward(grad, 1.7, 1.05, 0.5, False, x)


def elu_backward_of_result(grad, y):
    return torch.ops.aten.elu_backward(grad, 1.7, 1.05, 0.5, True, y)


ELU = {"alpha": 1.7, "scale": 1.05, "input_scale": 0.5}
BACKWARD = [
    *backward("threshold_backward", {"threshold": 0.0}),
    *backward("gelu_backward"), *backward("gelu_backward", {"approximate": "tanh"}),
    *backward("silu_backward"), *backward("mish_backward"),
    *backward("sigmoid_backward", saved=lambda *sizes: uniform(0.0, 1.0, *sizes)),
    *backward("tanh_backward", saved=within_one),
    *backward("elu_backward", {**ELU, "is_result": False}, reference=elu_backward),
    *backward("elu_backward", {**ELU, "is_result": True}, reference=elu_backward_of_result),
    *backward("leaky_relu_backward", {"negative_slope": 0.2, "self_is_result": False}),
    *backward("hardtanh_backward", {"min_val": -1.0, "max_val": 1.5}),
    *backward("hardsigmoid_backward"), *backward("hardswish_backward"),
    *backward("softplus_backward", {"beta": 2.0, "threshold": 1.5}),
]

# Sizes of the operands: equal, a row, a column, both, a scalar on either side, short rows.
PAIRS = {
    "equal": ((5, 33), (5, 33)), "row": ((5, 60), (60,)), "column": ((5, 60), (5, 1)),
    "cross": ((5, 1), (1, 60)), "left scalar": ((), (4, 21)), "right scalar": ((4, 21), ()),
    "middle": ((2, 3, 50), (2, 1, 50)), "channels": ((2, 3, 5, 5), (3, 1, 1)),
    "short rows": ((300, 3), (300, 1)), "empty": ((0, 4), (4,)),
}


def binary(op, left=randn, right=randn, attrs=None, pairs=PAIRS, **how):
    """Samples of a function of two operands, broadcast in all ways."""
    attrs = attrs or {}
    large = Sample(op, lambda: [left(7, LARGE // 7), right(LARGE // 7)], attrs, note="large",
                   **how | {"dtypes": ONE_TYPE})
    return [large] + [Sample(op, lambda a=a, b=b: [left(*a), right(*b)], attrs, note=note, **how)
                      for note, (a, b) in pairs.items()]


def whole_pairs(op, dtypes=(torch.int8, torch.int32, torch.int64), low=-9, high=9, attrs=None,
                right_low=None, **how):
    """Samples of a function of two integers; `right_low` keeps 0 out of divisors."""
    def right(dtype):
        values = integers(low, high, 4, 33, dtype=dtype)
        return values if right_low is None else values.abs().clamp(min=right_low) * (
            integers(0, 2, 4, 33, dtype=dtype) * 2 - 1)

    return [Sample(op, lambda dtype=dtype: [integers(low, high, 4, 33, dtype=dtype), right(dtype)],
                   attrs or {}, note=str(dtype).removeprefix("torch."), **how)
            for dtype in dtypes]


def bool_pair(op, **how):
    return Sample(op, lambda: [bools(5, 33), bools(33)], note="bool", **how)


def few(*sizes):
    """Numbers with many duplicates."""
    return torch.randint(-2, 3, sizes).float()


def whole_edges(op, attrs=None, **how):
    """Both signs and the smallest number, divided by both signs."""
    least = torch.iinfo(torch.int32).min
    return Sample(op, lambda: [numbers(7, -7, 7, -7, 0, least, least, dtype=torch.int32),
                               numbers(3, 3, -3, -3, 5, 1, 2, dtype=torch.int32)],
                  attrs or {}, note="signs", **how)


def float_edges(op, attrs=None, **how):
    left, right = torch.meshgrid(numbers(0.0, 1.0, -1.0, 5.5, -5.5, INFINITY, -INFINITY, NAN),
                                 numbers(1.0, -1.0, 2.0, -2.0, INFINITY, NAN), indexing="ij")
    return Sample(op, lambda: [left.contiguous(), right.contiguous()], attrs or {}, note="edges",
                  **how)


ARITHMETIC = [
    *binary("add"), *binary("add", attrs={"alpha": 2.5}), *whole_pairs("add"),
    *whole_pairs("add", attrs={"alpha": 3.0}, reference=lambda x, y: x + 3 * y),
    bool_pair("add"), float_edges("add"),
    *binary("sub"), *binary("sub", attrs={"alpha": 2.5}), *whole_pairs("sub"),
    *whole_pairs("sub", attrs={"alpha": 3.0}, reference=lambda x, y: x - 3 * y),
    *binary("mul"), *whole_pairs("mul"), bool_pair("mul"), float_edges("mul"),
    Sample("mul", lambda: [integers(-2**31, 2**31 - 1, 50), integers(-2**31, 2**31 - 1, 50)],
           note="wraps"),
    *binary("div", right=positive, attrs={"rounding_mode": None}),
    Sample("div", lambda: [numbers(1.0, -1.0, 0.0, INFINITY), numbers(0.0, 0.0, 0.0, INFINITY)],
           {"rounding_mode": None}, note="by zero"),
    *binary("minimum"), *whole_pairs("minimum"), bool_pair("minimum"), float_edges("minimum"),
    *binary("maximum"), *whole_pairs("maximum"), bool_pair("maximum"), float_edges("maximum"),
    *binary("atan2"), float_edges("atan2"),
    *binary("fmod", right=lambda *sizes: uniform(0.5, 2.0, *sizes)), float_edges("fmod"),
    *whole_pairs("fmod", right_low=1), whole_edges("fmod"),
    *binary("remainder", right=lambda *sizes: uniform(-2.0, -0.5, *sizes)),
    float_edges("remainder"), *whole_pairs("remainder", right_low=1), whole_edges("remainder"),
    *(Sample("div", lambda: [randn(5, 33) * 9, positive(5, 33) + 0.5], {"rounding_mode": mode})
      for mode in ("floor", "trunc")),
    *(float_edges("div", {"rounding_mode": mode}) for mode in ("floor", "trunc")),
    *(whole_edges("div", {"rounding_mode": mode}) for mode in ("floor", "trunc")),
    *(case for mode in ("floor", "trunc")
      for case in whole_pairs("div", attrs={"rounding_mode": mode}, right_low=1)),
]

POWERS = [
    *binary("pow", positive, randn, pairs={k: PAIRS[k] for k in ("equal", "row", "cross")}),
    *(Sample("pow", lambda y=y: [positive(5, 33), scalar(y)], note=f"by {y}")
      for y in (0.0, 0.5, -0.5, 1.0, -1.0, 2.0, 3.0, -2.0, 1.7)),
    Sample("pow", lambda: [randn(5, 33), scalar(2.0)], note="of negatives"),
    Sample("pow", lambda: [randn(5, 33), numbers(3.0)], note="by one number"),
    Sample("pow", lambda: [integers(-9, 9, 60), integers(0, 6, 60)], note="int"),
    Sample("pow", lambda: [numbers(1, -1, -1, 2, 0, dtype=torch.int32),
                           numbers(-3, -2, -3, -1, 0, dtype=torch.int32)],
           note="negative"),
]

LOGIC = [
    *(case for op in ("eq", "ne", "lt", "le", "gt", "ge")
      for case in (*binary(op, few, few), *whole_pairs(op, low=-2, high=3), bool_pair(op),
                   float_edges(op))),
    *(case for op in ("logical_and", "logical_or", "logical_xor")
      for case in (*binary(op, few, few), *whole_pairs(op, low=-1, high=2), bool_pair(op))),
    *(case for op in ("bitwise_and", "bitwise_or", "bitwise_xor")
      for case in (*whole_pairs(op, low=-100, high=100), bool_pair(op))),
]


def mover(op, reference, make, sizes):
    """Samples of data movement in all kinds of dtypes."""
    return [Sample(op, lambda make=make, m=m: m(make), reference=reference, note=note)
            for note, m in sizes.items()]


WHERE = [
    Sample("where", lambda: [bools(5, 33), randn(5, 33), randn(5, 33)]),
    Sample("where", lambda: [bools(5, 33), scalar(0.0), randn(5, 33)], note="left scalar"),
    Sample("where", lambda: [bools(5, 33), randn(5, 33), scalar(-INFINITY)], note="right scalar"),
    Sample("where", lambda: [bools(33), randn(5, 1), randn(5, 33)], note="broadcast"),
    Sample("where", lambda: [bools(2, 1, 60, 60), randn(2, 4, 60, 60), scalar(NAN)], note="mask"),
    Sample("where", lambda: [bools(LARGE), randn(LARGE), randn(LARGE)], note="large",
           dtypes=ONE_TYPE),
    *(Sample("where", lambda dtype=dtype: [bools(40), integers(0, 9, 40, dtype=dtype),
                                           integers(0, 9, 40, dtype=dtype)], note=str(dtype))
      for dtype in (torch.bool, torch.int16, torch.int32, torch.int64)),
    Sample("masked_fill", lambda: [randn(5, 33), bools(5, 33), scalar(-INFINITY)]),
    Sample("masked_fill", lambda: [randn(2, 4, 6, 6), bools(6, 6), scalar(0.0)], note="mask"),
    Sample("masked_fill", lambda: [randn(3), bools(4, 3), scalar(1.0)], note="grows",
           reference=lambda x, mask, value: torch.where(mask, value, x)),
    Sample("masked_fill", lambda: [integers(-9, 9, 40), bools(40), scalar(7, torch.int32)],
           note="int"),
    Sample("clone", lambda: [randn(3, 4, 5)]),
    Sample("clone", lambda: [integers(-9, 9, 60)], note="int"),
    Sample("clone", lambda: [bools(60)], note="bool"),
    Sample("clone", lambda: [randn(0, 3)], note="empty"),
]

ALL_TYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
             torch.float16, torch.bfloat16, torch.float32, torch.float64)


def cast(make, source, target, note=""):
    return Sample("cast", lambda: [make().to(source)], {"dtype": target}, dtypes=ONE_TYPE,
                  reference=lambda x: x.to(source).to(target),
                  note=f"from {str(source).removeprefix('torch.')}{note}")


CASTS = [
    *(cast(lambda: uniform(0.0, 100.0, 5, 67), source, target)
      for source in ALL_TYPES for target in ALL_TYPES if source is not torch.float64),
    *(cast(lambda: torch.rand(5, 67, dtype=torch.float64) * 100, torch.float64, target)
      for target in ALL_TYPES),
    *(cast(lambda: integers(-2**31, 2**31 - 1, 60), torch.int32, target, " wraps")
      for target in (torch.int8, torch.uint8, torch.int16)),
    *(cast(lambda: numbers(INFINITY, -INFINITY, NAN, 0.0, 65504.0, 65520.0, 1e-7, 6e-8, 2e-8, 1e38,
                           -1e-40, 1.0009765, 1.0029297), torch.float32, target, " edges")
      for target in (torch.float16, torch.bfloat16, torch.float64, torch.bool)),
]

LIMITS = (2**63 - 1, -2**63, 2**31 - 1, -2**31, 0, 7)
NARROWING = [
    Sample("narrowing_cast",
           lambda sizes=sizes: [integers(-2**31, 2**31 - 1, *sizes, dtype=torch.int64)],
           dtypes=ONE_TYPE, reference=lambda x: x.int(), note=str(sizes))
    for sizes in ((4, 33), (), (0, 3), (LARGE,))
] + [
    Sample("narrowing_cast", lambda: [numbers(*LIMITS, dtype=torch.int64)], dtypes=ONE_TYPE,
           reference=lambda x: x.clamp(-2**31, 2**31 - 1).int(), note="limits"),
]

MADE = [
    Sample("full", lambda: [], {"size": [3, 50], "dtype": torch.float32, "fill_value": 2.5}),
    Sample("full", lambda: [], {"size": [300, 500], "dtype": torch.float32, "fill_value": -1e9}),
    Sample("full", lambda: [], {"size": [], "dtype": torch.int32, "fill_value": -7}),
    Sample("full", lambda: [], {"size": [4], "dtype": torch.int64, "fill_value": 2**53 + 1}),
    Sample("full", lambda: [], {"size": [0, 4], "dtype": torch.float32, "fill_value": 1.0}),
    Sample("full", lambda: [], {"size": [9], "dtype": torch.bool, "fill_value": True}),
    Sample("arange", lambda: [], {"end": 10, "dtype": torch.int32, "start": 0, "step": 1}),
    Sample("arange", lambda: [], {"start": 5, "end": -8, "step": -3, "dtype": torch.int64}),
    Sample("arange", lambda: [], {"start": 0.5, "end": 9.0, "step": 0.3, "dtype": torch.float32}),
    Sample("arange", lambda: [], {"start": 0, "end": 70000, "step": 1, "dtype": torch.float32},
           dtypes=("f32", "f64")),
]

SAMPLES = [*UNARY, *ACTIVATIONS, *BACKWARD, *ARITHMETIC, *POWERS, *LOGIC, *WHERE, *CASTS,
           *NARROWING, *MADE]

BADS = [
    Bad("exp", lambda: [integers(0, 9, 3)], words="takes floating-point tensors"),
    Bad("neg", lambda: [bools(3)], words="takes tensors of numbers"),
    Bad("bitwise_and", lambda: [randn(3), randn(3)], words="takes tensors of integers or bools"),
    Bad("add", lambda: [randn(3), randn(4)], words="sizes do not broadcast"),
    Bad("add", lambda: [randn(3), integers(0, 9, 3)], words="dtypes differ"),
    Bad("add", lambda: [randn(3)], words='operand "other" (number 1) is missing'),
    Bad("add", lambda: [randn(3), randn(3)], {"beta": 1.0}, words='has no attribute "beta"'),
    Bad("div", lambda: [randn(3), randn(3)], {"rounding_mode": "up"}, words='"up"'),
    Bad("div", lambda: [integers(0, 9, 3), integers(1, 9, 3)], words="floating-point tensors"),
    *(Bad(op, lambda: [integers(0, 9, 3), numbers(1, 0, 2, dtype=torch.int32)], attrs,
          words="integer division by zero")
      for op, attrs in (("div", {"rounding_mode": "floor"}), ("fmod", {}), ("remainder", {}))),
    Bad("gelu", lambda: [randn(3)], {"approximate": "erf"}, words='approximate is "erf"'),
    Bad("threshold", lambda: [randn(3)], {"value": 1.0}, words='"threshold" is missing'),
    Bad("where", lambda: [randn(3), randn(3), randn(3)], words="a condition is bool"),
    Bad("where", lambda: [bools(3), randn(3), integers(0, 9, 3)], words="dtypes differ"),
    Bad("masked_fill", lambda: [randn(3), randn(3), scalar(0.0)], words="a condition is bool"),
    Bad("masked_fill", lambda: [randn(3), bools(3), randn(3)], words="must be one number"),
    Bad("cast", lambda: [randn(3)], words='"dtype" is missing'),
    Bad("narrowing_cast", lambda: [numbers(7, 2**31, 2**40, dtype=torch.int64)],
        words="value 2147483648 does not fit into int32 (-2147483648 to 2147483647)"),
    Bad("narrowing_cast", lambda: [integers(0, 9, 3)], words="must be i64"),
    Bad("full", lambda: [], {"size": [-1], "dtype": torch.float32, "fill_value": 0.0},
        words="holds -1"),
    Bad("full", lambda: [], {"size": [1], "dtype": torch.float32, "fill_value": "x"},
        words="Give a number"),
    Bad("arange", lambda: [], {"start": 0, "end": 5, "step": 0, "dtype": torch.int32},
        words="never arrives"),
    Bad("arange", lambda: [], {"start": 0, "end": 5, "step": -1, "dtype": torch.int32},
        words="never arrives"),
]

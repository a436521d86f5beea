"""FLOPs and bytes by the rows of the op table."""

import math

import pytest
import torch

from poptorch import _C
from poptorch.errors import Error
from tests.helpers import Cases
from tests.ops.sample import NAMES, ROWS, infer, to_attrs
from tests.ops.test_ops import SAMPLES

UNKNOWN = {"aten", "custom", "host_call"}  # code that no row describes
ITEM_BYTES = {"bool": 1, "u8": 1, "i8": 1, "i32": 4, "i64": 8, "f32": 4, "f64": 8}


def type_of(x):
    return None if x is None else (NAMES[x.dtype], list(x.shape))


def all_bytes(types):
    return sum(ITEM_BYTES.get(name, 2) * math.prod(sizes)
               for name, sizes in filter(None, types))


def check_work(sample, seed):
    torch.manual_seed(seed)
    operands = sample.inputs(1) if sample.is_packed else sample.inputs()
    types, results = [type_of(x) for x in operands], infer(sample, operands)
    flops, touched = _C.work(sample.op, types, to_attrs(sample.attrs))
    assert flops == int(flops) >= 0 and touched == int(touched) >= 0
    # An update reads what it changes, and writes it.
    assert touched <= 2 * (all_bytes(types) + all_bytes(results))
    if not any(name.startswith(("f", "bf")) for name, _ in filter(None, [*types, *results])):
        assert flops == 0


def test_every_sample_has_work(seed):
    with Cases() as cases:
        for sample in SAMPLES:
            with cases.case(sample.id):
                check_work(sample, seed)


def test_only_these_rows_do_not_know_their_flops():
    assert {name for name, row in ROWS.items() if not row["counts_flops"]} == UNKNOWN
    flops, touched = _C.work("aten", [("f32", [3])], {"overload": "aten::erfinv", "args": ["%0"]},
                             [("f32", [3])])
    assert (flops, touched) == (None, 24)


def f32(*sizes):
    return "f32", list(sizes)


def i32(*sizes):
    return "i32", list(sizes)


CONVOLUTION = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "transposed": False,
               "output_padding": [0, 0], "groups": 1}
GROUPED = CONVOLUTION | {"groups": 2}
TRANSPOSED = CONVOLUTION | {"transposed": True, "stride": [2, 2]}
LSTM = [f32(5, 2, 3), f32(2, 4), f32(2, 4), f32(16, 3), f32(16, 4)]
EVERY = [True, True, True]
IMAGE = [f32(1, 2, 6, 6), f32(4, 2, 3, 3)]  # and weights: 4 results of 4 by 4
FUSED = {"body": [["mul", 0, 1], ["cast", 2, "dtype", _C.DType("f16")]], "out": [3]}

# Op, operands, attributes, FLOPs, bytes.
EXACT = [
    ("exp", [f32(6)], {}, 6, 48),
    ("add", [f32(4, 3), f32(3)], {}, 12, 4 * (12 + 3 + 12)),
    ("add", [i32(4), i32(4)], {}, 0, 48),
    ("lt", [f32(4), f32(4)], {}, 4, 36),
    ("where", [("bool", [4]), f32(4), f32(4)], {}, 0, 52),
    ("cast", [f32(4)], {"dtype": _C.DType("f16")}, 0, 24),
    ("fused", [f32(8), f32(8)], FUSED, 8, 32 + 32 + 16),
    ("full", [], {"size": [5], "dtype": _C.DType("f32"), "fill_value": 1.0}, 0, 20),
    ("matmul", [f32(2, 3), f32(3, 4)], {}, 48, 4 * (6 + 12 + 8)),
    ("matmul", [f32(5, 2, 3), f32(3, 4)], {}, 240, 4 * (30 + 12 + 40)),
    ("matmul", [i32(2, 3), i32(3, 4)], {}, 0, 4 * (6 + 12 + 8)),
    ("addmm", [f32(4), f32(2, 3), f32(3, 4)], {}, 48, 4 * (4 + 6 + 12 + 8)),
    ("convolution", IMAGE, CONVOLUTION, 2 * 64 * 18, 4 * (72 + 72 + 64)),
    ("convolution", [f32(1, 4, 6, 6), f32(4, 2, 3, 3)], GROUPED, 2 * 64 * 18,
     4 * (144 + 72 + 64)),
    ("convolution", [f32(1, 4, 3, 3), f32(4, 2, 2, 2)], TRANSPOSED, 2 * 36 * 8,
     4 * (36 + 32 + 72)),
    ("convolution_backward", [f32(1, 4, 4, 4), *IMAGE], CONVOLUTION | {"output_mask": EVERY},
     2 * 2 * 64 * 18, 4 * (64 + 72 + 72 + 72 + 72 + 4)),
    ("convolution_backward", [f32(1, 4, 4, 4), *IMAGE],
     CONVOLUTION | {"output_mask": [False, True, False]}, 2 * 64 * 18, 4 * (64 + 72 + 72)),
    ("attention", [f32(2, 3, 5, 4), f32(2, 3, 7, 4), f32(2, 3, 7, 6)], {"scale": 0.5},
     2 * 6 * 5 * 7 * (4 + 6), 4 * (120 + 168 + 252 + 180 + 30)),
    ("lstm", LSTM, {"reverse": False}, 2 * 10 * 16 * 7, 4 * (30 + 16 + 112 + 40 + 16 + 200)),
    ("sum", [f32(4, 5)], {"dim": [1]}, 20, 96),
    ("var", [f32(4, 5)], {"dim": [1]}, 80, 96),
    ("argmax", [f32(4, 5)], {"dim": 1}, 20, 96),
    ("_softmax", [f32(4, 5)], {"dim": 1}, 100, 160),
    ("native_layer_norm", [f32(4, 5), f32(5), f32(5)], {"normalized_shape": [5]}, 160,
     4 * (20 + 5 + 5 + 20 + 4 + 4)),
    ("batch_norm_inference", [f32(4, 5), None, None, f32(5), f32(5)], {}, 40,
     4 * (20 + 10 + 20)),
    ("max_pool2d", [f32(1, 1, 4, 4)], {"kernel_size": [2, 2]}, 16, 4 * (16 + 4 + 4)),
    ("adaptive_avg_pool2d", [f32(1, 1, 3, 4)], {"output_size": [2, 2]}, 4 * 4, 4 * (12 + 4)),
    ("upsample_bilinear2d", [f32(1, 1, 2, 2)], {"output_size": [3, 3]}, 72, 4 * (4 + 9)),
    ("mse_loss", [f32(4), f32(4)], {}, 8, 36),
    ("mse_loss", [f32(4), f32(4)], {"reduction": 0}, 4, 48),
    ("nll_loss", [f32(4, 9), i32(4)], {}, 8, 4 * (4 + 4 + 1 + 1)),
    ("nll_loss_backward", [f32(), f32(4, 9), i32(4), None, f32()], {}, 4, 4 * (1 + 4 + 1 + 36)),
    ("sgd_update", [f32(6), f32(6), None, f32(), f32(4)], {}, 24, 4 * (6 + 6 + 1 + 4 + 6)),
    ("adam_update", [f32(6), f32(6), f32(6), f32(6), None, f32(), f32(5)], {}, 90,
     4 * (24 + 1 + 5 + 18)),
    # What looks at its operand touches nothing.
    ("reshape", [f32(2, 3)], {"size": [6]}, 0, 0),
    ("expand", [f32(1, 3)], {"size": [9, 3]}, 0, 0),
    ("cat", [f32(2, 3), f32(1, 3)], {"dim": 0}, 0, 72),
    # A look-up reads what it takes, and no entry twice.
    ("embedding", [f32(1000, 8), i32(4)], {}, 0, 4 * (32 + 4 + 32)),
    ("embedding", [f32(2, 8), i32(40)], {}, 0, 4 * (16 + 40 + 320)),
    ("gather", [f32(100, 3), i32(2, 3)], {"dim": 0}, 0, 4 * (6 + 6 + 6)),
    ("index", [f32(100, 3), i32(2)], {}, 0, 4 * (6 + 2 + 6)),
    ("dynamic_slice", [f32(100, 3), i32(1)], {"dim": 0, "size": 2}, 0, 4 * (6 + 1 + 6)),
    # An update touches what it changes.
    ("slice_scatter", [f32(100, 3), f32(2, 3)], {"dim": 0, "start": 0, "end": 2}, 0, 48),
    ("dynamic_update", [f32(100, 3), f32(2, 3), i32(1)], {"dim": 0, "size": 2}, 0, 52),
    ("index_put", [f32(100, 3), f32(2, 3), i32(2)], {}, 0, 4 * (6 + 6 + 2)),
    ("index_put", [f32(100, 3), f32(2, 3), i32(2)], {"accumulate": True}, 6, 4 * (6 + 12 + 2)),
    ("index_put", [f32(2, 3), f32(9, 3), i32(9)], {}, 0, 4 * (27 + 6 + 9)),
    ("scatter_add", [f32(100, 3), i32(2, 3), f32(2, 3)], {"dim": 0}, 6, 4 * (6 + 12 + 6)),
    ("embedding_backward", [f32(4, 8), i32(4)], {"num_weights": 10}, 32, 4 * (32 + 4 + 80)),
    ("embedding_backward", [f32(4, 8), i32(4), f32(10, 8)], {"num_weights": 10}, 32,
     4 * (32 + 4 + 64)),
    ("sort", [f32(3, 8)], {}, 72, 4 * (24 + 24 + 24)),
    ("topk", [f32(3, 8)], {"k": 2}, 24, 4 * (24 + 6 + 6)),
    ("random_normal", [i32(4)], {"size": [6], "dtype": _C.DType("f32"), "salt": 0}, 6, 40),
]


def test_exact_work():
    with Cases() as cases:
        for op, operands, attrs, flops, touched in EXACT:
            with cases.case(op, operands, attrs):
                assert _C.work(op, operands, attrs) == (flops, touched)


def test_images_with_channels_last_have_the_same_work():
    first = _C.work("convolution", IMAGE, CONVOLUTION)
    last = [f32(1, 6, 6, 2), f32(4, 3, 3, 2)]
    assert _C.work("convolution", last, CONVOLUTION | {"layout": "channels_last"}) == first


def test_the_types_must_fit():
    with pytest.raises(Error, match="inner dimensions differ"):
        _C.work("matmul", [f32(2, 3), f32(4, 5)])

"""Samples of the shape family: data movement, exact in every dtype."""

import torch

from tests.ops.sample import Bad, Sample, bools, integers, randn

SIZES = (torch.bool, torch.int16, torch.int64)  # of items: 1, 2 and 8 bytes; floats have 4
LAST = 2**63 - 1  # how torch writes "to the end"


def movement(op, sizes, attrs, reference):
    """One call for each size of items; ``reference`` takes the tensor."""
    return [
        *plain(op, sizes, attrs, reference),
        *(Sample(op, lambda dtype=dtype: [integers(0, 100, *sizes).to(dtype)], attrs, reference,
                 note=str(dtype).removeprefix("torch.") + f"{list(sizes)}") for dtype in SIZES),
    ]


def plain(op, sizes, attrs, reference):
    """One call in floating-point dtypes."""
    return [Sample(op, lambda: [randn(*sizes)], attrs, reference,
                   dtypes=("f32", "f16"), note=f"{list(sizes)}")]


def some(op, sizes, *how):
    """All sizes of items for one shape, floats for the others."""
    return movement(op, sizes, *how) if sizes in ((4, 6), (3, 4, 5), (4, 7)) else plain(
        op, sizes, *how)


def reshapes():
    for make, sizes, new in ((movement, (4, 6), [3, -1]), (plain, (2, 3, 4), [24]),
                             (plain, (1,), []), (plain, (), [1, 1]), (plain, (0, 3), [3, 0]),
                             (plain, (40, 50, 60), [2000, 60])):
        yield from make("reshape", sizes, {"size": new}, lambda x, new=new: x.reshape(new))


def bitcasts():
    for sizes, source, target in (((3, 4), torch.int32, torch.int16), ((6, 72), torch.int16,
                                  torch.int64), ((5,), torch.uint8, torch.bool),
                                  ((), torch.int64, torch.float64), ((2, 8), torch.int32,
                                  torch.float16),
                                  ((300, 200), torch.int32, torch.uint8)):
        yield Sample("bitcast", lambda s=sizes, t=source: [integers(0, 2, *s).to(t)],
                     {"dtype": target}, lambda x, t=target: x.view(t), dtypes=("f64",),
                     note=f"{source} to {target}")
    yield Sample("bitcast", lambda: [randn(4, 6)], {"dtype": torch.int32},
                 lambda x: x.to(torch.float32).view(torch.int32), dtypes=("f32",))


def permutes():
    cases = (((5, 7), [1, 0]), ((3, 5, 7), [2, 0, 1]), ((2, 3, 4, 5), [0, 2, -1, 1]),
             ((64, 48), [1, 0]), ((33, 65, 17), [2, 1, 0]), ((8, 16, 16, 3), [0, 3, 1, 2]),
             ((2, 16, 12, 64), [0, 2, 1, 3]), ((300, 200), [1, 0]), ((0, 4), [1, 0]), ((), []),
             ((7, 1, 9, 2), [3, 1, 0, 2]))
    for sizes, dims in cases:
        make = movement if len(sizes) == 4 or sizes == (64, 48) else plain
        yield from make("permute", sizes, {"dims": dims},
                        lambda x, dims=dims: x.permute(dims).contiguous())


def expands():
    for sizes, new in (((3, 1), [3, 5]), ((4, 6), [2, 4, 6]), ((5, 1, 2), [-1, 70, -1]),
                       ((1,), [0]), ((), [3, 2]), ((1, 768), [40, 768])):
        yield from some("expand", sizes, {"size": new},
                            lambda x, new=new: x.expand(new).contiguous())


def slices():
    cases = (((4, 6), 1, 1, 5, 2), ((5, 6), -2, -3, -1, 1), ((7, 8, 9), 1, 2, LAST, 3),
             ((4,), 0, 3, 1, 1), ((6, 200), 0, 1, 4, 1), ((5, 6), 1, None, None, 1),
             ((3, 0), 1, 0, 2, 1), ((40, 30, 20), 2, -100, 7, 2))
    for sizes, dim, start, end, step in cases:
        attrs = {"dim": dim, "start": start, "end": end, "step": step}
        yield from some(
            "slice", sizes, attrs,
            lambda x, a=(dim, start, end, step): torch.ops.aten.slice(x, *a).contiguous())
        sliced = torch.ops.aten.slice(torch.zeros(sizes), dim, start, end, step).shape
        yield Sample("slice_scatter", lambda s=sizes, p=sliced: [randn(*s), randn(*p)], attrs)
        backward = {**attrs, "start": start or 0, "end": LAST if end is None else end}
        yield Sample("slice_backward", lambda p=sliced: [randn(*p)],
                     {"input_sizes": list(sizes), **backward})


def diagonals():
    for sizes, offset, dim1, dim2 in (((4, 6), 0, 0, 1), ((4, 6), 2, 0, 1), ((4, 6), -3, 0, 1),
                                      ((3, 5, 7), 1, -1, 0), ((2, 3, 4, 5), 0, 1, 3),
                                      ((3, 3), 5, 0, 1)):
        attrs = {"offset": offset, "dim1": dim1, "dim2": dim2}
        yield from some("diagonal", sizes, attrs,
                            lambda x, a=attrs: torch.diagonal(x, **a).contiguous())
        part = torch.diagonal(torch.zeros(sizes), **attrs).shape
        yield Sample("diagonal_scatter", lambda s=sizes, p=part: [randn(*s), randn(*p)], attrs)
        yield Sample("diagonal_backward", lambda p=part: [randn(*p)],
                     {"input_sizes": list(sizes), **attrs})


def bool_scatter():
    attrs = {"dim": 1, "start": 1, "step": 2}
    return Sample("slice_scatter", lambda: [bools(4, 6), bools(4, 3)], attrs, note="bool")


def joined(*sizes, dim=0, make=randn):
    return Sample("cat", lambda: [make(*s) for s in sizes], {"dim": dim},
                  lambda *tensors: torch.cat(tensors, dim), note=f"{make.__name__}{sizes}")


def pads():
    for sizes, pad, value in (((4, 5), [1, 2], 0.5), ((4, 6), [0, 0, 2, 1], 0.0),
                              ((3, 4, 5), [1, -1, -2, 2], 7.0), ((2, 3, 8, 8), [1, 1, 1, 1], 0.0),
                              ((5,), [-2, -3], 1.0), ((0, 3), [1, 1, 1, 1], 2.0),
                              ((20, 30, 40), [3, 3, 3, 3, 3, 3], -1.0), ((4, 5), [], 1.0)):
        yield from some("constant_pad_nd", sizes, {"pad": pad, "value": value},
                            lambda x, p=pad, v=value: torch.constant_pad_nd(x, p, v))


def turned():
    for sizes, dims in (((5,), [0]), ((4, 6), [1]), ((4, 6), [0, -1]), ((2, 3, 4), [0, 2]),
                        ((3, 4), []), ((0, 2), [0]), ((50, 40, 30), [1])):
        yield from some("flip", sizes, {"dims": dims}, lambda x, d=dims: x.flip(d))
    for sizes, shifts, dims in (((5,), [2], [0]), ((4, 6), [-1], [1]), ((4, 6), [1, 2], [0, 1]),
                                ((4, 6), [9], []), ((3, 4, 5), [1, -7, 2], [2, 0, 2]),
                                ((0, 2), [1], [0]), ((50, 40, 30), [17, 3], [1, 0])):
        yield from some("roll", sizes, {"shifts": shifts, "dims": dims},
                            lambda x, s=shifts, d=dims: x.roll(s, d))
    for sizes, repeats in (((3,), [2]), ((2, 3), [1, 2]), ((3, 4, 5), [2, 1, 3]), ((2,), [0]),
                           ((), [4]), ((30, 40), [5, 6])):
        yield from some("repeat", sizes, {"repeats": repeats}, lambda x, r=repeats: x.repeat(r))


def triangles():
    for op in ("tril", "triu"):
        for sizes, diagonal in (((5, 5), 0), ((4, 7), 2), ((7, 4), -3), ((2, 3, 6, 6), 1),
                                ((5, 5), 9), ((5, 5), -9), ((3, 0), 0), ((12, 128, 128), 0)):
            yield from some(op, sizes, {"diagonal": diagonal},
                                lambda x, op=op, d=diagonal: getattr(torch, op)(x, d))


SAMPLES = [
    *(sample for sizes in ((4, 6), (2, 3, 4, 5), (), (0, 2), (70, 80))
      for op in ("contiguous", "nop")
      for sample in some(op, sizes, {}, lambda x: x.contiguous())),
    bool_scatter(), *reshapes(), *bitcasts(), *permutes(), *expands(), *slices(), *diagonals(),
    *pads(),
    *turned(), *triangles(),
    joined((3, 4), (2, 4)),
    joined((3, 4), (3, 1), (3, 2), dim=-1),
    joined((2, 3, 4), (2, 5, 4), dim=1),
    joined((2, 3), (0,), (1, 3)),
    joined((0,), (0,)),
    joined((3, 0), (3, 2), dim=1),
    joined((40, 512), (40, 512), (40, 512), dim=1),
    joined((3, 4), (2, 4), make=bools),
]

BADS = [
    Bad("reshape", lambda: [randn(3, 4)], {"size": [5, -1]}, "f32[3,4] has 12 elements"),
    Bad("reshape", lambda: [randn(3, 4)], {"size": [-1, -1]}, "at most one may be -1"),
    Bad("bitcast", lambda: [randn(3, 3)], {"dtype": torch.float64},
        "the last dimension of f32[3,3] has 12 bytes, an element of f64 has 8"),
    Bad("bitcast", lambda: [randn()], {"dtype": torch.int16}, "f32[] has 4 bytes"),
    Bad("permute", lambda: [randn(3, 4)], {"dims": [0, 0]}, "dimension 0 is named twice"),
    Bad("permute", lambda: [randn(3, 4)], {"dims": [0]}, "1 dimensions are named, f32[3,4] has 2"),
    Bad("permute", lambda: [randn(3, 4)], {"dims": [0, 2]}, "dimension 2 is out of range"),
    Bad("expand", lambda: [randn(3, 4)], {"size": [3, 5]}, "cannot grow from 4 to 5"),
    Bad("expand", lambda: [randn(3, 4)], {"size": [4]}, "f32[3,4] has 2 dimensions"),
    Bad("slice", lambda: [randn(3)], {"step": 0}, "the step is 0"),
    Bad("slice", lambda: [randn()], {}, "a tensor without dimensions cannot be sliced"),
    Bad("slice_scatter", lambda: [randn(4), randn(3)], {"end": 2}, "has the sizes [2]"),
    Bad("slice_scatter", lambda: [randn(4), integers(0, 2, 4)], {}, "differ in dtype"),
    Bad("slice_backward", lambda: [randn(4)], {"input_sizes": [3]}, "the sizes [3] were expected"),
    Bad("diagonal", lambda: [randn(4)], {}, "a diagonal needs 2 dimensions"),
    Bad("diagonal", lambda: [randn(4, 4)], {"dim1": 1, "dim2": -1}, "dim1 and dim2 are both 1"),
    Bad("diagonal_scatter", lambda: [randn(4, 4), randn(3)], {}, "has the sizes [4]"),
    Bad("diagonal_backward", lambda: [randn(3)], {"input_sizes": [4, 4]}, "sizes [4] were"),
    Bad("cat", lambda: [], {}, "there are no tensors"),
    Bad("cat", lambda: [randn(2, 3), randn(2, 4)], {}, "tensor 0 is f32[2,3], tensor 1 is"),
    Bad("cat", lambda: [randn(2), integers(0, 2, 2)], {}, "differ in dtype: f32[2] and i32[2]"),
    Bad("cat", lambda: [randn(), randn()], {}, "tensors without dimensions"),
    Bad("constant_pad_nd", lambda: [randn(3)], {"pad": [1]}, "pad has 1 numbers"),
    Bad("constant_pad_nd", lambda: [randn(3)], {"pad": [-2, -2]}, "would get the size -1"),
    Bad("flip", lambda: [randn(3, 4)], {"dims": [1, -1]}, "dimension 1 is named twice"),
    Bad("roll", lambda: [randn(3, 4)], {"shifts": [1, 2], "dims": [0]}, "2 shifts for 1"),
    Bad("repeat", lambda: [randn(3, 4)], {"repeats": [2]}, "1 repeats for f32[3,4]"),
    Bad("repeat", lambda: [randn(3)], {"repeats": [-1]}, "repeat 0 is -1"),
    Bad("tril", lambda: [randn(3)], {}, "f32[3] has 1 dimensions"),
    Bad("triu", lambda: [randn(3)], {}, "f32[3] has 1 dimensions"),
]

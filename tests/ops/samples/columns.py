"""Samples of sliding blocks: images to columns, and back."""

import itertools

import torch

from tests.ops.sample import Bad, Sample, integers, randn

aten = torch.ops.aten
TWO_TYPES = ("f32", "f64")  # 16-bit floats are upcast before the same loops
IMAGES = ((2, 3, 9, 11), (3, 8, 8), (1, 1, 20, 35))
# Kernel, dilation, padding, stride: with blocks that overlap, touch and lie apart.
BLOCKS = (([2, 2], [1, 1], [0, 0], [2, 2]), ([3, 3], [1, 1], [1, 1], [1, 1]),
          ([3, 2], [2, 1], [1, 3], [1, 3]), ([1, 1], [1, 1], [0, 0], [1, 1]),
          ([4, 1], [1, 3], [5, 2], [3, 2]), ([2, 5], [1, 1], [0, 7], [4, 1]))


def samples():
    for sizes, (kernel, dilation, padding, stride) in itertools.product(IMAGES, BLOCKS):
        attrs = {"kernel_size": kernel, "dilation": dilation, "padding": padding,
                 "stride": stride}
        yield Sample("im2col", lambda s=sizes: [randn(*s)], attrs, note=f"{list(sizes)}")

        def columns(sizes=sizes, attrs=attrs, make=randn):
            return [make(*aten.im2col(torch.zeros(sizes), **attrs).shape)]

        back = {"output_size": list(sizes[-2:]), **attrs}
        yield Sample("col2im", columns, back, dtypes=TWO_TYPES, note=f"{list(sizes)}")
        if len(sizes) == 3:
            def whole(*sizes):
                return integers(-9, 9, *sizes)

            yield Sample("im2col", lambda s=sizes, m=whole: [m(*s)], attrs,
                         lambda x, a=attrs: aten.im2col(x.double(), **a).int(), note="integers")
            yield Sample("col2im", lambda f=columns, m=whole: f(make=m), back,
                         lambda x, a=back: aten.col2im(x.double(), **a).int(), note="integers")
    yield Sample("im2col", lambda: [randn(2, 16, 40, 40)],
                 {"kernel_size": [3, 3], "dilation": [1, 1], "padding": [1, 1], "stride": [1, 1]},
                 note="large")


SAMPLES = [*samples()]

BADS = [
    Bad("im2col", lambda: [randn(5, 5)], {"kernel_size": [2, 2]}, "the image is f32[5,5]"),
    Bad("im2col", lambda: [randn(1, 5, 5)], {"kernel_size": [7, 2]},
        "the height 5 with padding 0 is smaller than the block of 7"),
    Bad("im2col", lambda: [randn(1, 5, 5)], {"kernel_size": [2, 2], "stride": [1, 0]},
        "stride 0, dilation 1 and padding 0 of the width"),
    Bad("im2col", lambda: [randn(1, 5, 5)], {"kernel_size": [2, 2, 2]}, "one or two numbers"),
    Bad("col2im", lambda: [randn(4)], {"output_size": [3, 3], "kernel_size": [2, 2]},
        "the columns are f32[4]"),
    Bad("col2im", lambda: [randn(4, 5)], {"output_size": [3, 3], "kernel_size": [2, 2]},
        "the image has 4 blocks of 4 pixels"),
    Bad("col2im", lambda: [randn(6, 4)], {"output_size": [3, 3], "kernel_size": [2, 2]},
        "rows in multiples of a block"),
    Bad("col2im", lambda: [randn(6, 4)], {"output_size": [3, 3], "kernel_size": [0, 2]},
        "kernel_size is [0, 2]"),
]

"""Samples of convolutions and their gradients."""

from tests.ops.sample import Bad, Sample, randn


def geometry(dims=2, stride=1, padding=0, dilation=1, groups=1):
    """Attributes of a plain convolution."""
    return {"stride": [stride] * dims, "padding": [padding] * dims, "dilation": [dilation] * dims,
            "transposed": False, "output_padding": [0] * dims, "groups": groups}


def transposed(dims=2, output_padding=0, **given):
    """Attributes of a transposed convolution."""
    return geometry(dims, **given) | {"transposed": True, "output_padding": [output_padding] * dims}


# attributes, sizes of input, weight and output
CASES = {
    "plain": (geometry(), (2, 3, 6, 5), (4, 3, 3, 3), (2, 4, 4, 3)),
    "padded": (geometry(padding=1), (2, 3, 6, 5), (4, 3, 3, 3), (2, 4, 6, 5)),
    "pointwise": (geometry(), (2, 16, 4, 4), (8, 16, 1, 1), (2, 8, 4, 4)),
    "pointwise, many pixels": (geometry(), (3, 5, 7, 8), (6, 5, 1, 1), (3, 6, 7, 8)),
    "pointwise, one image": (geometry(), (1, 40, 9, 8), (33, 40, 1, 1), (1, 33, 9, 8)),
    "pointwise, strides": (geometry() | {"stride": [2, 1]},
                           (2, 4, 11, 7), (6, 4, 1, 1), (2, 6, 6, 7)),
    "pointwise, one stride": (geometry(3) | {"stride": [2]},
                              (2, 4, 4, 7, 9), (3, 4, 1, 1, 1), (2, 3, 2, 4, 5)),
    "pointwise, 1-d stride": (geometry(1, stride=3), (2, 4, 100), (3, 4, 1), (2, 3, 34)),
    "pointwise, one pixel": (geometry(), (5, 6, 1, 1), (7, 6, 1, 1), (5, 7, 1, 1)),
    "stem": (geometry(stride=2, padding=3), (1, 3, 16, 16), (8, 3, 7, 7), (1, 8, 8, 8)),
    "strided pointwise": (geometry(stride=2), (2, 3, 8, 8), (8, 3, 1, 1), (2, 8, 4, 4)),
    "patches": (geometry(padding=1), (3, 5, 9, 8), (9, 5, 3, 3), (3, 9, 9, 8)),
    "patches, strips": (geometry(padding=1), (2, 2, 40, 30), (8, 2, 3, 3), (2, 8, 40, 30)),
    "patches, many images": (geometry(), (21, 3, 8, 7), (10, 3, 3, 2), (21, 10, 6, 6)),
    "patches, strides": (geometry() | {"stride": [2, 3], "padding": [1, 2]},
                         (2, 3, 11, 13), (8, 3, 3, 5), (2, 8, 6, 5)),
    "patches, dilated": (geometry(dilation=2, padding=3), (2, 3, 9, 10), (8, 3, 3, 3),
                         (2, 8, 11, 12)),
    "patches, dilation of one": (geometry() | {"dilation": [2, 1]}, (2, 3, 9, 6), (8, 3, 3, 3),
                                 (2, 8, 5, 4)),
    "patches, groups": (geometry(groups=2, stride=2), (2, 6, 9, 9), (16, 3, 3, 3), (2, 16, 4, 4)),
    "patches, 1-d": (geometry(1, stride=2, padding=2), (3, 4, 700), (8, 4, 5), (3, 8, 350)),
    "patches, transposed": (transposed(stride=2, padding=1, output_padding=1),
                            (2, 8, 5, 4), (8, 3, 3, 3), (2, 3, 10, 8)),
    "patches, transposed groups": (transposed(groups=2), (2, 16, 4, 3), (16, 2, 2, 3),
                                   (2, 4, 5, 5)),
    "padding beyond the kernel": (geometry(padding=4), (1, 2, 3, 3), (8, 2, 2, 2), (1, 8, 10, 10)),
    "groups": (geometry(groups=2, padding=1), (1, 4, 5, 5), (6, 2, 3, 3), (1, 6, 5, 5)),
    "depthwise": (geometry(groups=4, padding=1), (2, 4, 5, 5), (4, 1, 3, 3), (2, 4, 5, 5)),
    "dilated": (geometry(dilation=2, padding=2), (1, 2, 7, 7), (3, 2, 3, 3), (1, 3, 7, 7)),
    "one for all": (geometry(1, padding=1) | {"output_padding": [0, 0]},
                    (1, 2, 4, 4), (3, 2, 3, 3), (1, 3, 4, 4)),
    "1-d": (geometry(1, stride=2, padding=1), (2, 3, 9), (4, 3, 3), (2, 4, 5)),
    "3-d": (geometry(3, padding=1), (1, 2, 4, 3, 5), (3, 2, 3, 3, 3), (1, 3, 4, 3, 5)),
    "transposed": (transposed(stride=2), (2, 4, 3, 3), (4, 3, 2, 2), (2, 3, 6, 6)),
    "transposed, groups": (transposed(stride=2, padding=1, output_padding=1, groups=2),
                           (1, 4, 4, 3), (4, 3, 3, 3), (1, 6, 8, 6)),
    "transposed 1-d": (transposed(1), (1, 2, 5), (2, 3, 4), (1, 3, 8)),
}


def forward(name, bias):
    """A sample of the row `convolution`."""
    attrs, x, w, y = CASES[name]
    return Sample("convolution", lambda: [randn(*x), randn(*w), randn(y[1]) if bias else None],
                  attrs, note=f"{name}{', bias' if bias else ''}", equal_bits=False)


def backward(name, mask=(True, True, True)):
    """A sample of the row `convolution_backward`."""
    attrs, x, w, y = CASES[name]
    attrs = {"bias_sizes": [y[1]], **attrs, "output_mask": list(mask)}
    return Sample("convolution_backward", lambda: [randn(*y), randn(*x), randn(*w)], attrs,
                  note=name, equal_bits=False)


def bad(words, x, w, bias=None, **attrs):
    """A call of `convolution` that the type rule refuses."""
    inputs = lambda: [randn(*x), randn(*w), None if bias is None else randn(bias)]  # noqa: E731
    return Bad("convolution", inputs, geometry() | attrs, words=words)


SAMPLES = [forward(name, bias) for name in CASES for bias in (True, False)]
SAMPLES += [backward(name) for name in CASES]

IMAGE, KERNEL = (1, 4, 8, 8), (8, 4, 3, 3)
BADS = [
    bad("has 4 channels, weight f32[8,3,3,3] with 1 groups takes 3", IMAGE, (8, 3, 3, 3)),
    bad("has 2 dimensions, expected 3 to 5", (4, 8), KERNEL),
    bad("weight f32[8,4,3] has 3. Make them equal", IMAGE, (8, 4, 3)),
    bad("the kernel spans 9 elements, the padded input has 8", IMAGE, (8, 4, 9, 9)),
    bad("stride has 3 numbers for 2 spatial dimensions", IMAGE, KERNEL, stride=[1, 1, 1]),
    bad("stride 0, dilation 1, padding 0 in spatial dimension 1", IMAGE, KERNEL, stride=[1, 0]),
    bad("bias f32[3], expected f32[8]", IMAGE, KERNEL, bias=3),
    bad("has 9 channels for 2 groups", (1, 8, 8, 8), (9, 4, 3, 3), groups=2),
    Bad("convolution_backward", lambda: [randn(1, 8, 5, 5), randn(*IMAGE), randn(*KERNEL)],
        geometry() | {"bias_sizes": None, "output_mask": [True, True, True]},
        words="gradient f32[1,8,5,5], expected f32[1,8,6,6]"),
    Bad("convolution_backward", lambda: [randn(1, 8, 6, 6), randn(*IMAGE), randn(*KERNEL)],
        geometry() | {"bias_sizes": None, "output_mask": [True]},
        words="output_mask has 1 entries, expected 3"),
]

"""Samples of convolutions and their gradients."""

import torch

from poptorch import _C
from tests.ops.sample import Bad, Sample, channels_last, last_channels, randn


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
    "pointwise, large": (geometry(), (2, 160, 17, 16), (80, 160, 1, 1), (2, 80, 17, 16)),
    "pointwise, large strides": (geometry(stride=2), (2, 160, 25, 23), (72, 160, 1, 1),
                                 (2, 72, 13, 12)),
    "stem": (geometry(stride=2, padding=3), (1, 3, 16, 16), (8, 3, 7, 7), (1, 8, 8, 8)),
    "strided pointwise": (geometry(stride=2), (2, 3, 8, 8), (8, 3, 1, 1), (2, 8, 4, 4)),
    "one pixel of several": (geometry(stride=2), (2, 3, 2, 2), (8, 3, 1, 1), (2, 8, 1, 1)),
    "im2col": (geometry(padding=1), (3, 5, 9, 8), (9, 5, 3, 3), (3, 9, 9, 8)),
    "im2col, strips": (geometry(padding=1), (2, 2, 40, 30), (8, 2, 3, 3), (2, 8, 40, 30)),
    "im2col, many images": (geometry(), (21, 3, 8, 7), (10, 3, 3, 2), (21, 10, 6, 6)),
    "im2col, strides": (geometry() | {"stride": [2, 3], "padding": [1, 2]},
                         (2, 3, 11, 13), (8, 3, 3, 5), (2, 8, 6, 5)),
    "im2col, dilated": (geometry(dilation=2, padding=3), (2, 3, 9, 10), (8, 3, 3, 3),
                         (2, 8, 11, 12)),
    "im2col, dilation of one": (geometry() | {"dilation": [2, 1]}, (2, 3, 9, 6), (8, 3, 3, 3),
                                 (2, 8, 5, 4)),
    "im2col, groups": (geometry(groups=2, stride=2), (2, 6, 9, 9), (16, 3, 3, 3), (2, 16, 4, 4)),
    "im2col, 1-d": (geometry(1, stride=2, padding=2), (3, 4, 700), (8, 4, 5), (3, 8, 350)),
    "im2col, transposed": (transposed(stride=2, padding=1, output_padding=1),
                            (2, 8, 5, 4), (8, 3, 3, 3), (2, 3, 10, 8)),
    "im2col, transposed groups": (transposed(groups=2), (2, 16, 4, 3), (16, 2, 2, 3),
                                   (2, 4, 5, 5)),
    "im2col, runs of channels": (geometry(stride=2, padding=1), (3, 17, 15, 14), (9, 17, 3, 3),
                                  (3, 9, 8, 7)),
    "im2col, few pixels": (geometry() | {"padding": [1, 2]}, (2, 16, 4, 3), (40, 16, 3, 5),
                            (2, 40, 4, 3)),
    "im2col, long runs": (geometry(stride=2, padding=1), (2, 16, 41, 39), (8, 16, 3, 3),
                           (2, 8, 21, 20)),
    "padding beyond the kernel": (geometry(padding=4), (1, 2, 3, 3), (8, 2, 2, 2), (1, 8, 10, 10)),
    "groups": (geometry(groups=2, padding=1), (1, 4, 5, 5), (6, 2, 3, 3), (1, 6, 5, 5)),
    "depthwise": (geometry(groups=4, padding=1), (2, 4, 5, 5), (4, 1, 3, 3), (2, 4, 5, 5)),
    "depthwise, strides": (geometry(groups=37) | {"stride": [2, 3], "padding": [1, 2]},
                           (2, 37, 11, 13), (37, 1, 3, 5), (2, 37, 6, 5)),
    "depthwise, dilated": (geometry(groups=16, dilation=2, padding=3), (3, 16, 9, 14),
                           (16, 1, 3, 3), (3, 16, 11, 16)),
    "depthwise, wide": (geometry(groups=50, padding=2), (2, 50, 12, 31), (50, 1, 5, 5),
                        (2, 50, 12, 31)),
    "depthwise, more padding than image": (geometry(groups=3, padding=6), (1, 3, 2, 3),
                                           (3, 1, 4, 9), (1, 3, 11, 7)),
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
                  note=f"{name}{'' if all(mask) else f' {mask}'}", equal_bits=False)


def bad(words, x, w, bias=None, **attrs):
    """A call of `convolution` that the type rule refuses."""
    inputs = lambda: [randn(*x), randn(*w), None if bias is None else randn(bias)]  # noqa: E731
    return Bad("convolution", inputs, geometry() | attrs, words=words)


def packing(name):
    """Attributes that packed and plain convolutions share."""
    return {key: CASES[name][0][key] for key in ("stride", "padding", "dilation", "groups")}


def fixed_weights(name):
    """The same weights for every call: packed, only their kernel knows them."""
    return torch.randn(CASES[name][2], generator=torch.Generator().manual_seed(3))


def pack(name):
    """A sample of the row `pack_convolution`: the same numbers, in any order, and zeros."""
    def check(operands, results):
        ours, given = (t[t != 0].sort().values for t in (results[0], operands[0]))
        assert torch.equal(ours, given)

    return Sample("pack_convolution", lambda: [randn(*CASES[name][2])],
                  packing(name) | {"input_size": list(CASES[name][1])}, check=check,
                  dtypes=("f32",), equal_bits=False, note=name)


def packed(name, activation="none", bias=True, residual=False):
    """A sample of the row `packed_convolution`."""
    _, x, w, y = CASES[name]
    attrs = packing(name)

    def inputs(threads=1):
        weight = _C.evaluate("pack_convolution", [fixed_weights(name).numpy()],
                             attrs | {"input_size": list(x)}, threads=threads)[0]
        return [last_channels(randn(*x)), torch.from_numpy(weight), randn(y[1]) if bias else None,
                last_channels(randn(*y)) if residual else None]

    def reference(image, _, bias, residual):
        weight = fixed_weights(name).to(image.dtype)
        out = last_channels(torch.nn.functional.conv2d(image.movedim(-1, 1), weight, bias, **attrs))
        out = out if residual is None else out + residual
        return out if activation == "none" else getattr(torch.nn.functional, activation)(out)

    note = f"{name}, bias {bias}, residual {residual}"
    return Sample("packed_convolution", inputs,
                  attrs | {"weight_size": list(w), "activation": activation}, reference,
                  dtypes=("f32",), equal_bits=False, is_packed=True, note=note)


PACKED = ("plain", "padded", "pointwise", "stem", "strided pointwise", "groups", "depthwise",
          "dilated", "pointwise, one pixel", "pointwise, large", "pointwise, large strides")

SAMPLES = [forward(name, bias) for name in CASES for bias in (True, False)]
SAMPLES += [backward(name) for name in CASES]
SAMPLES += [channels_last(sample) for sample in SAMPLES]

# Channels last only: large enough for the unit for bfloat16 products where there is one, or with
# channels enough for Winograd's form, but not for that unit.
WIDE_CASES = {
    "bf16x3": (geometry(padding=1), (2, 32, 17, 20), (48, 32, 3, 3), (2, 48, 17, 20)),
    "bf16x3, several images": (geometry(), (5, 64, 8, 10), (64, 64, 3, 3), (5, 64, 6, 8)),
    "bf16x3, long kernel": (geometry() | {"padding": [2, 0]}, (1, 64, 14, 18), (80, 64, 5, 3),
                           (1, 80, 14, 16)),
    "bf16x3, strips": (geometry(padding=1), (1, 64, 24, 180), (32, 64, 3, 3), (1, 32, 24, 180)),
    "bf16x3, blocks of weights": (geometry(padding=1), (3, 512, 4, 6), (192, 512, 3, 3),
                                 (3, 192, 4, 6)),
    "winograd": (geometry(padding=1), (6, 16, 9, 7), (48, 16, 3, 3), (6, 48, 9, 7)),
    "winograd, other paddings": (geometry() | {"padding": [2, 0]}, (2, 80, 19, 14), (16, 80, 3, 3),
                                 (2, 16, 21, 12)),
    "winograd, large padding": (geometry(padding=3), (3, 16, 9, 7), (16, 16, 3, 3),
                                (3, 16, 13, 11)),
    "winograd, many weights": (geometry(padding=1), (3, 144, 9, 10), (160, 144, 3, 3),
                               (3, 160, 9, 10)),
}
CASES |= WIDE_CASES
SAMPLES += [channels_last(forward(name, bias)) for name in WIDE_CASES for bias in (True, False)]
SAMPLES += [channels_last(backward(name, mask)) for name in WIDE_CASES
            for mask in ((True, True, True), (True, False, False))]


def beyond_parts(sample):
    """Numbers above 2^127, which cannot be cut into parts, times small ones."""
    def inputs():
        large, *others = sample.inputs()
        return [large.clamp(-1.6, 1.6) * 2e38, *(None if x is None else x * 1e-5 for x in others)]

    return Sample(sample.op, inputs, sample.attrs, sample.reference, dtypes=("f32",),
                  equal_bits=False, note=f"{sample.note}, large")


SAMPLES += [beyond_parts(channels_last(forward("bf16x3", False)))]
SAMPLES += [beyond_parts(channels_last(backward("bf16x3", (True, False, False))))]

SAMPLES += [pack(name) for name in PACKED]
SAMPLES += [packed(name, activation, bias, residual)
            for name, activation in zip(PACKED, 3 * ("none", "relu", "silu", "hardswish"))
            for bias in (True, False) for residual in (True, False)
            if not residual or activation in ("none", "relu")]


def unpacked(name, activation="none", bias=True, residual=False, scale=False):
    """A sample of the row `packed_convolution` with the weights as they are."""
    _, x, w, y = CASES[name]
    attrs = packing(name)

    def inputs():
        return [last_channels(randn(*x)), randn(*w), randn(y[1]) if bias else None,
                last_channels(randn(*y)) if residual else None, randn(y[1]) if scale else None]

    def reference(image, weight, bias, residual, scale):
        out = torch.nn.functional.conv2d(image.movedim(-1, 1), weight, None, **attrs)
        out = last_channels(out)
        out = out if scale is None else out * scale
        out = out if bias is None else out + bias
        out = out if residual is None else out + residual
        return out if activation == "none" else getattr(torch.nn.functional, activation)(out)

    note = f"{name}, unpacked, bias {bias}, residual {residual}, scale {scale}"
    return Sample("packed_convolution", inputs,
                  attrs | {"weight_size": list(w), "activation": activation}, reference,
                  dtypes=("f32",), equal_bits=False, note=note)


WIDE_PACKED = [("bf16x3", "relu", True, True), ("bf16x3", "silu", True, False),
               ("bf16x3, several images", "none", False, True),
               ("bf16x3, long kernel", "hardswish", False, False),
               ("bf16x3, strips", "relu", True, True), ("bf16x3, strips", "none", False, False),
               ("bf16x3, blocks of weights", "relu", False, True),
               ("bf16x3, blocks of weights", "none", True, False),
               ("winograd", "relu", True, True), ("winograd", "hardswish", True, False),
               ("winograd, other paddings", "none", False, True),
               ("winograd, many weights", "relu", True, False)]
SAMPLES += [pack(name) for name in WIDE_CASES]
SAMPLES += [packed(*case) for case in WIDE_PACKED]
SAMPLES += [unpacked(*case, scale) for case in WIDE_PACKED for scale in (True, False)]
SAMPLES += [unpacked(name, activation, bias, residual, scale=bias)
            for name, activation in zip(PACKED, 3 * ("none", "relu", "silu", "hardswish"))
            for bias in (True, False) for residual in (True, False)
            if not residual or activation in ("none", "relu")]
SAMPLES += [beyond_parts(unpacked("bf16x3", "relu", True, True, True)),
            beyond_parts(unpacked("pointwise, large", "relu", True, True, True))]

IMAGE, KERNEL = (1, 4, 8, 8), (8, 4, 3, 3)
PACKED_GEOMETRY = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1}
LAST_IMAGE = (1, 8, 8, 4)
BADS = [
    Bad("pack_convolution", lambda: [randn(8, 4, 3)], PACKED_GEOMETRY | {"input_size": list(IMAGE)},
        "weight f32[8,4,3], expected f32[outputs, inputs, height, width]"),
    Bad("packed_convolution", lambda: [randn(*LAST_IMAGE), randn(2304), None, randn(1, 6, 6, 4)],
        PACKED_GEOMETRY | {"weight_size": list(KERNEL)},
        "residual f32[1,6,6,4], expected f32[1,6,6,8]"),
    Bad("packed_convolution", lambda: [randn(*LAST_IMAGE), randn(2304), None, randn(1, 6, 6, 8)],
        PACKED_GEOMETRY | {"weight_size": list(KERNEL), "activation": "silu"},
        'activation is "silu" with a residual, expected none or relu'),
    Bad("packed_convolution", lambda: [randn(*LAST_IMAGE), randn(2304), None, None],
        PACKED_GEOMETRY | {"weight_size": list(KERNEL), "activation": "gelu"},
        'activation is "gelu", expected none, relu, silu or hardswish'),
    Bad("packed_convolution", lambda: [randn(*LAST_IMAGE), randn(4, 8, 3, 3), None, None],
        PACKED_GEOMETRY | {"weight_size": list(KERNEL)},
        "weight f32[4,8,3,3], expected packed ones in f32 or f32[8,4,3,3]"),
    Bad("packed_convolution", lambda: [randn(*LAST_IMAGE), randn(2304), None, None, randn(8)],
        PACKED_GEOMETRY | {"weight_size": list(KERNEL)},
        "weight f32[2304] is packed and has a scale f32[8]. Multiply the weights before"),
    Bad("packed_convolution", lambda: [randn(*LAST_IMAGE), randn(*KERNEL), None, None, randn(4)],
        PACKED_GEOMETRY | {"weight_size": list(KERNEL)}, "scale f32[4], expected f32[8]"),
    bad("has 4 channels, weight f32[8,3,3,3] with 1 groups takes 3", IMAGE, (8, 3, 3, 3)),
    bad("has 2 dimensions, expected 3 to 5", (4, 8), KERNEL),
    bad("weight f32[8,4,3] has 3. Make them equal", IMAGE, (8, 4, 3)),
    bad("the kernel spans 9 elements, the padded input has 8", IMAGE, (8, 4, 9, 9)),
    bad("stride has 3 numbers for 2 spatial dimensions", IMAGE, KERNEL, stride=[1, 1, 1]),
    bad("stride 0, dilation 1, padding 0 in spatial dimension 1", IMAGE, KERNEL, stride=[1, 0]),
    bad("bias f32[3], expected f32[8]", IMAGE, KERNEL, bias=3),
    bad('layout is "nhwc", expected "channels_first" or "channels_last"', IMAGE, KERNEL,
        layout="nhwc"),
    bad("has 9 channels for 2 groups", (1, 8, 8, 8), (9, 4, 3, 3), groups=2),
    Bad("convolution_backward", lambda: [randn(1, 8, 5, 5), randn(*IMAGE), randn(*KERNEL)],
        geometry() | {"bias_sizes": None, "output_mask": [True, True, True]},
        words="gradient f32[1,8,5,5], expected f32[1,8,6,6]"),
    Bad("convolution_backward", lambda: [randn(1, 8, 6, 6), randn(*IMAGE), randn(*KERNEL)],
        geometry() | {"bias_sizes": None, "output_mask": [True]},
        words="output_mask has 1 entries, expected 3"),
]

"""Samples of the pooling family."""

import itertools

import torch

from tests.ops.sample import Bad, Sample, channels_last, integers, randn

aten = torch.ops.aten
NAN = float("nan")
ONE_TYPE = ("f32",)
TWO_TYPES = ("f32", "f64")  # 16-bit floats are upcast before the same loops
IMAGES = ((2, 3, 9, 11), (3, 8, 8), (1, 1, 20, 35))
# Kernel, stride, padding.
WINDOWS = (([2, 2], [], [0, 0]), ([3, 3], [2, 2], [1, 1]), ([3, 2], [1, 3], [1, 1]),
           ([1, 1], [1, 1], [0, 0]), ([4], [3], [2]), ([2, 5], [2, 1], [0, 2]))


def coarse(*sizes):
    """Few different values, so that windows have several largest ones."""
    return integers(-3, 4, *sizes).float()


def with_nans(*sizes):
    return torch.where(torch.rand(sizes) < 0.03, NAN, randn(*sizes))


def largest(x, attrs):
    kernel = attrs["kernel_size"]
    return aten.max_pool2d_with_indices(x, kernel, attrs["stride"] or kernel, attrs["padding"],
                                        attrs["dilation"], attrs["ceil_mode"])


def max_pools():
    cases = itertools.product(WINDOWS, ([1, 1], [2, 1]), (False, True))
    for number, ((kernel, stride, padding), dilation, ceil) in enumerate(cases):
        attrs = {"kernel_size": kernel, "stride": stride, "padding": padding,
                 "dilation": dilation, "ceil_mode": ceil}
        sizes, make = IMAGES[number % 3], (coarse, randn, with_nans, coarse)[number % 4]
        yield Sample("max_pool2d", lambda s=sizes, m=make: [m(*s)], attrs,
                     lambda x, a=attrs: largest(x, a), note=f"{make.__name__}{list(sizes)}")
        yield Sample("max_pool2d_backward", lambda s=sizes, a=attrs: with_positions(coarse(*s), a),
                     attrs, lambda g, x, i, a=attrs: aten.max_pool2d_with_indices_backward(
                         g, x, a["kernel_size"], a["stride"], a["padding"], a["dilation"],
                         a["ceil_mode"], i.long()), dtypes=TWO_TYPES, note=f"{list(sizes)}")
    plain = {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1], "dilation": [1, 1],
             "ceil_mode": False}
    yield Sample("max_pool2d", lambda: [randn(2, 16, 112, 112)], plain,
                 lambda x: largest(x, plain), dtypes=ONE_TYPE, note="large")
    yield Sample("max_pool2d", lambda: [torch.full((1, 4, 4), -float("inf"))], plain,
                 lambda x: largest(x, plain), note="all -inf")
    yield Sample("max_pool2d", lambda: [randn(2, 4, 4)],
                 {"kernel_size": [2, 2], "index_dtype": torch.int64},
                 lambda x: aten.max_pool2d_with_indices(x, [2, 2]), note="i64")
    yield Sample("max_pool2d", lambda: [randn(0, 3, 4, 4)], {"kernel_size": [2, 2]},
                 lambda x: aten.max_pool2d_with_indices(x, [2, 2]), note="no images")


def with_positions(x, attrs):
    out, where = largest(x, attrs)
    return [randn(*out.shape), x, where.to(torch.int32)]


def adaptive_max_pools():
    for number, (h, w) in enumerate(((1, 1), (3, 4), (7, 7), (8, 11), (20, 2))):
        for sizes in IMAGES:
            attrs = {"output_size": [h, w]}
            make = (randn, coarse, with_nans, randn, coarse)[number]
            yield Sample("adaptive_max_pool2d", lambda s=sizes, m=make: [m(*s)], attrs,
                         note=f"{make.__name__}{list(sizes)}")

            def with_places(sizes=sizes, h=h, w=w):
                x = coarse(*sizes)
                out, where = aten.adaptive_max_pool2d(x, [h, w])
                return [randn(*out.shape), x, where.to(torch.int32)]

            yield Sample("adaptive_max_pool2d_backward", with_places, {},
                         lambda g, x, i: aten.adaptive_max_pool2d_backward(g, x, i.long()),
                         dtypes=TWO_TYPES, note=f"{list(sizes)}{h}x{w}")
    yield Sample("adaptive_max_pool2d", lambda: [torch.full((1, 4, 4), -float("inf"))],
                 {"output_size": [2, 3]}, note="all -inf")
    yield Sample("adaptive_max_pool2d", lambda: [randn(8, 16, 33, 40)],
                 {"output_size": [7, 7], "index_dtype": torch.int64},
                 lambda x: aten.adaptive_max_pool2d(x, [7, 7]), dtypes=ONE_TYPE, note="large, i64")


def avg_pools():
    cases = itertools.product(WINDOWS, (False, True), (False, True))
    for number, ((kernel, stride, padding), ceil, counted) in enumerate(cases):
        sizes, divisor = IMAGES[number % 3], (None, None, None, 3, -2)[number % 5]
        attrs = {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil,
                 "count_include_pad": counted, "divisor_override": divisor}
        yield Sample("avg_pool2d", lambda s=sizes: [randn(*s)], attrs, dtypes=TWO_TYPES,
                     note=f"{list(sizes)}")
        yield Sample("avg_pool2d_backward", lambda s=sizes, a=attrs: with_gradient(randn(*s), a),
                     attrs, dtypes=TWO_TYPES, note=f"{list(sizes)}")
    for op in ("avg_pool2d", "avg_pool2d_backward"):
        large = {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]}
        yield Sample(op, lambda op=op, a=large: with_gradient(randn(2, 16, 64, 64), a)[
            1 if op == "avg_pool2d" else 0:], large, None if op == "avg_pool2d" else
            lambda g, x: aten.avg_pool2d_backward(g, x, [3, 3], [2, 2], [1, 1], False, True, None),
            dtypes=ONE_TYPE, note="large")


def with_gradient(x, attrs):
    return [randn(*aten.avg_pool2d(x, **attrs).shape), x]


def resized():
    sizes = ((2, 3, 6, 8), (3, 1, 1, 9), (2, 16, 30, 40))
    targets = ([1, 1], [3, 4], [12, 16], [5, 23], [6, 8])
    for number, (image, out) in enumerate(itertools.product(sizes, targets)):
        note = f"{list(image)}"
        yield Sample("adaptive_avg_pool2d", lambda s=image: [randn(*s)], {"output_size": out},
                     note=note)
        yield Sample("adaptive_avg_pool2d_backward",
                     lambda s=image, o=out: [randn(*s[:2], *o), randn(*s)], {},
                     note=f"{note}{out}")
        scales = {"scales_h": out[0] / image[2] + 0.01, "scales_w": out[1] / image[3]}
        yield from upsampled(image, {"output_size": out, **(scales if number % 2 else {})}, note)


def upsampled(image, attrs, note):
    backward = {"input_size": list(image), **attrs}
    for op, more in (("upsample_nearest2d", {}), ("upsample_bilinear2d", {"align_corners": False}),
                     ("upsample_bilinear2d", {"align_corners": True}),
                     ("upsample_bicubic2d", {"align_corners": False}),
                     ("upsample_bicubic2d", {"align_corners": True})):
        yield Sample(op, lambda: [randn(*image)], attrs | more, dtypes=TWO_TYPES, note=note)
        yield Sample(f"{op}_backward", lambda: [randn(*image[:2], *attrs["output_size"])],
                     backward | more, dtypes=TWO_TYPES, note=note)


def in_window(where, image, attrs):
    """Positions in the plane as places in the window, row by row."""
    width, kernel = image.shape[-1], pair(attrs["kernel_size"])
    stride, padding, dilation = (pair(attrs[name] or kernel)
                                 for name in ("stride", "padding", "dilation"))
    rows = torch.arange(where.shape[-2])[:, None] * stride[0] - padding[0]
    columns = torch.arange(where.shape[-1]) * stride[1] - padding[1]
    k, l = (where // width - rows) // dilation[0], (where % width - columns) // dilation[1]
    return (k * kernel[1] + l).to(torch.uint8)


def pair(numbers):
    return (*numbers, *numbers)[:2] if len(numbers) == 1 else tuple(numbers)


def byte_pools():
    """Max-pooling with places in the window, and gradients that get the image's size alone."""
    for number, (kernel, stride, padding) in enumerate(WINDOWS):
        for dilation in ([1, 1], [2, 1]):
            attrs = {"kernel_size": kernel, "stride": stride or kernel, "padding": padding,
                     "dilation": dilation, "ceil_mode": number % 2 == 1}
            sizes = IMAGES[number % 3]

            def positions(x, a=attrs):
                out, where = largest(x, a)
                return out, in_window(where, x, a)

            def gradient_inputs(s=sizes, a=attrs):
                out, places = positions(coarse(*s), a)
                return [randn(*out.shape), None, places]

            def gradient(grad, _, places, s=sizes, a=attrs):
                return put_back(grad, places, s, a)

            yield Sample("max_pool2d", lambda s=sizes: [coarse(*s)], attrs | {"in_window": True},
                         positions, note=f"{list(sizes)}")
            yield Sample("max_pool2d", lambda s=sizes: [coarse(*s)], attrs | {"keep": False},
                         lambda x, a=attrs: (largest(x, a)[0], None), note=f"{list(sizes)}")
            yield Sample("max_pool2d_backward", gradient_inputs,
                         attrs | {"in_window": True, "image_size": list(sizes[-2:])}, gradient,
                         dtypes=TWO_TYPES, note=f"{list(sizes)}")


def put_back(grad, places, sizes, attrs):
    """The gradient of the image, entry by entry."""
    kernel, out = pair(attrs["kernel_size"]), torch.zeros(sizes, dtype=grad.dtype)
    stride, padding, dilation = (pair(attrs[name]) for name in ("stride", "padding", "dilation"))
    flat, image = grad.reshape(-1, *grad.shape[-2:]), out.view(-1, *sizes[-2:])
    for plane, i, j in itertools.product(*(range(n) for n in flat.shape)):
        place = int(places.reshape(flat.shape)[plane, i, j])
        y = i * stride[0] - padding[0] + place // kernel[1] * dilation[0]
        x = j * stride[1] - padding[1] + place % kernel[1] * dilation[1]
        if 0 <= y < sizes[-2] and 0 <= x < sizes[-1]:
            image[plane, y, x] += flat[plane, i, j]
    return out


def pools_last():
    """Those of images with a batch, in the other layout; one with many channels."""
    for sample in (*max_pools(), *byte_pools()):
        if sample.inputs()[0].dim() == 4:
            yield channels_last(sample)
    attrs = {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1], "dilation": [1, 1],
             "ceil_mode": False, "in_window": True}
    yield channels_last(Sample("max_pool2d", lambda: [randn(2, 150, 20, 24)], attrs, lambda x: (
        largest(x, attrs)[0], in_window(largest(x, attrs)[1], x, attrs)), note="many channels"))


SAMPLES = [*max_pools(), *byte_pools(), *pools_last(), *avg_pools(), *adaptive_max_pools(),
           *resized()]

TWO = {"kernel_size": [2, 2]}
BADS = [
    *(Bad(op, lambda: [randn(4, 4)], TWO, "sizes [C, H, W] or [N, C, H, W] are needed")
      for op in ("max_pool2d", "avg_pool2d")),
    *(Bad(op, lambda: [integers(0, 5, 1, 4, 4)], TWO, "a float dtype is needed")
      for op in ("max_pool2d", "avg_pool2d")),
    *(Bad(op, lambda: [randn(1, 4, 4)], {"kernel_size": [5, 5]}, "smaller than the window of 5")
      for op in ("max_pool2d", "avg_pool2d")),
    *(Bad(op, lambda: [randn(1, 4, 4)], TWO | {"padding": [2, 2]}, "the padding 2 of the height")
      for op in ("max_pool2d", "avg_pool2d")),
    *(Bad(op, lambda: [randn(1, 4, 4)], TWO | {"stride": [1, 0]}, "must be at least 1")
      for op in ("max_pool2d", "avg_pool2d")),
    Bad("max_pool2d", lambda: [randn(1, 4, 4)], {"kernel_size": [2, 2, 2]}, "one or two numbers"),
    Bad("avg_pool2d", lambda: [randn(1, 4, 4)], TWO | {"divisor_override": 0},
        "divisor_override is 0"),
    Bad("max_pool2d", lambda: [randn(1, 20, 20)], {"kernel_size": [20, 20], "in_window": True},
        "the window has 400 entries, a byte counts 256"),
    Bad("max_pool2d_backward", lambda: [randn(1, 2, 2), None, integers(0, 4, 1, 2, 2)], TWO,
        "neither the image nor image_size"),
    Bad("max_pool2d_backward", lambda: [randn(1, 2, 2), randn(1, 4, 4), integers(0, 4, 1, 2, 2)],
        TWO | {"image_size": [4, 4]}, "both the image and image_size"),
    Bad("max_pool2d_backward", lambda: [randn(1, 2, 2), randn(1, 4, 4), integers(0, 4, 1, 2, 2)],
        TWO | {"in_window": True}, "in_window says bytes"),
    Bad("max_pool2d_backward", lambda: [randn(1, 3, 2), randn(1, 4, 4), integers(0, 4, 1, 2, 2)],
        TWO, "the sizes [1, 2, 2] are needed"),
    Bad("max_pool2d_backward", lambda: [randn(1, 2, 2), randn(1, 4, 4), randn(1, 2, 2)], TWO,
        "positions are i32 or i64"),
    Bad("avg_pool2d_backward", lambda: [randn(1, 3, 2), randn(1, 4, 4)], TWO, "grad_output is"),
    Bad("adaptive_avg_pool2d", lambda: [randn(1, 4, 4)], {"output_size": [0, 2]},
        "output_size is [0, 2]"),
    Bad("adaptive_max_pool2d", lambda: [randn(1, 4, 4)], {"output_size": [2, 0]},
        "output_size is [2, 0]"),
    Bad("adaptive_max_pool2d_backward",
        lambda: [randn(1, 2, 2), randn(1, 4, 4), integers(0, 4, 1, 3, 2)], {}, "indices is"),
    Bad("adaptive_avg_pool2d", lambda: [randn(1, 0, 4)], {"output_size": [2, 2]}, "has no pixels"),
    Bad("adaptive_avg_pool2d_backward", lambda: [randn(2, 2, 2), randn(1, 4, 4)], {},
        "grad_output is f32[2,2,2]"),
    *(Bad(op, lambda: [randn(4)], {"output_size": [2, 2]}, "sizes [C, H, W] or [N, C, H, W]")
      for op in ("upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d")),
    *(Bad(op, lambda: [randn(1, 2, 3, 3)], {"output_size": [2, 2], "input_size": [1, 2, 4, 4]},
          "the sizes [1, 2, 2, 2] are needed")
      for op in ("upsample_nearest2d_backward", "upsample_bilinear2d_backward",
                 "upsample_bicubic2d_backward")),
]

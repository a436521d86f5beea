"""Samples of the normalizations."""

import math

import torch

from tests.ops.sample import Bad, Sample, channels_last, integers, randn, uniform

EPS = 1e-5
LAYERS = [
    ((4, 10), [10]),
    ((70, 33), [33]),  # several chunks of rows
    ((300, 64), [64]),
    ((2, 3, 4, 5), [4, 5]),
    ((3, 5000), [5000]),  # several blocks of a sum
    ((0, 5), [5]),
]
GROUPS = [
    ((2, 6, 4, 4), 3),
    ((3, 4, 5), 2),
    ((2, 12), 2),
    ((1, 4, 50, 50), 1),
    ((2, 32, 7, 7), 32),
]
BATCHES = [
    (4, 3, 5, 5),
    (8, 10),
    (1200, 20),  # several chunks of the batch
    (200, 300),  # several blocks of channels
    (2, 64, 7, 7),
    (16, 3, 32),
    (2, 3, 60, 60),
]
ALL, INPUT, PARAMETERS = [True, True, True], [True, False, False], [False, True, True]


def shifted(*sizes):
    """Values whose mean is far from 0."""
    return randn(*sizes) * 2 + 5


def with_statistics(x, dims):
    """Mean and 1 / standard deviation of ``x`` over some dimensions."""
    wide = x.double()
    mean = wide.mean(dims, keepdim=True)
    variance = (wide - mean).square().mean(dims, keepdim=True)
    return mean.float(), (variance + EPS).rsqrt().float()


# -- layer norm --


def layer_norm(sizes, shape, weight=True, bias=True):
    def operands():
        return [shifted(*sizes), randn(*shape) if weight else None, randn(*shape) if bias else None]

    return Sample("native_layer_norm", operands, {"normalized_shape": shape, "eps": EPS},
                  note=f"{sizes}-{weight}-{bias}")


def layer_norm_backward(sizes, shape, mask, weight=True):
    def operands():
        x = shifted(*sizes)
        mean, rstd = with_statistics(x, [d - len(shape) for d in range(len(shape))])
        parameters = [randn(*shape), randn(*shape)] if weight else [None, None]
        return [randn(*sizes), x, mean, rstd, *parameters]

    return Sample("native_layer_norm_backward", operands,
                  {"normalized_shape": shape, "output_mask": mask}, note=f"{sizes}-{weight}")


# -- group norm --


def group_attrs(sizes, groups):
    return {"N": sizes[0], "C": sizes[1], "HxW": math.prod(sizes[2:]), "group": groups}


def group_norm(sizes, groups, weight=True):
    def operands():
        channels = sizes[1]
        return [shifted(*sizes), *([randn(channels), randn(channels)] if weight else [None, None])]

    return Sample("native_group_norm", operands, {**group_attrs(sizes, groups), "eps": EPS},
                  note=f"{sizes}-{weight}")


def group_norm_backward(sizes, groups, mask, weight=True):
    def operands():
        x = shifted(*sizes)
        mean, rstd = with_statistics(x.view(sizes[0], groups, -1), [-1])
        return [randn(*sizes), x, mean[..., 0], rstd[..., 0], randn(sizes[1]) if weight else None]

    return Sample("native_group_norm_backward", operands,
                  {**group_attrs(sizes, groups), "output_mask": mask}, note=f"{sizes}-{weight}")


# -- batch norm --


def finished(y, residual, relu):
    """What batch norm does behind the normalization."""
    y = y if residual is None else y + residual
    return y.relu() if relu else y


def batch_norm(sizes, weight=True, running=True, residual=False, relu=False):
    def operands():
        channels = sizes[1]
        parameters = [randn(channels), randn(channels)] if weight else [None, None]
        statistics = [randn(channels), uniform(0.5, 2, channels)] if running else [None, None]
        added = [randn(*sizes)] if residual else []
        return [shifted(*sizes), *parameters, *statistics, *added]

    def reference(x, w, b, mean, var, added=None):
        new = [None if r is None else r.clone() for r in (mean, var)]
        y, *results = torch.ops.aten.native_batch_norm(x, w, b, *new, True, 0.1, EPS)
        return (finished(y, added, relu), *results, *new)

    return Sample("batch_norm", operands, {"momentum": 0.1, "eps": EPS, "relu": relu}, reference,
                  note=f"{sizes}-{weight}-{running}-{residual}")


def batch_norm_inference(sizes, weight=True):
    return Sample("batch_norm_inference", batch_norm(sizes, weight).inputs, {"eps": EPS},
                  lambda *x: torch.ops.aten.native_batch_norm(*x, False, 0.1, EPS)[0],
                  note=f"{sizes}-{weight}")


def batch_norm_apply(sizes, residual, relu):
    def reference(x, w, b, mean, rstd, added=None):
        shape = [1, -1] + [1] * (len(sizes) - 2)
        scale = (w * rstd).view(shape)
        return finished((x - mean.view(shape)) * scale + b.view(shape), added, relu)

    return Sample("batch_norm_apply", batch_norm(sizes, residual=residual).inputs, {"relu": relu},
                  reference, note=f"{sizes}-{residual}")


def batch_norm_backward(sizes, training, weight=True, relu=False, residual=False):
    def operands():
        x = shifted(*sizes)
        mean, rstd = with_statistics(x, [d for d in range(len(sizes)) if d != 1])
        statistics = [mean.flatten(), rstd.flatten()]
        out = [randn(*sizes).relu()] if relu else []
        return [randn(*sizes), x, randn(sizes[1]) if weight else None, *statistics, *out]

    def reference(grad, x, w, mean, rstd, out=None):
        shape = [1, -1] + [1] * (len(sizes) - 2)
        dims = [d for d in range(len(sizes)) if d != 1]
        grad = grad if out is None else torch.where(out > 0, grad, 0)
        masked = [grad] if residual else []
        hat = (x - mean.view(shape)) * rstd.view(shape)
        dweight, dbias = (grad * hat).sum(dims), grad.sum(dims)
        scale = rstd if w is None else rstd * w
        if training:
            n = x.numel() / sizes[1]
            grad = grad - dbias.view(shape) / n - hat * dweight.view(shape) / n
        return grad * scale.view(shape), dweight, dbias, *masked

    return Sample("batch_norm_backward", operands,
                  {"training": training, "grad_residual": residual}, reference,
                  note=f"{sizes}-{weight}-{relu}")


def batch_norms(sizes):
    """All forms that a batch of these sizes takes."""
    return [
        batch_norm(sizes), batch_norm(sizes, relu=True), batch_norm(sizes, residual=True),
        batch_norm(sizes, residual=True, relu=True), batch_norm_inference(sizes),
        batch_norm_apply(sizes, False, True), batch_norm_apply(sizes, True, True),
        batch_norm_apply(sizes, False, False), batch_norm_backward(sizes, True),
        batch_norm_backward(sizes, False), batch_norm_backward(sizes, True, relu=True),
        batch_norm_backward(sizes, True, relu=True, residual=True),
        batch_norm_backward(sizes, False, residual=True),
    ]


SAMPLES = [
    *[layer_norm(*layer) for layer in LAYERS],
    *[layer_norm(*layer, bias=False) for layer in LAYERS[:1]],
    *[layer_norm(*layer, weight=False, bias=False) for layer in LAYERS[1:2]],
    *[layer_norm_backward(*layer, ALL) for layer in LAYERS],
    *[layer_norm_backward(*layer, PARAMETERS) for layer in LAYERS[1:2]],
    *[layer_norm_backward(*layer, INPUT, weight=False) for layer in LAYERS[1:2]],
    *[group_norm(*group) for group in GROUPS],
    *[group_norm(*group, weight=False) for group in GROUPS[:1]],
    *[group_norm_backward(*group, ALL) for group in GROUPS],
    *[group_norm_backward(*group, INPUT, weight=False) for group in GROUPS[:1]],
    *[sample for sizes in BATCHES for sample in batch_norms(sizes)],
    *[channels_last(sample) for sizes in BATCHES for sample in batch_norms(sizes)],
    *[batch_norm(sizes, weight=False, running=False) for sizes in BATCHES[:2]],
    *[batch_norm_inference(sizes, weight=False) for sizes in BATCHES[:2]],
    *[batch_norm_backward(sizes, True, weight=False) for sizes in BATCHES[:2]],
]

LAYER = {"normalized_shape": [4]}
CHANNELS = {"N": 2, "C": 6, "HxW": 4}
BADS = [
    Bad("native_layer_norm", lambda: [randn(3, 5)], LAYER, words="its last sizes are not"),
    Bad("native_layer_norm", lambda: [randn(3, 4), randn(5)], LAYER, words="weight is f32[5]"),
    Bad("native_layer_norm", lambda: [integers(0, 9, 3, 4)], LAYER, words="floating-point"),
    Bad("native_layer_norm", lambda: [randn(3, 4), randn(4).double()], LAYER,
        words="dtypes differ: f32[3,4] and f64[4]"),
    Bad("native_layer_norm_backward",
        lambda: [randn(3, 4), randn(3, 4), randn(3, 1), randn(3, 1)],
        {**LAYER, "output_mask": [True]}, words="output_mask has 1 entries"),
    Bad("native_group_norm", lambda: [randn(2, 6, 4)], {**CHANNELS, "group": 4},
        words="6 channels cannot be cut into 4 groups"),
    Bad("native_group_norm", lambda: [randn(2, 6, 5)], {**CHANNELS, "group": 3},
        words="the attributes say N=2, C=6, HxW=4"),
    Bad("batch_norm", lambda: [randn(1, 3)], words="one value for each channel"),
    Bad("batch_norm", lambda: [randn(4, 3), randn(4)], words="weight is f32[4]"),
    Bad("batch_norm", lambda: [randn(4)], words="at least 2"),
    Bad("batch_norm", lambda: [randn(4, 3, 2), *[None] * 4, randn(4, 2, 3)],
        words="residual is f32[4,2,3]"),
    Bad("batch_norm_backward", lambda: [randn(4, 3), randn(4, 2), None, randn(2), randn(2)],
        words="grad is f32[4,3]"),
]

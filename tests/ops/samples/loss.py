"""Samples of the loss functions."""

import torch

from tests.ops.sample import Bad, Sample, integers, numbers, randn, scalar, uniform
from tests.public_ops.beam_search import decoded

NONE, MEAN, SUM = 0, 1, 2
SHAPES = [(5,), (6, 7), (100, 333), ()]
SHAPED = {"mse_loss": [{}],
          "smooth_l1_loss": [{"beta": 1.0}, {"beta": 0.3}, {"beta": 0.0}],
          "huber_loss": [{"delta": 1.0}, {"delta": 0.3}]}


def gradient(sizes, reduction):
    return randn(*sizes) if reduction == NONE else scalar(0.7)


def elementwise():
    for op, variants in SHAPED.items():
        for attrs in variants:
            for reduction in (NONE, MEAN, SUM):
                given = {"reduction": reduction, **attrs}
                for sizes in SHAPES:
                    yield Sample(op, lambda s=sizes: [randn(*s), randn(*s)], given,
                                 note=str(sizes))
                    yield Sample(f"{op}_backward",
                                 lambda s=sizes, r=reduction: [gradient(s, r), randn(*s),
                                                               randn(*s)],
                                 given, note=str(sizes))


def probabilities(*sizes):
    return uniform(0.01, 0.99, *sizes)


def cross_entropy():
    forward, backward = "binary_cross_entropy", "binary_cross_entropy_backward"
    for reduction in (NONE, MEAN, SUM):
        attrs = {"reduction": reduction}
        for sizes in SHAPES:
            for weight in (lambda *s: None, lambda *s: uniform(0, 2, *s)):
                yield Sample(forward, lambda s=sizes, w=weight: [
                    probabilities(*s), probabilities(*s), w(*s)], attrs, note=str(sizes))
                yield Sample(backward, lambda s=sizes, r=reduction, w=weight: [
                    gradient(s, r), probabilities(*s), probabilities(*s), w(*s)], attrs,
                    note=str(sizes))
                yield Sample(f"{forward}_with_logits", lambda s=sizes, w=weight: [
                    randn(*s) * 9, probabilities(*s), w(*s), None], attrs, note=str(sizes))
        yield Sample(f"{forward}_with_logits", lambda: [
            randn(6, 7) * 9, probabilities(6, 7), uniform(0, 2, 6, 1), uniform(0, 2, 7)], attrs,
            note="broadcast weights")


# -- negative log likelihood --

TARGETS = [((6, 5), (6,)), ((5,), ()), ((9000, 10), (9000,)), ((2, 5, 4, 3), (2, 4, 3))]


def likelihoods(sizes):
    return torch.log_softmax(randn(*sizes), 1 if len(sizes) > 1 else 0)


def targets(sizes, classes, ignored):
    found = integers(0, classes, *sizes)
    if found.dim() > 0:
        found.view(-1)[:2] = ignored
    return found


def nll(sizes, of_target, reduction, weighted, ignored, index):
    classes = sizes[1] if len(sizes) > 1 else sizes[0]
    name = "nll_loss2d" if len(sizes) > 2 else "nll_loss"
    forward = getattr(torch.ops.aten, f"{name}_forward")
    backward = getattr(torch.ops.aten, f"{name}_backward")
    attrs = {"reduction": reduction, "ignore_index": ignored}

    def operands():
        weight = uniform(0.1, 2, classes) if weighted else None
        return [likelihoods(sizes), targets(of_target, classes, ignored).to(index), weight]

    def with_gradient():
        x, target, weight = operands()
        out, total = forward(x, target.long(), weight, reduction, ignored)
        return [torch.randn_like(out), x, target, weight, total]

    note = f"{sizes}-{weighted}-{index}"
    yield Sample("nll_loss", operands, attrs, note=note,
                 reference=lambda x, t, w: forward(x, t.long(), w, reduction, ignored))
    yield Sample("nll_loss_backward", with_gradient, attrs, note=note,
                 reference=lambda g, x, t, w, total: backward(
                     g, x, t.long(), w, reduction, ignored, total))


def all_nll():
    for sizes, of_target in TARGETS:
        for reduction in (NONE, MEAN, SUM):
            yield from nll(sizes, of_target, reduction, False, -100, torch.int64)
            yield from nll(sizes, of_target, reduction, True, 1, torch.int32)


def sums_of(x):
    """What the forward pass keeps of each row: the largest score, and the log of the sum."""
    largest = x.max(1).values if x.numel() else x.new_zeros(len(x))
    return torch.stack([largest, (x - largest[:, None]).logsumexp(1)], 1)


def softmax_likelihood(sizes, reduction, weighted, ignored, index):
    attrs = {"reduction": reduction, "ignore_index": ignored}

    def loss(x, target, weight):
        return torch.ops.aten.nll_loss_forward(
            x.log_softmax(1), target.long(), weight, reduction, ignored)

    def gradient_of(grad, x, target, weight, total, sums):
        counts = target != ignored
        target = torch.where(counts, target, 0).long()
        scale = counts * (1 if weight is None else weight[target]) * grad
        if reduction == MEAN:
            scale = scale / total
        probability = (x - sums[:, :1] - sums[:, 1:]).exp()
        is_target = torch.nn.functional.one_hot(target, x.shape[1])
        return (probability - is_target) * scale[:, None]

    def operands():
        weight = uniform(0.1, 2, sizes[1]) if weighted else None
        return [30 + 4 * randn(*sizes), targets(sizes[:1], sizes[1], ignored).to(index), weight]

    def with_gradient():
        x, target, weight = operands()
        out, total = loss(x, target, weight)
        return [torch.randn_like(out), x, target, weight, total, sums_of(x)]

    note = f"{sizes}-{weighted}-{index}"
    yield Sample("cross_entropy", operands, attrs, note=note,
                 reference=lambda x, t, w: (*loss(x, t, w), sums_of(x)))
    yield Sample("cross_entropy_backward", with_gradient, attrs, note=note, wide=(5,),
                 reference=gradient_of)


def all_softmax_likelihoods():
    for sizes in ((6, 10), (40, 1000), (300, 7)):
        for reduction in (NONE, MEAN, SUM):
            yield from softmax_likelihood(sizes, reduction, False, -100, torch.int64)
            yield from softmax_likelihood(sizes, reduction, True, 1, torch.int32)


def decodings():
    for sizes, attrs in (((9, 3, 5), {}), ((9, 3, 5), {"beam_width": 3, "top_paths": 3}),
                         ((0, 2, 3), {"top_paths": 2}), ((4, 0, 3), {}), ((5, 2, 1), {}),
                         ((14, 2, 4), {"blank": 3, "beam_width": 5, "top_paths": 2})):
        for dtype in (torch.int32, torch.int64):
            yield Sample("ctc_beam_search_decoder",
                         lambda z=sizes, t=dtype: [(2 * randn(*z)).log_softmax(2),
                                                   integers(0, z[0] + 1, z[1], dtype=t)],
                         attrs, lambda probs, lengths, a=attrs: decoded(probs, lengths, **a),
                         note=f"{sizes}{dtype}")


def ctc_operands(sizes, labels, dtype, blank=0, **others):
    """Log-probabilities, targets with repeated labels, and lengths with one 0."""
    time, batch, classes = sizes
    lengths = integers(0, labels + 1, batch, dtype=dtype)
    lengths[:1], lengths[1:2] = labels, 0
    targets = (blank + 1 + integers(0, classes - 1, batch, labels, dtype=dtype)) % classes
    return [(2 * randn(*sizes)).log_softmax(2), targets,
            integers(time // 2, time + 1, batch, dtype=dtype), lengths]


def ctc(log_probs, targets, input_lengths, target_lengths, blank=0, zero_infinity=False):
    losses, alpha = torch.ops.aten._ctc_loss(
        log_probs, targets.long(), input_lengths.tolist(), target_lengths.tolist(), blank,
        zero_infinity)
    return losses.masked_fill(losses == torch.inf, 0) if zero_infinity else losses, alpha


def ctc_gradient_operands(sizes, labels, dtype, attrs):
    operands = ctc_operands(sizes, labels, dtype, **attrs)
    _, alpha = ctc(*operands, **attrs)
    is_read = (torch.arange(sizes[0])[None, :, None] < operands[2][:, None, None]) & (
        torch.arange(2 * labels + 1) <= 2 * operands[3][:, None, None])
    return [randn(sizes[1]), *operands, torch.where(is_read, alpha, 0)]


def ctc_gradient(grad_output, log_probs, targets, input_lengths, target_lengths, alpha, blank=0,
                 zero_infinity=False):
    lengths = input_lengths.tolist(), target_lengths.tolist()
    ends = [(alpha[i, steps - 1, 2 * count], alpha[i, steps - 1, max(2 * count - 1, 0)])
            for i, (steps, count) in enumerate(zip(*lengths))]
    losses = torch.stack([-(torch.logaddexp(*both) if count else both[0])
                          for both, count in zip(ends, lengths[1])])
    return torch.ops.aten._ctc_loss_backward(grad_output, log_probs, targets.long(), *lengths,
                                             losses, alpha, blank, zero_infinity)


def ctc_losses():
    for sizes, labels, attrs in (((9, 4, 5), 3, {}), ((9, 4, 5), 3, {"blank": 4}),
                                 ((4, 5, 6), 3, {"zero_infinity": True}), ((30, 3, 40), 8, {})):
        for dtype in (torch.int32, torch.int64):
            yield Sample("ctc_loss", lambda z=sizes, n=labels, t=dtype, a=attrs:
                         ctc_operands(z, n, t, **a), attrs,
                         lambda *operands, a=attrs: (ctc(*operands, **a)[0], None),
                         dtypes=("f32", "f64"), note=f"{sizes}{dtype}")
            yield Sample("ctc_loss_backward", lambda z=sizes, n=labels, t=dtype, a=attrs:
                         ctc_gradient_operands(z, n, t, a), attrs,
                         lambda *operands, a=attrs: ctc_gradient(*operands, **a),
                         dtypes=("f32", "f64"), note=f"{sizes}{dtype}")


SAMPLES = [
    *ctc_losses(),
    *decodings(),
    *all_softmax_likelihoods(),
    *elementwise(),
    *cross_entropy(),
    *all_nll(),
    Sample("binary_cross_entropy",
           lambda: [numbers(0.0, 1.0, 0.0, 1.0), numbers(0.0, 1.0, 1.0, 0.0)], {"reduction": NONE},
           note="certain"),
]

BADS = [
    Bad("ctc_loss", lambda: [randn(3, 2, 4), integers(0, 4, 3, 2), integers(1, 2, 2),
                             integers(1, 2, 2)], words="targets are i32[3,2]"),
    Bad("ctc_loss", lambda: [randn(3, 2, 4), integers(0, 4, 2, 2), integers(1, 2, 2),
                             integers(1, 2, 2)], {"blank": 4}, "blank is 4 of 4 classes"),
    Bad("ctc_loss", lambda: [randn(3, 2, 4).half(), integers(0, 4, 2, 2), integers(1, 2, 2),
                             integers(1, 2, 2)], words="Give f32 or f64"),
    Bad("ctc_loss", lambda: [randn(3, 2, 4), integers(0, 4, 2, 2), integers(4, 5, 2),
                             integers(1, 2, 2)], words="the input length 4 of sequence 0"),
    Bad("ctc_loss", lambda: [randn(3, 2, 4), integers(0, 4, 2, 2), integers(1, 2, 2),
                             integers(3, 4, 2)], words="the target length 3 of sequence 0"),
    Bad("ctc_loss", lambda: [randn(3, 2, 4), integers(4, 5, 2, 2), integers(1, 2, 2),
                             integers(1, 2, 2)], words="the label 4 of sequence 0"),
    Bad("ctc_loss_backward", lambda: [randn(2), randn(3, 2, 4), integers(0, 4, 2, 2),
                                      integers(1, 2, 2), integers(1, 2, 2), randn(2, 3, 4)],
        words="alpha is f32[2,3,4]"),
    Bad("ctc_beam_search_decoder", lambda: [randn(3, 2, 4), integers(4, 5, 2)],
        words="the length 4 of sequence 0 is out of range: there are 3 steps"),
    Bad("ctc_beam_search_decoder", lambda: [randn(3, 2, 4), integers(1, 2, 3)],
        words="lengths are i32[3]"),
    Bad("ctc_beam_search_decoder", lambda: [randn(3, 2, 4), randn(2)], words="i32 or i64"),
    Bad("ctc_beam_search_decoder", lambda: [randn(3, 2, 4), integers(1, 2, 2)], {"blank": 4},
        "blank is 4 of 4 classes"),
    Bad("ctc_beam_search_decoder", lambda: [randn(3, 2, 4), integers(1, 2, 2)],
        {"beam_width": 2, "top_paths": 3}, "top_paths is 3, beam_width is 2"),
    Bad("ctc_beam_search_decoder", lambda: [randn(3, 2, 4).abs() / 0, integers(1, 2, 2)],
        words="probs hold"),
    Bad("mse_loss", lambda: [randn(3), randn(4)], words="target is f32[4]"),
    Bad("mse_loss", lambda: [randn(3), randn(3)], {"reduction": 3}, words="reduction is 3"),
    Bad("mse_loss", lambda: [integers(0, 9, 3), integers(0, 9, 3)], words="floating-point"),
    Bad("mse_loss_backward", lambda: [randn(3), randn(3), randn(3)], {"reduction": MEAN},
        words="a gradient of one element"),
    Bad("binary_cross_entropy", lambda: [randn(3), randn(3), randn(2)], words="do not broadcast"),
    Bad("nll_loss", lambda: [randn(3, 5), integers(0, 5, 4)], words="target is i32[4]"),
    Bad("cross_entropy", lambda: [randn(3, 5, 2), integers(0, 5, 3, 2)],
        words="Give scores [samples, classes]"),
    Bad("cross_entropy", lambda: [randn(3, 5), integers(5, 6, 3)], words="target 5 at flat index"),
    Bad("cross_entropy_backward",
        lambda: [scalar(1.0), randn(3, 5), integers(5, 6, 3), None, scalar(3.0), randn(3, 2)],
        words="target 5 at flat index"),
    Bad("cross_entropy_backward",
        lambda: [scalar(1.0), randn(3, 5), integers(0, 5, 3), None, scalar(3.0), randn(3)],
        words="sums is f32[3]"),
    Bad("nll_loss", lambda: [randn(3, 5), randn(3)], words="the dtype i32 or i64"),
    Bad("nll_loss", lambda: [randn(3, 5), integers(0, 5, 3), randn(4)], words="weight is f32[4]"),
    Bad("nll_loss", lambda: [randn(3, 5), integers(5, 6, 3)], words="target 5 at flat index"),
    Bad("nll_loss_backward",
        lambda: [scalar(1.0), randn(3, 5), integers(-1, 0, 3), None, scalar(3.0)],
        words="target -1 at flat index"),
]

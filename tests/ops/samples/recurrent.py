"""Samples of recurrent layers; the references spell the steps out.

That the gradients are those of ``torch.nn`` is shown by ``tests/kernels/test_recurrent.py``: here
the backward rows get a ``y`` and a ``reserve`` that are rounded to the sample's dtype.
"""

import torch

from tests.ops.sample import Bad, Sample, randn

SIZES = (4, 3, 5, 6)  # time, batch, input, hidden
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def times(x, reverse):
    """The times in the order of the steps."""
    return range(len(x) - 1, -1, -1) if reverse else range(len(x))


def in_time(steps, reverse):
    """What the steps gave, in the order of time."""
    return torch.stack(steps[::-1] if reverse else steps)


def sums_of(x, h, w_ih, w_hh, b_ih, b_hh):
    """The products with the input and with the state, biases added."""
    inner, outer = x @ w_ih.T, h @ w_hh.T
    return (inner, outer) if b_ih is None else (inner + b_ih, outer + b_hh)


def lstm(x, h0, c0, *weights, reverse):
    """As the row: (y, hn, cn, reserve)."""
    h, c, ys, kept = h0, c0, [], []
    for t in times(x, reverse):
        i, f, g, o = sum(sums_of(x[t], h, *weights)).chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * c.tanh()
        ys.append(h)
        kept.append(torch.cat([i, f, g, o, c], 1))
    return in_time(ys, reverse), h, c, in_time(kept, reverse)


def gru(x, h0, *weights, reverse):
    """As the row: (y, hn, reserve)."""
    h, ys, kept = h0, [], []
    for t in times(x, reverse):
        inner, outer = (s.chunk(3, 1) for s in sums_of(x[t], h, *weights))
        r, z = (inner[0] + outer[0]).sigmoid(), (inner[1] + outer[1]).sigmoid()
        n = (inner[2] + r * outer[2]).tanh()
        h = (1 - z) * n + z * h
        ys.append(h)
        kept.append(torch.cat([r, z, n, outer[2]], 1))
    return in_time(ys, reverse), h, in_time(kept, reverse)


def rnn(x, h0, *weights, nonlinearity, reverse):
    """As the row: (y, hn)."""
    h, ys = h0, []
    for t in times(x, reverse):
        h = getattr(torch, nonlinearity)(sum(sums_of(x[t], h, *weights)))
        ys.append(h)
    return in_time(ys, reverse), h


def going_back(dy, dhn, y, h0, reverse):
    """(time, gradient of y or 0, state before) for each step, the last one first."""
    order = list(times(y, reverse))
    for k in range(len(order) - 1, -1, -1):
        t = order[k]
        yield t, 0 if dy is None else dy[t], h0 if k == 0 else y[order[k - 1]]


def or_zero(x, like):
    return torch.zeros_like(like) if x is None else x


def weight_gradients(x, h0, y, inner, outer, reverse):
    """(dw_ih, dw_hh) from the gradients of both sums at each time."""
    before = torch.cat([y[1:], h0[None]]) if reverse else torch.cat([h0[None], y[:-1]])
    return torch.einsum("tbg,tbi->gi", inner, x), torch.einsum("tbg,tbh->gh", outer, before)


def bias_gradient(grad, has_bias):
    return grad.sum((0, 1)) if has_bias else grad.new_empty(0)


def lstm_backward(dy, dhn, dcn, x, h0, c0, w_ih, w_hh, y, reserve, *, has_bias, reverse):
    """As the row: (dx, dh0, dc0, dw_ih, dw_hh, db)."""
    dh, dc, grads = or_zero(dhn, h0), or_zero(dcn, c0), []
    cells = reserve[..., -h0.shape[1]:]
    order = list(times(x, reverse))
    for t, seen, _ in going_back(dy, dhn, y, h0, reverse):
        k = order.index(t)
        i, f, g, o, c = reserve[t].chunk(5, 1)
        before = c0 if k == 0 else cells[order[k - 1]]
        dh = dh + seen
        dc = dc + dh * o * (1 - c.tanh() ** 2)
        parts = [dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g**2),
                 dh * c.tanh() * o * (1 - o)]
        grads.append(torch.cat(parts, 1))
        dh, dc = grads[-1] @ w_hh, dc * f
    grad = in_time(grads, not reverse)
    weights = weight_gradients(x, h0, y, grad, grad, reverse)
    return grad @ w_ih, dh, dc, *weights, bias_gradient(grad, has_bias)


def gru_backward(dy, dhn, x, h0, w_ih, w_hh, y, reserve, *, has_bias, reverse):
    """As the row: (dx, dh0, dw_ih, dw_hh, db_ih, db_hh, sums)."""
    dh, inner, outer = or_zero(dhn, h0), [], []
    for t, seen, before in going_back(dy, dhn, y, h0, reverse):
        r, z, n, part = reserve[t].chunk(4, 1)
        dh = dh + seen
        dn = dh * (1 - z) * (1 - n**2)
        dr, dz = dn * part * r * (1 - r), dh * (before - n) * z * (1 - z)
        inner.append(torch.cat([dr, dz, dn], 1))
        outer.append(torch.cat([dr, dz, dn * r], 1))
        dh = dh * z + outer[-1] @ w_hh
    inner, outer = in_time(inner, not reverse), in_time(outer, not reverse)
    weights = weight_gradients(x, h0, y, inner, outer, reverse)
    biases = bias_gradient(inner, has_bias), bias_gradient(outer, has_bias)
    sums = torch.cat([outer, inner[..., -h0.shape[1]:]], 2)
    return inner @ w_ih, dh, *weights, *biases, sums


def rnn_backward(dy, dhn, x, h0, w_ih, w_hh, y, *, has_bias, nonlinearity, reverse):
    """As the row: (dx, dh0, dw_ih, dw_hh, db)."""
    dh, grads = or_zero(dhn, h0), []
    for t, seen, _ in going_back(dy, dhn, y, h0, reverse):
        slope = 1 - y[t] ** 2 if nonlinearity == "tanh" else (y[t] > 0).to(y.dtype)
        grads.append((dh + seen) * slope)
        dh = grads[-1] @ w_hh
    grad = in_time(grads, not reverse)
    weights = weight_gradients(x, h0, y, grad, grad, reverse)
    return grad @ w_ih, dh, *weights, bias_gradient(grad, has_bias)


FORWARD = {"lstm": lstm, "gru": gru, "rnn": rnn}
BACKWARD = {"lstm": lstm_backward, "gru": gru_backward, "rnn": rnn_backward}


def operands(kind, bias=True, sizes=SIZES):
    """x, states, weights and biases."""
    time, batch, width, hidden = sizes
    rows = GATES[kind] * hidden
    states = [randn(batch, hidden) for _ in range(1 + (kind == "lstm"))]
    biases = [randn(rows), randn(rows)] if bias else [None, None]
    # A recurrence that does not amplify: after 100 steps of one that does, the last bit of the
    # first step is all that tells results apart.
    recurrent = randn(rows, hidden) * (0.5 / hidden**0.5)
    return [randn(time, batch, width), *states, randn(rows, width) / 2, recurrent, *biases]


def kept_operands(kind, attrs, bias, absent):
    """Operands of the backward row: gradients, the layer, and what the forward row kept."""
    layer = operands(kind, bias)
    y, *rest = FORWARD[kind](*layer, **attrs)
    states = 1 + (kind == "lstm")
    grads = [randn(*y.shape), *(randn(*layer[1].shape) for _ in range(states))]
    grads = [None if i in absent else g for i, g in enumerate(grads)]
    return [*grads, *layer[:-2], y, *rest[states:]]


def attrs_of(kind, reverse, nonlinearity):
    return {"reverse": reverse} | ({"nonlinearity": nonlinearity} if kind == "rnn" else {})


def forward(kind, bias=True, reverse=False, nonlinearity="tanh", sizes=SIZES, keep=True):
    """A sample of a forward row."""
    attrs = attrs_of(kind, reverse, nonlinearity)
    unkept = {} if keep else {"keep": False}

    def reference(*given):
        found = FORWARD[kind](*given, **attrs)
        return found if keep else (*found[:-1], None)

    return Sample(kind, lambda: operands(kind, bias, sizes), attrs | unkept, reference=reference,
                  note=f"{sizes}" if bias else "no bias")


def backward(kind, bias=True, reverse=False, nonlinearity="tanh", absent=(), wants_dx=True):
    """A sample of a backward row; `absent` numbers the gradients that are not there."""
    given = attrs_of(kind, reverse, nonlinearity)
    attrs = given | {"has_bias": bias}
    unwanted = {} if wants_dx else {"wants_dx": False}

    def reference(*values):
        found = BACKWARD[kind](*values, **attrs)
        return found if wants_dx else (values[0].new_empty(0), *found[1:])

    return Sample(f"{kind}_backward", lambda: kept_operands(kind, given, bias, absent),
                  attrs | unwanted, reference=reference,
                  note=f"absent {absent}" if absent else "")


SAMPLES = [make(kind, **how)
           for make in (forward, backward) for kind in GATES
           for how in ({}, {"bias": False}, {"reverse": True})]
SAMPLES += [make("rnn", nonlinearity="relu") for make in (forward, backward)]
SAMPLES += [backward("lstm", absent=(1, 2)), backward("lstm", absent=(0,)),
            backward("gru", absent=(1,)), backward("gru", absent=(0,)),
            backward("rnn", absent=(1,)), backward("rnn", absent=(0,))]
SAMPLES += [backward(kind, wants_dx=False) for kind in GATES]
SAMPLES += [forward(kind, keep=False, reverse=reverse)
            for kind in ("lstm", "gru") for reverse in (False, True)]
# Inputs of several steps multiplied at once, 127 and 130 being no multiples of that.
SAMPLES += [forward(kind, sizes=sizes) for kind in GATES
            for sizes in ((127, 1, 3, 20), (130, 2, 40, 17), (3, 200, 9, 70))]


def bad(kind, words, change, **attrs):
    """A call of a forward row with one operand, or an attribute, that does not fit."""
    def inputs():
        given = operands(kind)
        for position, value in change.items():
            given[position] = value
        return given

    return Bad(kind, inputs, attrs_of(kind, False, "tanh") | attrs, words=words)


def bad_backward(kind, words, change):
    """A call of a backward row with one operand that does not fit."""
    given = attrs_of(kind, False, "tanh")

    def inputs():
        values = kept_operands(kind, given, True, ())
        for position, value in change.items():
            values[position] = value
        return values

    return Bad(f"{kind}_backward", inputs, given | {"has_bias": True}, words=words)


BADS = [
    bad("lstm", "x is f32[4,3], h0 is f32[3,6]. Use [time, batch, input]", {0: randn(4, 3)}),
    bad("lstm", "c0 is f32[3,5], expected f32[3,6]", {2: randn(3, 5)}),
    bad("lstm", "w_ih is f32[24,4], expected f32[24,5]", {3: randn(24, 4)}),
    bad("lstm", "b_hh is f32[23], expected f32[24]", {6: randn(23)}),
    bad("lstm", "one of two biases is missing", {6: None}),
    bad("lstm", "a sequence of 0 steps", {0: randn(0, 3, 5)}),
    bad("gru", "w_hh is f32[24,6], expected f32[18,6]", {3: randn(24, 6)}),
    bad("gru", "dtypes differ: f32[4,3,5] and f64[3,6]", {1: randn(3, 6).double()}),
    bad("rnn", 'nonlinearity is "sin". Use "tanh" or "relu"', {}, nonlinearity="sin"),
    bad_backward("lstm", "reserve is f32[4,3,24], expected f32[4,3,30]", {9: randn(4, 3, 24)}),
    bad_backward("gru", "dy is f32[4,3,5], expected f32[4,3,6]", {0: randn(4, 3, 5)}),
    bad_backward("rnn", "y is f32[3,3,6], expected f32[4,3,6]", {6: randn(3, 3, 6)}),
]

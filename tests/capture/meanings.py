"""What layers with dropout, recurrent layers and the CTC loss mean, in PyTorch."""

import torch
import torch.nn.functional as F

from poptorch._capture.library import ctc, recurrent  # noqa: F401  (they declare operations)
from poptorch._capture.library.layers import ops
from poptorch.testing._meanings import attention_scores

aten = torch.ops.aten


def keep(shape, p: float, salt: int, dtype=torch.float64) -> torch.Tensor:
    """A dropout mask that follows from the salt: 0 or ``1 / (1 - p)``."""
    generator = torch.Generator().manual_seed(salt)
    drawn = torch.rand(tuple(shape), generator=generator, dtype=torch.float64)
    return (drawn >= p).to(dtype) / (1.0 - p)


def dropout(x, p, salt):
    return x * keep(x.shape, p, salt, x.dtype)


def attention(q, k, v, mask, dropout_p, is_causal, scale, salt, like_query=False):
    scores = attention_scores(q, k, mask, is_causal, scale)
    weights = scores.softmax(-1)
    if dropout_p > 0:
        weights = weights * keep(weights.shape, dropout_p, salt, weights.dtype)
    return weights @ v, scores.logsumexp(-1)


def attention_backward(grad, q, k, v, mask, logsumexp, *settings):
    with torch.enable_grad():
        q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
        return torch.autograd.grad(attention(q, k, v, mask, *settings)[0], (q, k, v), grad)


def _steps(x, reverse):
    return reversed(range(len(x))) if reverse else range(len(x))


def _linear(x, weight, bias):
    return F.linear(x, weight, bias)


def _if(wanted, result):
    """What is not wanted is empty."""
    return result if wanted else result.new_empty(0)


def lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, reverse, keep):
    h, c = h0, c0
    y, reserve = [None] * len(x), [None] * len(x)
    for t in _steps(x, reverse):
        i, f, g, o = (_linear(x[t], w_ih, b_ih) + _linear(h, w_hh, b_hh)).chunk(4, -1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * c.tanh()
        y[t], reserve[t] = h, torch.cat([i, f, g, o, c], -1)
    return torch.stack(y), h, c, _if(keep, torch.stack(reserve))


def gru(x, h0, w_ih, w_hh, b_ih, b_hh, reverse, keep):
    h = h0
    y, reserve = [None] * len(x), [None] * len(x)
    for t in _steps(x, reverse):
        xr, xz, xn = _linear(x[t], w_ih, b_ih).chunk(3, -1)
        hr, hz, hn = _linear(h, w_hh, b_hh).chunk(3, -1)
        r, z = (xr + hr).sigmoid(), (xz + hz).sigmoid()
        n = (xn + r * hn).tanh()
        h = (1 - z) * n + z * h
        y[t], reserve[t] = h, torch.cat([r, z, n, hn], -1)
    return torch.stack(y), h, _if(keep, torch.stack(reserve))


def rnn(x, h0, w_ih, w_hh, b_ih, b_hh, nonlinearity, reverse):
    h = h0
    y = [None] * len(x)
    for t in _steps(x, reverse):
        h = getattr(torch, nonlinearity)(_linear(x[t], w_ih, b_ih) + _linear(h, w_hh, b_hh))
        y[t] = h
    return torch.stack(y), h


def _gradients(forward, inputs, outputs_of, gradients, biases):
    """Gradients of a recurrent layer: those of ``inputs``, then of each bias wanted."""
    with torch.enable_grad():
        inputs = [t.detach().requires_grad_() for t in inputs]
        biases = [b.detach().requires_grad_() for b in biases]
        outputs = outputs_of(forward(inputs, biases))
        pairs = [(o, g) for o, g in zip(outputs, gradients) if g is not None]
        return torch.autograd.grad([o for o, _ in pairs], inputs + biases, [g for _, g in pairs])


def lstm_backward(dy, dhn, dcn, x, h0, c0, w_ih, w_hh, y, reserve, has_bias, wants_dx, reverse):
    bias = _recovered_lstm_bias(x, h0, w_ih, w_hh, y, reserve, reverse)
    dx, *found, db = _gradients(
        lambda i, b: lstm(*i, b[0], None, reverse, True), (x, h0, c0, w_ih, w_hh),
        lambda o: o[:3], (dy, dhn, dcn), [bias])
    return _if(wants_dx, dx), *found, _if(has_bias, db)


def _recovered_lstm_bias(x, h0, w_ih, w_hh, y, reserve, reverse):
    """The sum of the biases, from the first step's gates."""
    t = len(x) - 1 if reverse else 0
    i, f, g, o, _ = reserve[t][0].chunk(5, -1)
    gates = torch.cat([i.logit(), f.logit(), g.atanh(), o.logit()])
    return gates - w_ih @ x[t][0] - w_hh @ h0[0]


def gru_backward(dy, dhn, x, h0, w_ih, w_hh, y, reserve, has_bias, wants_dx, reverse):
    t = len(x) - 1 if reverse else 0
    r, z, n, hn = reserve[t][0].chunk(4, -1)
    size = len(r)
    b_hh = torch.zeros_like(w_hh[:, 0])
    b_hh[2 * size :] = hn - (w_hh @ h0[0])[2 * size :]
    whole = torch.cat([r.logit(), z.logit(), n.atanh() - r * hn])
    hidden = torch.cat([(w_hh @ h0[0])[: 2 * size], torch.zeros_like(r)])
    b_ih = whole - w_ih @ x[t][0] - hidden
    dx, *found, db_ih, db_hh = _gradients(
        lambda i, b: gru(*i, *b, reverse, True), (x, h0, w_ih, w_hh), lambda o: o[:2], (dy, dhn),
        [b_ih, b_hh])
    return _if(wants_dx, dx), *found, _if(has_bias, db_ih), _if(has_bias, db_hh)


def rnn_backward(dy, dhn, x, h0, w_ih, w_hh, y, has_bias, wants_dx, nonlinearity, reverse):
    """Written step by step: a ReLU's bias cannot be recovered from its result."""
    grad = torch.zeros_like(h0) if dhn is None else dhn
    dx, dw_ih, dw_hh = torch.zeros_like(x), torch.zeros_like(w_ih), torch.zeros_like(w_hh)
    db = torch.zeros_like(w_ih[:, 0])
    order = list(_steps(x, reverse))
    for position, t in reversed(list(enumerate(order))):
        grad = grad if dy is None else grad + dy[t]
        slope = 1 - y[t] ** 2 if nonlinearity == "tanh" else (y[t] > 0).to(y.dtype)
        inner = grad * slope
        before = y[order[position - 1]] if position else h0
        dx[t] = inner @ w_ih
        dw_ih += inner.T @ x[t]
        dw_hh += inner.T @ before
        db += inner.sum(0)
        grad = inner @ w_hh
    return _if(wants_dx, dx), grad, dw_ih, dw_hh, _if(has_bias, db)


def _ctc(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    losses, alpha = aten._ctc_loss(log_probs, targets, input_lengths.tolist(),
                                   target_lengths.tolist(), blank, zero_infinity)
    return losses, alpha


def ctc_loss(log_probs, targets, *settings):
    losses, alpha = _ctc(log_probs, targets, *settings)
    if settings[-1]:
        losses = losses.masked_fill(losses == torch.inf, 0)
    return losses, F.pad(alpha, (0, 2 * targets.shape[1] + 1 - alpha.shape[2]))


def ctc_loss_backward(grad_output, log_probs, targets, input_lengths, target_lengths, alpha,
                      *settings):
    losses, alpha = _ctc(log_probs, targets, input_lengths, target_lengths, *settings)
    return aten._ctc_loss_backward(grad_output, log_probs, targets, input_lengths.tolist(),
                                   target_lengths.tolist(), losses, alpha, *settings)


MEANINGS = {
    getattr(ops, function.__name__).default: function
    for function in (dropout, attention, attention_backward, lstm, lstm_backward, gru,
                     gru_backward, rnn, rnn_backward, ctc_loss, ctc_loss_backward)
}

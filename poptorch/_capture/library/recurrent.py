"""The recurrent operations of namespace ``poptorch``: one layer, one direction.

``x`` is ``[time, batch, input]``, states are ``[batch, hidden]``, gates lie side by side in the
weights' rows in torch's order. ``reserve`` is what the forward pass keeps for the gradient; it is
empty where ``keep`` is false.
"""

import torch
import torch.nn.functional as F

from poptorch._capture.library import double_backward
from poptorch._capture.library.layers import define, empty_part, ops
from poptorch._capture.library.saved_for_backward import keep, kept

_WEIGHTS = "Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh"


def _like(*tensors):
    return tuple(t.new_empty(t.shape) for t in tensors)


def _sequence(x, h0, width: int = 1):
    """An empty tensor for ``width`` hidden vectors at each time."""
    return x.new_empty(x.shape[0], *h0.shape[:-1], width * h0.shape[-1])


def _reserve(x, h0, width: int, keep: bool):
    return _sequence(x, h0, width) if keep else empty_part(x)


def _input_gradient(x, wants_dx: bool):
    return x.new_empty(x.shape if wants_dx else 0)


def _bias(w_ih, has_bias: bool):
    return w_ih.new_empty(w_ih.shape[0]) if has_bias else empty_part(w_ih)


def by_steps(step, x, states, w_ih, w_hh, b_ih, b_hh, reverse):
    """The layer by operations of torch, which can be differentiated again and transformed; ``step``
    takes the sums of a time from the input and from the state, and the states."""
    sums = F.linear(x, w_ih, b_ih)
    found = [None] * len(x)
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        states = step(sums[t], F.linear(states[0], w_hh, b_hh), *states)
        found[t] = states[0]
    return torch.stack(found), *states


def _keep_layer(ctx, inputs, output):
    """For a layer whose results are those of each time, the last states, and the reserve if the
    last setting says whether to keep it."""
    *operands, first, second = inputs
    ctx.count = len(operands)
    reserve = output[ctx.count - 4:]
    ctx.mark_non_differentiable(*reserve)
    ctx.settings = (first,) if reserve else (first, second)
    keep(ctx, *operands, output[0], *reserve)


def _layer_gradient(name: str, step_of):
    """The gradients of x, the states, both weights and both biases, by the op of a name; or, where
    they are to be differentiated, by ``step_of(settings)`` for each time."""
    def gradient(ctx, *gradients):
        saved = kept(ctx)
        operands, results = saved[:ctx.count], saved[ctx.count:]
        gradients, reverse = gradients[:ctx.count - 4], ctx.settings[-1]
        if torch.is_grad_enabled():
            return double_backward.differentiable(
                lambda x, *others: by_steps(step_of(ctx.settings), x, others[:-4], *others[-4:],
                                            reverse),
                operands, ctx.needs_input_grad[:ctx.count], gradients)
        *inputs, b_ih, _ = operands
        wants_dx, has_bias = ctx.needs_input_grad[0], b_ih is not None
        dx, *found = getattr(ops, name)(
            *gradients, *inputs, *results, has_bias, wants_dx, *ctx.settings)
        found, biases = found[:len(inputs) - 1], found[len(inputs) - 1:]
        return (dx if wants_dx else None, *found,
                *((biases[0], biases[-1]) if has_bias else (None, None)))

    return gradient


# -- LSTM --------------------------------------------------------------------------------------


def _lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, reverse, keep):
    return _sequence(x, h0), *_like(h0, c0), _reserve(x, h0, 5, keep)


def lstm_step(x, y, h, c):
    i, f, g, o = (x + y).chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


define(f"lstm(Tensor x, Tensor h0, Tensor c0, {_WEIGHTS}, bool reverse, bool keep) "
       "-> (Tensor, Tensor, Tensor, Tensor)", _lstm, _keep_layer,
       _layer_gradient("lstm_backward", lambda settings: lstm_step))
define("lstm_backward(Tensor? dy, Tensor? dhn, Tensor? dcn, Tensor x, Tensor h0, Tensor c0, "
       "Tensor w_ih, Tensor w_hh, Tensor y, Tensor reserve, bool has_bias, bool wants_dx, "
       "bool reverse) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
       lambda dy, dhn, dcn, x, h0, c0, w_ih, w_hh, y, reserve, has_bias, wants_dx, reverse:
       (_input_gradient(x, wants_dx), *_like(h0, c0, w_ih, w_hh), _bias(w_ih, has_bias)))


# -- GRU ---------------------------------------------------------------------------------------


def _gru(x, h0, w_ih, w_hh, b_ih, b_hh, reverse, keep):
    return _sequence(x, h0), *_like(h0), _reserve(x, h0, 4, keep)


def gru_step(x, y, h):
    (x_r, x_z, x_n), (y_r, y_z, y_n) = x.chunk(3, -1), y.chunk(3, -1)
    z = (x_z + y_z).sigmoid()
    n = (x_n + (x_r + y_r).sigmoid() * y_n).tanh()
    return n + z * (h - n),


define(f"gru(Tensor x, Tensor h0, {_WEIGHTS}, bool reverse, bool keep) "
       "-> (Tensor, Tensor, Tensor)", _gru, _keep_layer,
       _layer_gradient("gru_backward", lambda settings: gru_step))
define("gru_backward(Tensor? dy, Tensor? dhn, Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, "
       "Tensor y, Tensor reserve, bool has_bias, bool wants_dx, bool reverse) "
       "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
       lambda dy, dhn, x, h0, w_ih, w_hh, y, reserve, has_bias, wants_dx, reverse:
       (_input_gradient(x, wants_dx), *_like(h0, w_ih, w_hh),
        _bias(w_ih, has_bias), _bias(w_ih, has_bias)))


# -- RNN ---------------------------------------------------------------------------------------


def _rnn(x, h0, w_ih, w_hh, b_ih, b_hh, nonlinearity, reverse):
    return _sequence(x, h0), *_like(h0)


RNN_STEPS = {"tanh": lambda x, y, h: ((x + y).tanh(),), "relu": lambda x, y, h: ((x + y).relu(),)}


define(f"rnn(Tensor x, Tensor h0, {_WEIGHTS}, str nonlinearity, bool reverse) "
       "-> (Tensor, Tensor)", _rnn, _keep_layer,
       _layer_gradient("rnn_backward", lambda settings: RNN_STEPS[settings[0]]))
define("rnn_backward(Tensor? dy, Tensor? dhn, Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, "
       "Tensor y, bool has_bias, bool wants_dx, str nonlinearity, bool reverse) "
       "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
       lambda dy, dhn, x, h0, w_ih, w_hh, y, has_bias, wants_dx, nonlinearity, reverse:
       (_input_gradient(x, wants_dx), *_like(h0, w_ih, w_hh), _bias(w_ih, has_bias)))

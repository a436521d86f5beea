"""The recurrent operations of namespace ``poptorch``: one layer, one direction.

``x`` is ``[time, batch, input]``, states are ``[batch, hidden]``, gates lie side by side in the
weights' rows in torch's order. ``reserve`` is what the forward pass keeps for the gradient; it is
empty where ``keep`` is false.
"""

from poptorch._capture.kept import keep, kept
from poptorch._capture.library import define, empty_part, ops

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


# -- LSTM --------------------------------------------------------------------------------------


def _lstm(x, h0, c0, w_ih, w_hh, b_ih, b_hh, reverse, keep):
    return _sequence(x, h0), *_like(h0, c0), _reserve(x, h0, 5, keep)


def _keep_lstm(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[3])
    x, h0, c0, w_ih, w_hh, b_ih, _, ctx.reverse, _ = inputs
    ctx.has_bias = b_ih is not None
    keep(ctx, x, h0, c0, w_ih, w_hh, output[0], output[3])


def _lstm_gradient(ctx, dy, dhn, dcn, _):
    if dy is None and dhn is None and dcn is None:
        return (None,) * 9
    wants_dx = ctx.needs_input_grad[0]
    dx, *found, db = ops.lstm_backward(
        dy, dhn, dcn, *kept(ctx), ctx.has_bias, wants_dx, ctx.reverse)
    biases = (db, db) if ctx.has_bias else (None, None)
    return dx if wants_dx else None, *found, *biases, None, None


define(f"lstm(Tensor x, Tensor h0, Tensor c0, {_WEIGHTS}, bool reverse, bool keep) "
       "-> (Tensor, Tensor, Tensor, Tensor)", _lstm, _keep_lstm, _lstm_gradient)
define("lstm_backward(Tensor? dy, Tensor? dhn, Tensor? dcn, Tensor x, Tensor h0, Tensor c0, "
       "Tensor w_ih, Tensor w_hh, Tensor y, Tensor reserve, bool has_bias, bool wants_dx, "
       "bool reverse) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
       lambda dy, dhn, dcn, x, h0, c0, w_ih, w_hh, y, reserve, has_bias, wants_dx, reverse:
       (_input_gradient(x, wants_dx), *_like(h0, c0, w_ih, w_hh), _bias(w_ih, has_bias)))


# -- GRU ---------------------------------------------------------------------------------------


def _gru(x, h0, w_ih, w_hh, b_ih, b_hh, reverse, keep):
    return _sequence(x, h0), *_like(h0), _reserve(x, h0, 4, keep)


def _keep_gru(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[2])
    x, h0, w_ih, w_hh, b_ih, _, ctx.reverse, _ = inputs
    ctx.has_bias = b_ih is not None
    keep(ctx, x, h0, w_ih, w_hh, output[0], output[2])


def _gru_gradient(ctx, dy, dhn, _):
    if dy is None and dhn is None:
        return (None,) * 8
    wants_dx = ctx.needs_input_grad[0]
    dx, *found, db_ih, db_hh = ops.gru_backward(
        dy, dhn, *kept(ctx), ctx.has_bias, wants_dx, ctx.reverse)
    biases = (db_ih, db_hh) if ctx.has_bias else (None, None)
    return dx if wants_dx else None, *found, *biases, None, None


define(f"gru(Tensor x, Tensor h0, {_WEIGHTS}, bool reverse, bool keep) "
       "-> (Tensor, Tensor, Tensor)",
       _gru, _keep_gru, _gru_gradient)
define("gru_backward(Tensor? dy, Tensor? dhn, Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, "
       "Tensor y, Tensor reserve, bool has_bias, bool wants_dx, bool reverse) "
       "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
       lambda dy, dhn, x, h0, w_ih, w_hh, y, reserve, has_bias, wants_dx, reverse:
       (_input_gradient(x, wants_dx), *_like(h0, w_ih, w_hh),
        _bias(w_ih, has_bias), _bias(w_ih, has_bias)))


# -- RNN ---------------------------------------------------------------------------------------


def _rnn(x, h0, w_ih, w_hh, b_ih, b_hh, nonlinearity, reverse):
    return _sequence(x, h0), *_like(h0)


def _keep_rnn(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    x, h0, w_ih, w_hh, b_ih, _, ctx.nonlinearity, ctx.reverse = inputs
    ctx.has_bias = b_ih is not None
    keep(ctx, x, h0, w_ih, w_hh, output[0])


def _rnn_gradient(ctx, dy, dhn):
    if dy is None and dhn is None:
        return (None,) * 8
    wants_dx = ctx.needs_input_grad[0]
    dx, *found, db = ops.rnn_backward(
        dy, dhn, *kept(ctx), ctx.has_bias, wants_dx, ctx.nonlinearity, ctx.reverse)
    biases = (db, db) if ctx.has_bias else (None, None)
    return dx if wants_dx else None, *found, *biases, None, None


define(f"rnn(Tensor x, Tensor h0, {_WEIGHTS}, str nonlinearity, bool reverse) "
       "-> (Tensor, Tensor)", _rnn, _keep_rnn, _rnn_gradient)
define("rnn_backward(Tensor? dy, Tensor? dhn, Tensor x, Tensor h0, Tensor w_ih, Tensor w_hh, "
       "Tensor y, bool has_bias, bool wants_dx, str nonlinearity, bool reverse) "
       "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
       lambda dy, dhn, x, h0, w_ih, w_hh, y, has_bias, wants_dx, nonlinearity, reverse:
       (_input_gradient(x, wants_dx), *_like(h0, w_ih, w_hh), _bias(w_ih, has_bias)))

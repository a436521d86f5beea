"""LSTM, GRU and RNN layers by one operation for each layer and direction."""

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from poptorch._base.torch_private import tracing as private
from poptorch._capture.functions.mixed_precision import autocast, autocast_beside, follow
from poptorch._capture.functions.packed import (
    PackedData,
    inside,
    known_sizes,
    packed,
    unpacked,
    without_padding,
)
from poptorch._capture.graph.constant_values import is_known_zero
from poptorch._capture.library import recurrent as library
from poptorch._capture.library.layers import ops


@dataclass(frozen=True)
class _Layers:
    """Settings of a recurrent module, as torch's functions take them."""

    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool

    def run(self, capture, cell, x, states, weights):
        """Stacks layers and directions as torch does; returns (output, final states).

        ``cell(x, states, weights, reverse)`` computes one layer in one direction.
        """
        x = x.transpose(0, 1) if self.batch_first else x
        directions = 2 if self.bidirectional else 1
        finals = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(directions):
                index = layer * directions + direction
                own = [state[index] for state in states]
                y, *ends = cell(x, own, self._weights(weights, index), direction == 1)
                outputs.append(y)
                finals.append(ends)
            x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
            if layer < self.num_layers - 1:
                x = self._dropped(capture, x)
        x = x.transpose(0, 1) if self.batch_first else x
        return x, [torch.stack(final) for final in zip(*finals)]

    def _weights(self, weights, index: int):
        """w_ih, w_hh, b_ih, b_hh of one layer and direction, and w_hr where it is projected."""
        count = len(weights) // (self.num_layers * (2 if self.bidirectional else 1))
        own = list(weights[index * count : (index + 1) * count])
        return own if self.has_biases else [*own[:2], None, None, *own[2:]]

    def _dropped(self, capture, x):
        if not self.train or self.dropout == 0.0:
            return x
        if private.is_transformed():
            return F.dropout(x, self.dropout)
        return x * 0.0 if self.dropout == 1.0 else ops.dropout(
            x, self.dropout, capture.draw_salt(), capture.random_state())


def of_lengths(cell, lengths, stops: tuple):
    """``cell`` for sequences of several lengths, ``int64[batch]``.

    What it gives behind the end of a sequence is 0. The last state of a sequence is its last
    output; what other states there are must stay as they are behind the end, where an additional
    input of the layer is 1, with the weights ``stops`` of the gates.
    """

    def run(x, states, weights, reverse):
        time, batch = x.shape[:2]
        order = _reversed(lengths, time) if reverse else None
        x = _ordered(x, order)
        if stops:
            w_ih, *others = weights
            hidden = w_ih.shape[0] // len(stops)
            column = torch.tensor(stops, dtype=w_ih.dtype).repeat_interleave(hidden).unsqueeze(1)
            is_behind = (~inside(lengths, time)).to(x.dtype).unsqueeze(2)
            x = torch.cat([x, is_behind], 2)
            weights = [torch.cat([w_ih, column], 1), *others]
        y, _, *ends = cell(x, states, weights, False)
        last = (lengths - 1).reshape(1, batch, 1).expand(1, batch, y.shape[2])
        last = y.gather(0, last).squeeze(0)
        return _ordered(without_padding(y, lengths), order), last, *ends

    return run


def _reversed(lengths, time: int):
    """The time in a sequence for each time in the sequence backwards: ``int64[time, batch]``."""
    times = torch.arange(time).unsqueeze(1)
    return torch.where(times < lengths, lengths - 1 - times, times)


def _ordered(x, order):
    return x if order is None else x.gather(0, order.unsqueeze(2).expand(x.shape))


def _handler(function):
    """A handler that takes packed sequences too: their batch sizes stand in second place."""

    def handler(capture, func, /, *args, **kwargs):
        if kwargs or len(args) != 9:
            return NotImplemented
        if isinstance(args[3], bool):
            return function(capture, *args[:3], args[3:])
        data, sizes, states, weights, *settings = args
        is_known = not isinstance(data, PackedData)
        if is_known:
            sizes = known_sizes(capture, sizes)
            x, lengths = unpacked(data, sizes)
        else:
            x, lengths = data.padded, data.lengths
        out = function(capture, x, states, weights, (*settings, False), lengths)
        if out is NotImplemented:
            return out
        y, *ends = out
        if is_known:
            return packed(y, sizes), *ends
        return PackedData.make(padded=y, lengths=lengths, made_at=data.made_at), *ends

    return handler


def _cell(run, step):
    """What computes a layer in one direction: ``run(x, *states, *weights, reverse)`` or, where
    ``torch.func`` transforms it, which has no rules for that, ``step`` for each time."""
    def cell(x, states, weights, reverse):
        if private.is_transformed():
            return library.by_steps(step, x, states, *weights, reverse)
        return run(x, *states, *weights, reverse)[:1 + len(states)]

    return cell


@_handler
def _lstm(capture, x, states, weights, settings, lengths=None):
    if len(states) != 2 or not all(t.is_floating_point() for t in (x, *states)):
        return NotImplemented  # torch has the words for it

    cell = _cell(lambda *layer: ops.lstm(*layer, torch.is_grad_enabled()), library.lstm_step)
    is_projected = states[0].shape[-1] != states[1].shape[-1]
    cell_type = autocast_beside(states[1])
    starts_at_zero = is_projected and not private.is_transformed() \
        and is_known_zero(capture.recorder, states[0])
    is_between = states[1].itemsize == 2 and cell_type is torch.float32
    x, *states = autocast(x, *states)
    weights = follow(x, autocast(*weights))
    if is_between and not is_projected:
        # Torch has gates of one 16-bit type and a cell state of the other.
        (x, *states), weights = ([t.to(cell_type) for t in tensors] for tensors in
                                 ((x, *states), weights))
    if is_projected:
        cell = functools.partial(_projected, cell, starts_at_zero)
    if lengths is not None:
        cell = of_lengths(cell, lengths, _LSTM_STOPS)
    y, (h, c) = _Layers(*settings).run(capture, cell, x, states, weights)
    return y, h, c.to(cell_type) if is_projected else c


def _projected(cell, starts_at_zero: bool, x, states, weights, reverse):
    """A layer whose outputs and states ``h`` are the hidden units times ``w_hr``.

    The hidden units of the step before are multiplied by both matrices, so by their product. What
    ``h0`` adds to the first step is added to its input.
    """
    (h0, c0), (w_ih, w_hh, b_ih, b_hh, w_hr) = states, weights
    if not starts_at_zero:
        steps = x.shape[0] - 1
        first = F.pad(h0.unsqueeze(0), (0, 0, 0, 0, *((steps, 0) if reverse else (0, steps))))
        x, w_ih = torch.cat([x, first], 2), torch.cat([w_ih, w_hh], 1)
    # The one step of a sequence has none before it: nothing of its cell state is of w_hr.
    inner = w_hr if x.shape[0] > 1 else w_hr.detach()
    y, h, c = cell(x, (torch.zeros_like(c0), c0), (w_ih, w_hh @ inner, b_ih, b_hh), reverse)
    return y @ w_hr.t(), h @ w_hr.t(), c


# What stops each gate (i, f, g, o) of an LSTM behind the end of a sequence: the cell state stays.
_LSTM_STOPS = (-1e4, 1e4, 0.0, 0.0)


def _one_state(run, step, lower_precision: bool = False, stops: tuple = ()):
    """Handler of the layers with one state: GRU and both kinds of RNN.

    ``run`` and ``step`` are those of a cell.
    """

    @_handler
    def handler(capture, x, state, weights, settings, lengths=None):
        if not (x.is_floating_point() and state.is_floating_point()):
            return NotImplemented  # torch has the words for it
        if lower_precision:
            (x, state), weights = autocast(x, state), autocast(*weights)
        elif torch.is_autocast_enabled("cpu"):
            dtype = autocast_beside(state)
            x, state, *weights = (t.to(dtype) for t in (x, state, *weights))

        cell = _cell(run, step)
        weights = follow(x, weights)
        if lengths is not None:
            cell = of_lengths(cell, lengths, stops)
        y, (h,) = _Layers(*settings).run(capture, cell, x, (state,), weights)
        return y, h

    return handler


# Under autocast a GRU's results have the type of its state, single precision mostly, in torch too.
_GRU = _one_state(lambda *layer: ops.gru(*layer, torch.is_grad_enabled()), library.gru_step)
_TANH = _one_state(lambda *layer: ops.rnn(*layer[:-1], "tanh", layer[-1]),
                   library.RNN_STEPS["tanh"], lower_precision=True)
_RELU = _one_state(lambda *layer: ops.rnn(*layer[:-1], "relu", layer[-1]),
                   library.RNN_STEPS["relu"], lower_precision=True, stops=(-1e4,))

# As modules call them, and as exported programs do.
HANDLERS = {
    private.recurrent_functions.lstm: _lstm,
    private.recurrent_functions.gru: _GRU,
    private.recurrent_functions.rnn_tanh: _TANH,
    private.recurrent_functions.rnn_relu: _RELU,
    torch.ops.aten.lstm.input: _lstm,
    torch.ops.aten.gru.input: _GRU,
    torch.ops.aten.rnn_tanh.input: _TANH,
    torch.ops.aten.rnn_relu.input: _RELU,
}

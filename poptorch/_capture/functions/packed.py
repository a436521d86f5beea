"""Packed sequences: sequences of several lengths, without the padding between them.

Where the lengths are known, a packed sequence is the same as in PyTorch. Where they come with each
call, so does the size of its data: it is kept as padded tensor and lengths, which is what recurrent
layers take and give.
"""

import torch

from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph.constant_values import known_value
from poptorch._capture.graph.unknown_sizes import UnknownSize
from poptorch._capture.library.value_checks import checked
from poptorch.errors import Error, error_at

aten = torch.ops.aten

_ATTRIBUTES = {"dtype", "device", "requires_grad", "is_cuda", "layout"}


class Longest(int):
    """The length of the longest sequence, or an upper limit of it."""

    def __gt__(self, other):
        return False  # what is compared with it is checked when the program runs


class PackedData(UnknownSize):
    """``data`` of a packed sequence, packed at ``made_at``: the user's place, the module.

    ``padded`` is ``[time, batch, ...]``, zero behind the end of each sequence; ``lengths`` are
    ``int64[batch]``.
    """

    @classmethod
    def refusal(cls, func):
        name = getattr(func, "__name__", "an operation")
        return Error(f"[pack_padded_sequence] {name} is used on the data of a packed sequence, "
                     f"whose size depends on the lengths of each call. Use only LSTM, GRU or RNN "
                     f"between packing and pad_packed_sequence, and other functions on padded "
                     f"tensors; or pass the lengths as a list of numbers, which is compiled in.")

    def call(self, capture, func, args, kwargs):
        name = getattr(func, "__name__", "")
        if name == "__get__" and func.__self__.__name__ in _ATTRIBUTES:
            return getattr(self.padded, func.__self__.__name__)
        if name in ("to", "type_as") and isinstance(args[0], PackedData):
            padded = func(self.padded, *args[1:], **kwargs)
            return PackedData.make(padded=padded, lengths=self.lengths, made_at=self.made_at)
        if name in ("dim", "is_floating_point"):
            return self.padded.dim() - 1 if name == "dim" else func(self.padded)
        if name == "size" and (*args[1:], *kwargs.values()) == (-1,):
            return self.padded.shape[-1]
        raise error_at(self.refusal(func).message, capture.recorder.places.here(),
                       capture.recorder.module)


class BatchSizes(UnknownSize):
    """``batch_sizes`` of ``packed``: how many sequences have an element at each time."""

    refusal = PackedData.refusal

    def call(self, capture, func, args, kwargs):
        name = getattr(func, "__name__", "")
        padded = self.packed.padded
        if name == "__get__" and func.__self__.__name__ == "device":
            return padded.device
        if name == "__getitem__" and type(args[1]) is int and args[1] == 0:
            return padded.shape[1]  # each sequence has one element at least
        if name == "size" and (*args[1:], *kwargs.values()) == (0,):
            return Longest(padded.shape[0])
        return self.packed.call(capture, func, args, kwargs)


def inside(lengths: torch.Tensor, time: int) -> torch.Tensor:
    """Whether a time is inside of a sequence: ``bool[time, batch]``."""
    return torch.arange(time).unsqueeze(1) < lengths


def without_padding(x: torch.Tensor, lengths: torch.Tensor, padding: float = 0.0) -> torch.Tensor:
    """``x`` [time, batch, ...] with ``padding`` behind the end of each sequence."""
    mask = inside(lengths, x.shape[0])
    return torch.where(mask.reshape(*mask.shape, *[1] * (x.dim() - 2)), x,
                       x.new_full((), padding))  # of its type, whole numbers too


# -- packing -----------------------------------------------------------------------------------


def _pack(capture, func, input, lengths, batch_first=False):
    if input.dim() < 2 or list(lengths.shape) != [input.shape[not batch_first]] \
            or not input.shape[batch_first]:
        return NotImplemented  # torch has the words for it
    known = known_value(capture.recorder, lengths)
    x = input.transpose(0, 1) if batch_first else input
    made_at = capture.recorder.places.here(), capture.recorder.module
    if known is not None:
        data, sizes = _packed_by_lengths(x, known)
        return data, aten.lift_fresh(sizes)
    lengths = _checked_lengths(lengths, x.shape[0])
    data = PackedData.make(padded=without_padding(x, lengths), lengths=lengths,
                           made_at=made_at)
    return data, BatchSizes.make(packed=data, made_at=made_at)


def _packed_by_lengths(x, lengths: torch.Tensor):
    """Data and batch sizes for lengths that are known; torch's own function refuses wrong ones."""
    with private.without_modes():
        line = torch.zeros(*x.shape[:2], 1)
        _, sizes = private.recurrent_functions._pack_padded_sequence(line, lengths, False)
    return packed(x, sizes), sizes


def packed(x, sizes: torch.Tensor) -> torch.Tensor:
    """The elements of ``x``, [time, batch, ...], that sequences of known batch sizes have."""
    with private.without_modes():
        mask = torch.arange(x.shape[1]) < sizes.unsqueeze(1)
        rows = mask.reshape(-1).nonzero().squeeze(1)
    return x[:len(sizes)].flatten(0, 1).index_select(0, rows)


def _checked_lengths(lengths, time: int):
    lengths = checked(lengths, (lengths >= 1).all() & (lengths <= time).all(),
                      f"[pack_padded_sequence] a length is not between 1 and {time}, the steps of "
                      f"the padded tensor. Leave out empty sequences, or pad further.")
    return checked(lengths, (lengths[1:] <= lengths[:-1]).all(),
                   "[pack_padded_sequence] lengths are to fall from sequence to sequence. Pass "
                   "enforce_sorted=False where they do not.")


def _unpack(capture, func, data, batch_sizes, batch_first, padding_value, total_length):
    if isinstance(data, PackedData):
        x, lengths = _padded(data, padding_value, total_length)
    else:
        sizes = known_sizes(capture, batch_sizes)
        x, lengths = unpacked(data, sizes, padding_value, total_length)
    return x.transpose(0, 1) if batch_first else x, lengths


def _padded(data: PackedData, padding: float, total):
    x, lengths = data.padded, data.lengths
    time = x.shape[0]
    if isinstance(total, Longest):
        lengths = checked(
            lengths, lengths.max() == time,
            f"[pad_packed_sequence] the longest sequence is shorter than the {time} steps that "
            f"were packed, so that PyTorch gives less than {time} steps, but the lengths are not "
            f"known when the model is compiled. Pass total_length={time}.")
    elif total < time:
        lengths = checked(lengths, lengths.max() <= total,
                          f"[pad_packed_sequence] total_length is {total}, but a sequence is "
                          f"longer. Pass at least the length of the longest one.")
        x = x[:total]
    elif total > time:
        x = torch.cat([x, x.new_zeros(total - time, *x.shape[1:])])
    # What is checked has to be read, or the check is dropped with it: some read the result alone.
    is_checked = lengths is not data.lengths
    return (without_padding(x, lengths, padding) if is_checked or padding else x), lengths


def known_sizes(capture, batch_sizes) -> torch.Tensor:
    """The values of ``batch_sizes``, of a packed sequence whose data are a tensor."""
    known = known_value(capture.recorder, batch_sizes)
    if known is None:
        raise capture.recorder.values.error_of_packed(batch_sizes) or capture.recorder.error(
            "[pad_packed_sequence] the batch sizes of a packed sequence are values of each call, "
            "and the shape of its data follows from them. Pass padded tensors and lengths to the "
            "model, and pack them in forward.")
    return known


def unpacked(data, sizes: torch.Tensor, padding: float = 0.0, total: int = 0):
    """The padded tensor, [time, batch, ...], and the lengths of sequences of known sizes."""
    with private.without_modes():
        time, batch = max(len(sizes), int(total)), int(sizes[0])
        lengths = (sizes.unsqueeze(1) > torch.arange(batch)).sum(0)
        first = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
        starts = torch.nn.functional.pad(first[:-1], (0, time - len(sizes)))
        mask = inside(lengths, time)
        rows = torch.where(mask, starts.unsqueeze(1) + torch.arange(batch), 0).reshape(-1)
        lengths = lengths.contiguous()
    x = data.index_select(0, rows).unflatten(0, (time, batch))
    x = torch.where(mask.reshape(time, batch, *[1] * (x.dim() - 2)), x,
                    x.new_full((), padding))
    return x, aten.lift_fresh(lengths)


HANDLERS = {
    private.recurrent_functions._pack_padded_sequence: _pack,
    private.recurrent_functions._pad_packed_sequence: _unpack,
}

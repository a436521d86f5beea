"""Decoding of what a network that was trained by CTC loss says."""

import torch

from poptorch._base.capture_context import is_capturing
from poptorch._capture.library import without_gradient  # noqa: F401  (declares the operation)
from poptorch._capture.library.evaluated import evaluated
from poptorch._capture.library.layers import ops
from poptorch.errors import Error

_WHERE = "ctc_beam_search_decoder"


def ctc_beam_search_decoder(probs: torch.Tensor, lengths: torch.Tensor, blank: int = 0,
                            beam_width: int = 100, top_paths: int = 1) -> list[torch.Tensor]:
    """The likeliest labellings of sequences, by a prefix beam search.

    A labelling is what is left of a path when labels that are repeated without a blank between
    them are merged and blanks are taken out. The probability of a labelling is the sum of those of
    its paths; the search follows the ``beam_width`` likeliest beginnings of labellings from step to
    step. Of equally likely ones the first in lexicographic order comes first. No gradient flows
    through it. Outside of poptorch it does the same.

    Args:
        probs: logarithms of probabilities, ``[input_length, batch_size, num_classes]``, of
            floating point, such as ``log_softmax`` gives.
        lengths: the number of steps of each sequence, ``[batch_size]``, whole numbers of 0 to
            ``input_length``.
        blank: the class that stands for no label.
        beam_width: how many beginnings are followed, at least ``top_paths``.
        top_paths: how many labellings are given.

    Returns:
        A list of three tensors: the logarithms of the labellings' probabilities,
        ``[batch_size, top_paths]``, the likeliest first, of the type of ``probs``; how many labels
        they have, int32 ``[batch_size, top_paths]``; and their labels, int32
        ``[batch_size, top_paths, input_length]``, with ``blank`` behind them. Where there are fewer
        than ``top_paths`` possible labellings, the rest has probability 0 (logarithm ``-inf``)
        and length 0.

    Raises:
        poptorch.Error: An argument is wrong; or, when it runs, a length is, or ``probs`` hold NaN
            or infinity.

    Example:
        >>> import poptorch, torch
        >>> probs = torch.tensor([[[0.1, 0.8, 0.1]], [[0.3, 0.6, 0.1]], [[0.2, 0.1, 0.7]]]).log()
        >>> found = poptorch.ctc_beam_search_decoder(probs, torch.tensor([3]), top_paths=2)
        >>> found[0].exp(), found[1].tolist(), found[2].tolist()
        (tensor([[0.6180, 0.2130]]), [[2, 1]], [[[1, 2, 0], [1, 0, 0]]])
    """
    _check(probs, lengths, blank, beam_width, top_paths)
    if lengths.dtype not in (torch.int32, torch.int64):
        lengths = lengths.int()
    if is_capturing():
        return list(ops.ctc_beam_search_decoder(
            probs.detach(), lengths, blank, beam_width, top_paths))
    return evaluated(_WHERE, [probs, lengths],
                     {"blank": blank, "beam_width": beam_width, "top_paths": top_paths})


def _check(probs, lengths, blank, beam_width, top_paths) -> None:
    if probs.dim() != 3 or not probs.is_floating_point():
        raise Error(f"[{_WHERE}] probs are of {probs.dtype} and sizes {list(probs.shape)}. Give "
                    f"logarithms of probabilities, [input_length, batch_size, num_classes].")
    if lengths.shape != probs.shape[1:2] or lengths.is_floating_point() \
            or lengths.dtype is torch.bool:
        raise Error(f"[{_WHERE}] lengths are of {lengths.dtype} and sizes {list(lengths.shape)}, "
                    f"probs have a batch of {probs.shape[1]}. Give a whole number for each "
                    f"sequence.")
    for name, value in (("blank", blank), ("beam_width", beam_width), ("top_paths", top_paths)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise Error(f"[{_WHERE}] {name} is {value!r}, but an int is needed: it is compiled "
                        f"in.")
    if not 0 <= blank < probs.shape[2]:
        raise Error(f"[{_WHERE}] blank is {blank}, but there are {probs.shape[2]} classes. Use 0 "
                    f"to {probs.shape[2] - 1}.")
    if not 1 <= top_paths <= beam_width:
        raise Error(f"[{_WHERE}] top_paths is {top_paths} and beam_width is {beam_width}. Let "
                    f"1 <= top_paths <= beam_width.")

"""Data on which float32's rounding does not choose the side of a kink.

A ReLU's gradient jumps at zero, a pooling's where two elements of a window are equal. Where an
element lies nearer to that than float32 rounds, two right programs differ by a whole gradient,
now and then, and the numeric rule says nothing. Such data is drawn again.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers import to_dtype

# An element may move by the numeric rule's factor times what eager float32 moves.
FACTOR = 4
MOST_DRAWS = 200


def _distances_to(*points):
    return lambda x, *rest: torch.stack([x - point for point in points])


def _differences_in_windows(x, size, stride=(), padding=0, dilation=1, *rest):
    """Of each window of a pooling, how far its second largest element is below the largest."""
    padded = F.pad(x, [p for p in reversed(nn.modules.utils._pair(padding)) for _ in (0, 1)],
                   value=-1e30)
    windows = F.unfold(padded.flatten(0, 1).unsqueeze(1), size, dilation, stride=stride or size)
    largest, second = windows.topk(2, dim=1).values.unbind(1)
    return largest - second


# What of an op's operands is zero at its kinks.
KINKS = {
    "relu": _distances_to(0),
    "relu_": _distances_to(0),
    "leaky_relu": _distances_to(0),
    "_prelu_kernel": _distances_to(0),
    "abs": _distances_to(0),
    "hardtanh": lambda x, low=-1, high=1: _distances_to(low, high)(x),
    "hardswish": _distances_to(-3, 3),
    "max_pool2d_with_indices": _differences_in_windows,
}


class _Recorder(TorchDispatchMode):
    """Keeps the distances to the kinks of all ops that run under it."""

    def __init__(self):
        super().__init__()
        self.distances = []

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        distances = KINKS.get(op.overloadpacket.__name__)
        if distances:
            self.distances.append(distances(*args).double())
        return op(*args, **(kwargs or {}))


def _distances(run, network, batches):
    """The distances of each step, each a list."""
    with _Recorder() as recorder:
        run(network, batches)
    each, rest = divmod(len(recorder.distances), len(batches))
    assert rest == 0, "the steps differ in their ops"
    return [recorder.distances[i * each : (i + 1) * each] for i in range(len(batches))]


def _may_change_sides(narrow, wide):
    """Whether an element may; equal zeros (what a ReLU gave, say) do not."""
    moves = FACTOR * (narrow - wide).abs().max()
    return bool(((wide.abs() <= moves) & (narrow != wide)).any())


def _near_step(run, networks, batches):
    """The first step that comes near a kink, or None; networks and batches of both dtypes."""
    in_both = zip(*(_distances(run, *each) for each in zip(networks, batches)))
    return next((i for i, pair in enumerate(in_both) if any(map(_may_change_sides, *pair))), None)


def batches_away_from_kinks(run, network, count, seed):
    """Inputs of ``count`` steps of ``run(network, batches)`` in float32 and in float64.

    The values of both are the same. They are those of ``network.batches``, but for the steps that
    come near a kink, which are drawn again.
    """
    generator = torch.Generator().manual_seed(seed)
    networks = network, network.to(torch.float64)
    narrow = [network.make_inputs(generator) for _ in range(count)]
    for _ in range(MOST_DRAWS):
        wide = to_dtype(narrow, torch.float64)
        step = _near_step(run, networks, (narrow, wide))
        if step is None:
            return narrow, wide
        narrow[step] = network.make_inputs(generator)
    raise AssertionError(f"{MOST_DRAWS} draws of {count} steps all come near a kink")

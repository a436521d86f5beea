"""The searches among points as they are told, in plain PyTorch."""

import torch


def nearest(x, y, batch_x=None, batch_y=None):
    """For each point of ``x`` the place of the nearest one of ``y``, the first one of several."""
    distances = (x.unsqueeze(1) - y.unsqueeze(0)).square().sum(2)
    if batch_x is not None:
        distances[batch_x.unsqueeze(1) != batch_y.unsqueeze(0)] = torch.inf
    return distances.argmin(1)


def fps(src, ptr, counts, starts=None):
    """Positions of the farthest points of each example."""
    found = []
    for i, count in enumerate(counts):
        points = src[ptr[i]:ptr[i + 1]]
        at = 0 if starts is None else int(starts[i])
        apart = torch.full((len(points),), torch.inf, dtype=src.dtype)
        for _ in range(count):
            found.append(ptr[i] + at)
            apart = apart.minimum((points - points[at]).square().sum(1))
            at = int(apart.argmax())
    return torch.tensor(found, dtype=torch.int64)

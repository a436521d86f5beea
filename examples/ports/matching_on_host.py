"""Trains a network that predicts sets of points, matched with the targets by a CPU op.

The network reads a picture of some points and returns their positions in any order. Before the loss
compares them, each is matched with one target, so that the sum of the distances is minimal. That
search reads values and branches on them, which cannot be compiled. ``poptorch.CPU`` runs it on the
host during the forward pass of the compiled program, and autograd's gradient of it during the
backward pass. The same steps in plain PyTorch give the same weights except for rounding.

Examples:
    python examples/ports/matching_on_host.py
    python examples/ports/matching_on_host.py --steps 600 --points 3
"""

import argparse
import itertools

import torch
from torch import nn
from tqdm import tqdm

import poptorch

CELLS = 12  # of the picture, along each side


def matched(places, targets):
    """The places ``[batch, points, 2]`` of each example, in the order of its targets."""
    distances = torch.cdist(targets.detach(), places.detach()).tolist()
    orders = []
    for example in distances:
        each = itertools.permutations(range(len(example)))
        orders.append(min(each, key=lambda order: sum(map(list.__getitem__, example, order))))
    rows = torch.arange(len(orders)).unsqueeze(1)
    return places[rows, torch.tensor(orders)]


class Finder(nn.Module):
    """Pictures ``[batch, CELLS, CELLS]`` to places ``[batch, points, 2]`` in [0, 1].

    Given the targets it returns ``(places in their order, loss)``, else the places.
    """

    def __init__(self, points, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(CELLS * CELLS, width), nn.GELU(), nn.Linear(width, width),
            nn.GELU(), nn.Linear(width, 2 * points), nn.Sigmoid(), nn.Unflatten(1, (points, 2)))
        self.match = poptorch.CPU(matched, "match")

    def forward(self, pictures, targets=None):
        places = self.layers(pictures)
        if targets is None:
            return places
        places = self.match(places, targets)
        return places, nn.functional.mse_loss(places, targets)


def make_pictures(count, points, generator, dtype):
    """Pictures with a bright spot at each of the places ``[count, points, 2]``, and these."""
    places = torch.rand(count, points, 2, generator=generator)
    centers = (torch.arange(CELLS) + 0.5) / CELLS
    near = torch.exp(-((centers - places.unsqueeze(3)) * 8) ** 2)  # [count, points, 2, CELLS]
    pictures = torch.einsum("npi,npj->nij", near[:, :, 0], near[:, :, 1])
    return pictures.to(dtype), places.to(dtype)


def results(args, way):
    """Trains from ``--seed`` in one way.

    Args:
        args: the command line.
        way: ``"poptorch"``, or the dtype in which plain PyTorch is to compute.

    Returns:
        Places and weights by name, the loss of each step, and the mean distance of new places
        from their targets.
    """
    torch.manual_seed(args.seed)
    dtype = torch.float32 if way == "poptorch" else way
    net = Finder(args.points, args.width).to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.learning_rate, momentum=0.9)
    model = poptorch.trainingModel(net, optimizer=optimizer) if way == "poptorch" else net
    generator = torch.Generator().manual_seed(args.seed)
    losses = []
    for _ in tqdm(range(args.steps), desc=f"with {way}"):
        _, loss = model(*make_pictures(args.batch, args.points, generator, dtype))
        losses.append(loss.item())
        if way != "poptorch":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if way == "poptorch":
        model.destroy()
    pictures, targets = make_pictures(128, args.points, generator, dtype)
    tested = poptorch.inferenceModel(net.eval()) if way == "poptorch" else net
    places = tested(pictures).detach()
    distance = (matched(places, targets) - targets).norm(dim=2).mean().item()
    return {"places": places, **net.state_dict()}, losses, distance


def parse_arguments(words=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=300, help="default: %(default)s")
    add("--batch", type=int, default=32, help="default: %(default)s")
    add("--points", type=int, default=2, help="in a picture, 1 to 5 (default: %(default)s)")
    add("--width", type=int, default=64, help="default: %(default)s")
    add("--learning-rate", type=float, default=2.0, help="default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    args = parser.parse_args(words)
    if not 1 <= args.points <= 5:
        parser.error(f"--points must be from 1 to 5, got {args.points}")
    return args


def main(words=None):
    """Trains in both ways, prints losses, distances and how far the results are apart."""
    args = parse_arguments(words)
    ours, plain = results(args, "poptorch"), results(args, torch.float32)
    for name, (_, losses, distance) in (("poptorch", ours), ("PyTorch", plain)):
        print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, new places are "
              f"{distance:.3f} from their targets")
    distance = max((ours[0][name] - x).abs().max().item() for name, x in plain[0].items())
    print(f"largest difference of a place or a weight: {distance:.1e}")


if __name__ == "__main__":
    main()

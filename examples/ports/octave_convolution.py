"""Trains a network of octave convolutions whose parallel convolutions are in a ``MultiConv``.

An octave convolution keeps part of its channels at half the resolution. It has up to four
convolutions: from fine and coarse channels, to fine and coarse ones. They are independent, so they
are declared as one multi-convolution, with a share of memory for each. This version of poptorch
keeps that in the IR and computes one after the other. The images are stripes; their width and
direction are the class. The same steps in plain PyTorch give the same scores and weights except for
rounding.

Examples:
    python examples/ports/octave_convolution.py
    python examples/ports/octave_convolution.py --steps 200 --coarse 0.25
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

import poptorch

SIZE, CLASSES = 16, 4


class OctaveConv(nn.Module):
    """Takes and returns ``(fine [batch, c, h, w], coarse [batch, c', h / 2, w / 2])``.

    Args:
        fine, coarse: input and output channels of each kind; 0 where there are none.
        memory: share of memory of each of the convolutions.
    """

    def __init__(self, fine, coarse, memory):
        super().__init__()
        self.convolutions = nn.ModuleDict({
            f"{source}_to_{goal}": nn.Conv2d(inputs, outputs, 3, padding=1)
            for source, inputs in (("fine", fine[0]), ("coarse", coarse[0]))
            for goal, outputs in (("fine", fine[1]), ("coarse", coarse[1]))
            if inputs and outputs})
        self.memory = memory

    def forward(self, fine, coarse):
        inputs = {"fine_to_fine": fine, "coarse_to_coarse": coarse, "coarse_to_fine": coarse}
        if "fine_to_coarse" in self.convolutions:
            inputs["fine_to_coarse"] = F.avg_pool2d(fine, 2)
        with poptorch.MultiConv().availableMemoryProportions(self.memory):
            found = {name: layer(inputs[name]) for name, layer in self.convolutions.items()}
        if "coarse_to_fine" in found:
            found["coarse_to_fine"] = F.interpolate(found["coarse_to_fine"], scale_factor=2)
        return _sum_of(found, "fine"), _sum_of(found, "coarse")


def _sum_of(found, goal):
    """The sum of the results of one resolution; None where there are none."""
    parts = [x for name, x in found.items() if name.endswith(f"_to_{goal}")]
    return sum(parts[1:], parts[0]) if parts else None


class Net(nn.Module):
    """Two octave convolutions and one that joins the resolutions.

    Given labels ``[batch]`` it returns ``(scores [batch, CLASSES], loss)``, else the scores.
    """

    def __init__(self, width, share, memory):
        super().__init__()
        coarse = int(share * width)
        fine = width - coarse
        self.first = OctaveConv((1, fine), (0, coarse), memory)
        self.second = OctaveConv((fine, fine), (coarse, coarse), memory)
        self.last = OctaveConv((fine, width), (coarse, 0), memory)
        self.norms = nn.ModuleList([nn.BatchNorm2d(fine), nn.BatchNorm2d(coarse)])
        self.scores = nn.Linear(width, CLASSES)

    def forward(self, images, labels=None):
        fine, coarse = self.second(*map(F.relu, self.first(images, None)))
        fine, coarse = (F.relu(norm(x)) for norm, x in zip(self.norms, (fine, coarse)))
        scores = self.scores(self.last(fine, coarse)[0].amax((2, 3)))
        return scores if labels is None else (scores, F.cross_entropy(scores, labels))


def make_images(count, generator, dtype):
    """Stripes ``[count, 1, SIZE, SIZE]``, narrow or wide, of two directions; their labels."""
    labels = torch.randint(0, CLASSES, (count,), generator=generator)
    phase = 2 * torch.pi * torch.rand(count, 1, generator=generator)
    period = torch.where(labels % 2 == 0, 3.0, 8.0).unsqueeze(1)
    waves = torch.sin(2 * torch.pi * torch.arange(SIZE) / period + phase)
    noise = 0.5 * torch.randn(count, SIZE, SIZE, generator=generator)
    images = waves.unsqueeze(1) + noise
    images = torch.where((labels < 2)[:, None, None], images, images.mT)
    return images.unsqueeze(1).to(dtype), labels


def results(args, way):
    """Trains from ``--seed`` in one way.

    Args:
        args: the command line.
        way: ``"poptorch"``, or the dtype in which plain PyTorch is to compute.

    Returns:
        Scores and weights by name, the loss of each step, and the share of images classified right.
    """
    torch.manual_seed(args.seed)
    dtype = torch.float32 if way == "poptorch" else way
    net = Net(args.width, args.coarse, args.memory).to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.learning_rate, momentum=0.9)
    options = poptorch.Options()
    model = poptorch.trainingModel(net, options, optimizer) if way == "poptorch" else net
    generator = torch.Generator().manual_seed(args.seed)
    losses = []
    for _ in tqdm(range(args.steps), desc=f"with {way}"):
        _, loss = model(*make_images(args.batch, generator, dtype))
        losses.append(loss.item())
        if way != "poptorch":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if way == "poptorch":
        model.destroy()
    net.eval()
    images, labels = make_images(256, generator, dtype)
    tested = poptorch.inferenceModel(net, options) if way == "poptorch" else net
    found = {"scores": tested(images).detach(), **net.state_dict()}
    right = (found["scores"].argmax(1) == labels).float().mean().item()
    return found, losses, right


def parse_arguments(words=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=40, help="default: %(default)s")
    add("--batch", type=int, default=32, help="default: %(default)s")
    add("--width", type=int, default=16, help="channels (default: %(default)s)")
    add("--coarse", type=float, default=0.5,
        help="share of the channels at half the resolution (default: %(default)s)")
    add("--memory", type=float, default=0.2,
        help="share of memory of each convolution (default: %(default)s)")
    add("--learning-rate", type=float, default=0.02, help="default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    args = parser.parse_args(words)
    if not 1 <= int(args.coarse * args.width) < args.width:
        parser.error(f"--coarse {args.coarse} of {args.width} channels leaves one kind empty")
    return args


def main(words=None):
    """Trains in both ways, prints losses, accuracies and how far the results are apart."""
    args = parse_arguments(words)
    ours, plain = results(args, "poptorch"), results(args, torch.float32)
    for name, (_, losses, right) in (("poptorch", ours), ("PyTorch", plain)):
        print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, accuracy {right:.1%}")
    distance = max((ours[0][name] - x).abs().max().item() for name, x in plain[0].items())
    print(f"largest difference of a score, a weight or a statistic: {distance:.1e}")


if __name__ == "__main__":
    main()

"""Trains a transformer encoder in the stages of a pipeline, with recomputation between its layers.

``BeginBlock`` divides the layers among IPUs, ``PipelinedExecution`` makes a stage of each IPU, and
a forward hook on every layer calls ``poptorch.recomputationCheckpoint``: what lies between two
marks is not kept for the backward pass but computed again. In this version of poptorch the stages
run one after the other under every strategy: the pipeline says where things are computed and kept,
and accumulates gradients as it must, but nothing overlaps in time. The network learns to tell which
letters of a line come behind its first one in the alphabet. Recomputation changes memory and no bit
of the results; the same steps in plain PyTorch give the same weights, but for rounding.

Examples:
    python examples/ports/pipelined_encoder.py
    python examples/ports/pipelined_encoder.py --layers 8 --ipus 4
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

import poptorch

LETTERS, LENGTH = 24, 16


class Encoder(nn.Module):
    """Embeddings, encoder layers, and a head that gives two scores for each letter.

    Given answers ``[batch, LENGTH]`` it returns ``(scores [batch, LENGTH, 2], loss)``, else the
    scores.
    """

    def __init__(self, layers, width):
        super().__init__()
        self.letters, self.positions = nn.Embedding(LETTERS, width), nn.Embedding(LENGTH, width)
        self.layers = nn.Sequential(*(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, activation="gelu",
                                       batch_first=True, norm_first=True)
            for _ in range(layers)))
        self.head = nn.Linear(width, 2)

    def forward(self, letters, answers=None):
        positions = torch.arange(LENGTH, device=letters.device)
        scores = self.head(self.layers(self.letters(letters) + self.positions(positions)))
        if answers is None:
            return scores
        return scores, F.cross_entropy(scores.flatten(0, 1), answers.flatten())


def put_on_ipus(net, ipus):
    """Begins a block, and so a stage, at the first layer of each IPU."""
    count = len(net.layers)
    for ipu in range(1, ipus):
        poptorch.BeginBlock(net.layers[-(-ipu * count // ipus)], f"from IPU {ipu}", ipu_id=ipu)


def keep_between_layers(net):
    """Marks the result of each layer: the rest is computed again in the backward pass."""
    for layer in net.layers:
        layer.register_forward_hook(
            lambda module, inputs, result: poptorch.recomputationCheckpoint(result))


def make_lines(count, generator):
    """Letters ``[count, LENGTH]``, and for each whether it comes behind the line's first one."""
    letters = torch.randint(0, LETTERS, (count, LENGTH), generator=generator)
    return letters, (letters > letters[:, :1]).long()


def options_for(args):
    """As many micro-batches in flight as a pipeline of so many stages needs."""
    options = poptorch.Options().autoRoundNumIPUs(True).outputMode(poptorch.OutputMode.All)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.SameAsIpu))
    options.Training.gradientAccumulation(args.accumulation)
    return options


def results(args, way, recompute=True):
    """Trains from ``--seed`` in one way.

    Args:
        args: the command line.
        way: ``"poptorch"``, or the dtype in which plain PyTorch is to compute.
        recompute: whether the results of the layers are marked.

    Returns:
        The scores of the last step and the weights by name, the mean loss of each step, and how
        many bytes a training step works in; None in plain PyTorch.
    """
    torch.manual_seed(args.seed)
    net = Encoder(args.layers, args.width)
    if recompute:
        keep_between_layers(net)
    generator = torch.Generator().manual_seed(args.seed)
    batches = [make_lines(args.micro_batch * args.accumulation, generator)
               for _ in range(args.steps)]
    train = train_in_pipeline if way == "poptorch" else train_eager
    scores, losses, work_bytes = train(net, batches, args, way)
    return {"scores": scores, **net.state_dict()}, losses, work_bytes


def train_in_pipeline(net, batches, args, way):
    """The last scores, the losses, and the bytes that the program works in."""
    put_on_ipus(net, args.ipus)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.learning_rate, momentum=0.9)
    model = poptorch.trainingModel(net, options_for(args), optimizer)
    model.compile(*batches[0])
    print(model.partition_summary())
    losses = []
    for batch in tqdm(batches, desc=f"with {way}"):
        scores, loss = model(*batch)
        losses.append(loss.mean().item())
    work_bytes = model.memory_report()["arena"]
    model.destroy()
    return scores, losses, work_bytes


def train_eager(net, batches, args, dtype):
    """The last scores and the losses; the micro-batches of a step are one batch."""
    net.to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.learning_rate, momentum=0.9)
    losses = []
    for batch in tqdm(batches, desc=f"with {dtype}"):
        optimizer.zero_grad()
        scores, loss = net(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return scores.detach(), losses, None


def parse_arguments(words=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=80, help="default: %(default)s")
    add("--layers", type=int, default=4, help="default: %(default)s")
    add("--ipus", type=int, default=2, help="at most as many as layers (default: %(default)s)")
    add("--width", type=int, default=32, help="default: %(default)s")
    add("--micro-batch", type=int, default=8, help="default: %(default)s")
    add("--accumulation", type=int, default=8,
        help="micro-batches a step, at least 2 IPUS - 1 (default: %(default)s)")
    add("--learning-rate", type=float, default=0.1, help="default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    args = parser.parse_args(words)
    if not 1 <= args.ipus <= args.layers:
        parser.error(f"--ipus must be from 1 to the number of layers {args.layers}")
    if args.accumulation < 2 * args.ipus - 1:
        parser.error(f"a pipeline of {args.ipus} stages needs --accumulation of at least "
                     f"{2 * args.ipus - 1}")
    return args


def main(words=None):
    """Trains with and without recomputation and in PyTorch, and compares."""
    args = parse_arguments(words)
    ours, losses, fewer_bytes = results(args, "poptorch")
    others, _, more_bytes = results(args, "poptorch", recompute=False)
    plain, plain_losses, _ = results(args, torch.float32)
    same = all(torch.equal(ours[name], others[name]) for name in others)
    print(f"recomputation changes no bit: {same}; memory {more_bytes / 1e6:.2f} MB -> "
          f"{fewer_bytes / 1e6:.2f} MB")
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, PyTorch's -> {plain_losses[-1]:.4f}")
    distance = max((ours[name] - x).abs().max().item() for name, x in plain.items())
    print(f"largest difference of a score or a weight: {distance:.1e}")


if __name__ == "__main__":
    main()

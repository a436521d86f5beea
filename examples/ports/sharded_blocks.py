"""Spreads a network over several IPUs by blocks, and shows what is stored where.

The layers get their blocks in the three usual ways: ``BeginBlock`` around a layer, ``with Block``
around a part of ``forward``, and ``@BlockFunction`` on a function. Blocks change where the model is
computed and nothing else: after the same training steps the weights are, bit for bit, those of the
network without blocks.

Examples:
    python examples/ports/sharded_blocks.py
    python examples/ports/sharded_blocks.py --layers 6 --ipus 4 --strategy auto
"""

import argparse

import torch
from torch import nn
from tqdm import tqdm

import poptorch


class Residual(nn.Module):
    """``x + down(gelu(up(norm(x))))``."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


@poptorch.BlockFunction("head", ipu_id=0)
def in_head_block(head, x):
    """Calls the head; its block is on the IPU of the embedding."""
    return head(x)


class Net(nn.Module):
    """An embedding, residual layers, a head; blocks, if any, are put on from outside."""

    def __init__(self, layers, width, with_blocks):
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.layers = nn.Sequential(*(Residual(width) for _ in range(layers)))
        self.head = nn.Linear(width, 4)
        self.with_blocks = with_blocks

    def forward(self, x, target):
        if self.with_blocks:
            with poptorch.Block("embed", ipu_id=0):
                x = torch.relu(self.embed(x))
            scores = in_head_block(self.head, self.layers(x))
        else:
            scores = self.head(self.layers(torch.relu(self.embed(x))))
        return scores, nn.functional.cross_entropy(scores, target)


def put_blocks(net, ipus):
    """Divides the layers evenly; each block lasts until the next one begins."""
    count = len(net.layers)
    for number, layer in enumerate(net.layers):
        poptorch.BeginBlock(layer, f"layer{number}", ipu_id=number * ipus // count)
    return [f"layer{number}" for number in range(count)]


def strategy_for(args, layer_names):
    """Stages from the blocks' IPUs, or written out: one for each IPU."""
    if args.strategy == "auto":
        return poptorch.ShardedExecution(poptorch.AutoStage.SameAsIpu)
    stages = [["embed"], *([] for _ in range(1, args.ipus))]
    for number, name in enumerate(layer_names):
        stages[number * args.ipus // len(layer_names)].append(name)
    stages[0].append("head")
    return poptorch.ShardedExecution(*(poptorch.Stage(*names) for names in stages))


def train(args, with_blocks):
    """Trains a network from ``--seed``; returns its weights."""
    torch.manual_seed(args.seed)
    net = Net(args.layers, args.width, with_blocks)
    options = poptorch.Options().autoRoundNumIPUs(True)
    if with_blocks:
        names = put_blocks(net, args.ipus)
        options.setExecutionStrategy(strategy_for(args, names))
    optimizer = poptorch.optim.Adam(net.parameters(), lr=1e-3)
    model = poptorch.trainingModel(net, options, optimizer)
    x, target = torch.randn(64, 16), torch.randint(0, 4, (64,))
    for _ in tqdm(range(args.steps), desc="with blocks" if with_blocks else "without"):
        model(x, target)
    if with_blocks:
        print(model.partition_summary())
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.destroy()
    return weights


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--layers", type=int, default=4, help="default: %(default)s")
    add("--ipus", type=int, default=2, help="at most as many as layers (default: %(default)s)")
    add("--strategy", choices=("stages", "auto"), default="stages", help="default: %(default)s")
    add("--width", type=int, default=32, help="default: %(default)s")
    add("--steps", type=int, default=100, help="default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    args = parser.parse_args()
    if not 1 <= args.ipus <= args.layers:
        parser.error(f"--ipus must be from 1 to the number of layers {args.layers}")
    return args


def main():
    """Trains with and without blocks, and compares."""
    args = parse_arguments()
    ours, plain = (train(args, with_blocks) for with_blocks in (True, False))
    same = all(torch.equal(ours[name], plain[name]) for name in plain)
    print(f"weights bit-equal to those without blocks: {same and ours.keys() == plain.keys()}")


if __name__ == "__main__":
    main()

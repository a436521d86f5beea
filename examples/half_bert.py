"""Trains a small BERT in float16 with automatic loss scaling, and in float32; draws both losses.

The encoder reads text from Python's standard library with masked characters and learns to fill
them in. In the second run weights, activations and gradients have 16 bits. The device finds the
loss scale during training: docs/guide/training/training_in_16_bits.md.

Examples:
    python examples/half_bert.py
    python examples/half_bert.py --steps 1000 --width 128 --layers 4 --output bert.png
"""

import argparse
import copy
import os
from pathlib import Path

import torch
from torch import nn
from tqdm import tqdm

import poptorch

CHARACTERS, MASK = 129, 128
INITIAL_SCALE = 2.0**14


class Bert(nn.Module):
    """A transformer encoder over characters.

    ``forward`` takes characters ``[batch, length]``, some of them masked, and labels of the same
    shape, -100 where nothing is asked; it returns the mean cross-entropy of the masked ones.
    """

    def __init__(self, width, heads, layers, length):
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS, width)
        self.positions = nn.Parameter(0.02 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, CHARACTERS)

    def forward(self, characters, labels):
        scores = self.head(self.encoder(self.embed(characters) + self.positions))
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())


def make_batches(args):
    """For each step ``(characters, labels)``: random pieces with 15 % of the characters masked."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    codes = torch.tensor(list(text[:1_000_000].encode("ascii", errors="replace")))
    generator = torch.Generator().manual_seed(args.seed)
    shape = args.batch_size, args.length
    batches = []
    for _ in range(args.steps):
        starts = torch.randint(len(codes) - args.length, (args.batch_size,), generator=generator)
        pieces = torch.stack([codes[start : start + args.length] for start in starts])
        masked = torch.rand(shape, generator=generator) < 0.15
        batches.append((pieces.masked_fill(masked, MASK), pieces.masked_fill(~masked, -100)))
    return batches


def train(net, batches, args, is_half):
    """Trains ``net``; returns the loss of each step, and the last loss scale (1 in float32)."""
    options = poptorch.Options()
    scale = 1.0
    if is_half:
        net, scale = net.half(), INITIAL_SCALE
        options.Training.setAutomaticLossScaling(True)
    optimizer = poptorch.optim.AdamW(
        net.parameters(), lr=args.learning_rate, weight_decay=0.01, loss_scaling=scale
    )
    model = poptorch.trainingModel(net, options, optimizer)
    losses = []
    for characters, labels in tqdm(batches, desc="float16" if is_half else "float32"):
        losses.append(model(characters, labels).item())
    state = optimizer.state_dict()["ipu_state"]
    model.destroy()
    return losses, scale * float(state.get("lossScaleUpdateFactor", 1.0))


def plot(curves, path):
    """Draws the loss curves, by name, into a PNG file."""
    # Only here: the example trains without it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5))
    axes = figure.subplots()
    for (name, losses), style in zip(curves.items(), ("-", "--"), strict=True):
        axes.plot(losses, style, label=name, linewidth=1.2)
    axes.set(xlabel="step", ylabel="cross-entropy", title="masked characters")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"wrote {path}")


def parse_arguments():
    """The command line."""
    summary, _, examples = __doc__.partition("\nExamples:")
    parser = argparse.ArgumentParser(
        description=summary,
        epilog="examples:" + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--steps", type=int, default=300, help="default: %(default)s")
    add("--batch-size", type=int, default=16, help="default: %(default)s")
    add("--length", type=int, default=64, help="characters in a piece (default: %(default)s)")
    add("--width", type=int, default=64, help="default: %(default)s")
    add("--heads", type=int, default=4, help="default: %(default)s")
    add("--layers", type=int, default=2, help="default: %(default)s")
    add("--learning-rate", type=float, default=1e-3, help="default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    add("--output", default="half_bert.png", help="picture of the curves (default: %(default)s)")
    return parser.parse_args()


def main():
    """Trains twice, prints the last losses and the loss scale, draws the curves."""
    args = parse_arguments()
    torch.manual_seed(args.seed)
    net, batches = Bert(args.width, args.heads, args.layers, args.length), make_batches(args)
    curves = {}
    for is_half in (False, True):
        name = "float16" if is_half else "float32"
        curves[name], scale = train(copy.deepcopy(net), batches, args, is_half)
        mean = sum(curves[name][-20:]) / len(curves[name][-20:])
        print(f"{name}: loss {curves[name][0]:.3f} -> {mean:.3f} (mean of the last 20), "
              f"loss scale {scale:g}")
    plot(curves, args.output)


if __name__ == "__main__":
    main()

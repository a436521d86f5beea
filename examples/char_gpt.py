"""Trains a character-level GPT on the sources of Python's standard library.

The example trains the same network twice from the same weights on the same data: with poptorch and
with eager PyTorch. It draws both loss curves into one picture. There is no dropout, so the curves
differ by rounding errors only.

Examples:
    python examples/char_gpt.py
    python examples/char_gpt.py --steps 1000 --width 128 --output gpt.png
    python examples/char_gpt.py --no-eager --sample 300
    python examples/char_gpt.py --optimizer lamb --learning-rate 0.01
"""

import argparse
import copy
import functools
import os
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

import poptorch

CHARACTERS = 128  # ASCII; anything else is read as a question mark

# Both ways of training use the same class. That of LAMB is poptorch's, as PyTorch has none; its
# ``step()`` is for the CPU.
OPTIMIZERS = {
    "adamw": functools.partial(torch.optim.AdamW, weight_decay=0.01),
    "lamb": functools.partial(poptorch.optim.LAMB, weight_decay=0.01),
    "rmsprop": functools.partial(torch.optim.RMSprop, alpha=0.95, momentum=0.5),
}


class Block(nn.Module):
    """Causal self-attention and a feed-forward part, each behind layer norm."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class CharGpt(nn.Module):
    """A GPT over characters whose output layer is its embedding.

    ``forward`` takes characters ``[batch, length]`` and, in training mode, the characters that
    follow each of them; it returns ``(scores, loss)`` or the scores ``[batch, length, 128]``.
    """

    def __init__(self, width, heads, layers, length):
        super().__init__()
        self.embed = nn.Embedding(CHARACTERS, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, CHARACTERS, bias=False)
        for table in (self.embed, self.positions):
            nn.init.normal_(table.weight, std=0.05)
        self.head.weight = self.embed.weight

    def forward(self, characters, following=None):
        positions = torch.arange(characters.shape[1], device=characters.device)
        x = self.embed(characters) + self.positions(positions)
        scores = self.head(self.norm(self.blocks(x)))
        if not self.training:
            return scores
        return scores, F.cross_entropy(scores.flatten(0, 1), following.flatten())


def load_text(most_bytes=3_000_000):
    """The standard library's sources, one after the other, as a tensor of character numbers."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    text = "".join(path.read_text(encoding="utf-8") for path in files)[:most_bytes]
    codes = torch.tensor(list(text.encode("ascii", errors="replace")), dtype=torch.long)
    print(f"{len(codes):,} characters from {len(files)} files")
    return codes


def make_batches(text, args):
    """Random pieces of the text, for each step ``(characters, following)``."""
    generator = torch.Generator().manual_seed(args.seed)
    batches = []
    for _ in range(args.steps):
        starts = torch.randint(len(text) - args.length - 1, (args.batch_size,), generator=generator)
        pieces = torch.stack([text[start : start + args.length + 1] for start in starts])
        batches.append((pieces[:, :-1].contiguous(), pieces[:, 1:].contiguous()))
    return batches


def optimizer_for(net, args):
    """The optimizer that the command line selects."""
    return OPTIMIZERS[args.optimizer](net.parameters(), lr=args.learning_rate)


def train_poptorch(net, batches, args):
    """Trains ``net`` through poptorch; returns the loss of each step."""
    model = poptorch.trainingModel(net, poptorch.Options(), optimizer_for(net, args))
    losses = []
    for characters, following in tqdm(batches, desc="poptorch"):
        _, loss = model(characters, following)
        losses.append(loss.item())
    model.destroy()
    return losses


def train_eager(net, batches, args):
    """Trains ``net`` in PyTorch eager; returns the loss of each step."""
    optimizer = optimizer_for(net, args)
    losses = []
    for characters, following in tqdm(batches, desc="eager"):
        optimizer.zero_grad()
        _, loss = net(characters, following)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def plot(curves, path):
    """Draws the loss curves, by name, into a PNG file."""
    # Only here: the example trains without it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5))
    axes = figure.subplots()
    for (name, losses), style in zip(curves.items(), ("-", "--"), strict=False):
        axes.plot(losses, style, label=name, linewidth=1.2)
    axes.set(xlabel="step", ylabel="cross-entropy", title="character-level GPT")
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    print(f"wrote {path}")


def sample(net, count, length):
    """Text that the network writes, one character after the other."""
    model = poptorch.inferenceModel(net.eval(), poptorch.Options())
    generator = torch.Generator().manual_seed(0)
    codes = list(b"def main(")
    for _ in range(count):
        window = codes[-length:]
        padded = torch.tensor([window + [0] * (length - len(window))])
        chances = model(padded)[0, len(window) - 1].softmax(dim=-1)
        codes.append(torch.multinomial(chances, 1, generator=generator).item())
    model.destroy()
    return bytes(codes).decode("ascii")


def parse_arguments(words=None):
    """The command line, or the given list of words."""
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
    add("--learning-rate", type=float, default=2e-3, help="default: %(default)s")
    add("--optimizer", choices=OPTIMIZERS, default="adamw", help="default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    add("--output", default="char_gpt.png", help="picture of the curves (default: %(default)s)")
    add("--no-eager", action="store_true", help="train by poptorch only, draw nothing")
    add("--sample", type=int, default=0, metavar="N", help="let it write N characters at the end")
    return parser.parse_args(words)


def main():
    """Trains both ways, prints the last losses, draws the curves."""
    args = parse_arguments()
    torch.manual_seed(args.seed)
    net = CharGpt(args.width, args.heads, args.layers, args.length)
    copy_of_net = copy.deepcopy(net)
    batches = make_batches(load_text(), args)
    start = time.perf_counter()
    curves = {"poptorch": train_poptorch(net, batches, args)}
    print(f"poptorch: {time.perf_counter() - start:.1f} s")
    if not args.no_eager:
        start = time.perf_counter()
        curves["eager"] = train_eager(copy_of_net, batches, args)
        print(f"eager: {time.perf_counter() - start:.1f} s")
        plot(curves, args.output)
    for name, losses in curves.items():
        tail = losses[-20:]
        print(f"{name}: loss {losses[0]:.3f} -> {sum(tail) / len(tail):.3f} (mean of the last 20)")
    if args.sample:
        print(sample(net, args.sample, args.length))


if __name__ == "__main__":
    main()

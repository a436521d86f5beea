"""Trains a reader of lines with the CTC loss, and decodes with a beam search in inference.

A line is a row of columns. Its letters are narrow patterns at unknown positions, and lines have
different lengths. ``torch.nn.functional.ctc_loss`` trains the network to assign a letter or a blank
to each column; ``poptorch.ctc_beam_search_decoder`` finds the most likely text. The same steps in
plain PyTorch give the same weights except for rounding. The decoder also runs outside of a wrapped
model and gives the same texts.

Examples:
    python examples/ports/ctc_reader.py
    python examples/ports/ctc_reader.py --steps 300 --beam-width 20
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

import poptorch

LETTERS, HEIGHT, MOST = 6, 8, 5  # class 0 is the blank, letters are 1 to LETTERS
WIDTH, GAP = 3, 2  # columns of a letter, and most columns before it
COLUMNS = MOST * (WIDTH + GAP)


class Reader(nn.Module):
    """Convolutions along the line.

    ``forward(lines [batch, HEIGHT, COLUMNS], lengths [batch])`` gives log-probabilities
    ``[COLUMNS, batch, 1 + LETTERS]``; with ``texts [batch, MOST]`` and their lengths the loss, too.
    """

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(HEIGHT, width, 3, padding=1), nn.ReLU(),
            nn.Conv1d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv1d(width, 1 + LETTERS, 1))

    def forward(self, lines, lengths, texts=None, text_lengths=None):
        log_probs = F.log_softmax(self.layers(lines).permute(2, 0, 1), 2)
        if texts is None:
            return log_probs
        return log_probs, F.ctc_loss(log_probs, texts, lengths, text_lengths, zero_infinity=True)


class Decoder(nn.Module):
    """The likeliest texts of lines: log-probabilities, lengths and letters."""

    def __init__(self, reader, beam_width):
        super().__init__()
        self.reader, self.beam_width = reader, beam_width

    def forward(self, lines, lengths):
        return poptorch.ctc_beam_search_decoder(
            self.reader(lines, lengths).float(), lengths, beam_width=self.beam_width)


def make_lines(count, generator, dtype):
    """Lines, their lengths in columns, their texts (behind the end: 0) and lengths of those."""
    patterns = torch.randn(1 + LETTERS, HEIGHT, WIDTH,
                           generator=torch.Generator().manual_seed(99))
    text_lengths = torch.randint(1, MOST + 1, (count,), generator=generator)
    texts = torch.randint(1, LETTERS + 1, (count, MOST), generator=generator)
    texts[torch.arange(MOST) >= text_lengths.unsqueeze(1)] = 0
    lines = 0.3 * torch.randn(count, HEIGHT, COLUMNS, generator=generator)
    lengths = torch.empty(count, dtype=torch.int64)
    for line, (text, length) in enumerate(zip(texts.tolist(), text_lengths.tolist())):
        at = 0
        gaps = torch.randint(0, GAP + 1, (length,), generator=generator).tolist()
        for letter, gap in zip(text, gaps):
            lines[line, :, at + gap:at + gap + WIDTH] += patterns[letter]
            at += gap + WIDTH
        lengths[line] = at
    return lines.to(dtype), lengths, texts, text_lengths


def read(net, args, way):
    """Trained probabilities of new lines, the texts found in them, and how many are right."""
    decoder = Decoder(net.eval(), args.beam_width)
    if way == "poptorch":
        decoder = poptorch.inferenceModel(decoder)
    dtype = torch.float32 if way == "poptorch" else way
    lines, lengths, texts, _ = make_lines(128, torch.Generator().manual_seed(args.seed + 1), dtype)
    with torch.no_grad():
        log_probs, text_lengths, found = decoder(lines, lengths)
    inside = torch.arange(COLUMNS) < text_lengths
    found = torch.where(inside, found[:, 0], 0).long()
    right = (found == F.pad(texts, (0, COLUMNS - MOST))).all(1).float().mean().item()
    return {"log_probs": log_probs, "texts": found}, right


def results(args, way):
    """Trains from ``--seed`` in one way.

    Args:
        args: the command line.
        way: ``"poptorch"``, or the dtype in which plain PyTorch is to compute.

    Returns:
        Texts, their log-probabilities and the weights by name, the loss of each step, and the
        share of lines that are read without an error.
    """
    torch.manual_seed(args.seed)
    dtype = torch.float32 if way == "poptorch" else way
    net = Reader(args.width).to(dtype)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.learning_rate, momentum=0.9)
    model = poptorch.trainingModel(net, optimizer=optimizer) if way == "poptorch" else net
    generator = torch.Generator().manual_seed(args.seed)
    losses = []
    for _ in tqdm(range(args.steps), desc=f"with {way}"):
        _, loss = model(*make_lines(args.batch, generator, dtype))
        losses.append(loss.item())
        if way != "poptorch":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if way == "poptorch":
        model.destroy()
    texts, right = read(net, args, way)
    return {**texts, **net.state_dict()}, losses, right


def parse_arguments(words=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=150, help="default: %(default)s")
    add("--batch", type=int, default=32, help="default: %(default)s")
    add("--width", type=int, default=24, help="channels (default: %(default)s)")
    add("--beam-width", type=int, default=10, help="default: %(default)s")
    add("--learning-rate", type=float, default=0.05, help="default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    return parser.parse_args(words)


def main(words=None):
    """Trains in both ways, prints losses, lines read right and how far the weights are apart."""
    args = parse_arguments(words)
    ours, plain = results(args, "poptorch"), results(args, torch.float32)
    for name, (_, losses, right) in (("poptorch", ours), ("PyTorch", plain)):
        print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {right:.1%} of new lines right")
    print(f"same texts: {torch.equal(ours[0]['texts'], plain[0]['texts'])}")
    distance = max((ours[0][name] - x).abs().max().item() for name, x in plain[0].items())
    print(f"largest difference of a probability's logarithm or of a weight: {distance:.1e}")


if __name__ == "__main__":
    main()

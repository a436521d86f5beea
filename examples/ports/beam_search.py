"""Trains a recurrent network to add, and generates its answers with a beam search on the device.

A task is a line such as ``7+5=``; the network learns to continue with ``12.``, one character after
the other. The search keeps the most likely beginnings of answers. ``poptorch.for_loop`` runs its
iterations in the program, and ``poptorch.dynamic_update`` writes the column of an iteration, so one
call returns whole answers. In plain PyTorch both functions do the same, and the answers are equal.

Examples:
    python examples/ports/beam_search.py
    python examples/ports/beam_search.py --steps 800 --beam-width 8
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

import poptorch

LETTERS = "0123456789+=."
END, VOCABULARY = LETTERS.index("."), len(LETTERS)
TASK, ANSWER = 4, 3  # characters of a task, and most of an answer with its end
NEVER = -1e9  # the logarithm of a probability of nothing


class Writer(nn.Module):
    """A network that says what comes next.

    ``forward(lines [batch, TASK + ANSWER])`` gives the loss of the answers.
    """

    def __init__(self, width):
        super().__init__()
        self.letters = nn.Embedding(VOCABULARY, width)
        self.memory = nn.GRU(width, width)
        self.next = nn.Linear(width, VOCABULARY)

    def read(self, letters, state=None):
        """What may follow each letter ``[length, batch]``, and the state behind the last."""
        seen, state = self.memory(self.letters(letters), state)
        return self.next(seen), state

    def forward(self, lines):
        scores, _ = self.read(lines[:, :-1].t())
        scores, wanted = scores[TASK - 1:], lines[:, TASK:].t()
        return scores, F.cross_entropy(scores.reshape(-1, VOCABULARY), wanted.reshape(-1))


class Search(nn.Module):
    """The likeliest answers to one task, the best first.

    ``forward(task [TASK])`` gives answers ``[beams, ANSWER]`` and the logarithms of their
    probabilities ``[beams]``. Behind the end of an answer stand further ends.
    """

    def __init__(self, writer, beams):
        super().__init__()
        self.writer, self.beams = writer, beams

    def forward(self, task):
        scores, state = self.writer.read(task.unsqueeze(1))
        first = F.log_softmax(scores[-1, 0], 0)
        log_probs, last = first.topk(self.beams)
        answers = torch.full((self.beams, ANSWER), END, dtype=torch.int32)
        last = last.to(torch.int32)
        answers = poptorch.dynamic_update(answers, last.unsqueeze(1), 1,
                                          torch.zeros(1, dtype=torch.int32), 1)
        column = torch.ones(1, dtype=torch.int32)
        state = state.expand(1, self.beams, state.shape[2])
        _, answers, log_probs, *_ = poptorch.for_loop(
            ANSWER - 1, self.extended, [column, answers, log_probs, last, state])
        return answers, log_probs

    def extended(self, column, answers, log_probs, last, state):
        """A round: each beginning is gone on with, and the likeliest stay."""
        scores, state = self.writer.read(last.unsqueeze(0), state)
        following = F.log_softmax(scores[0], 1)
        # After its end an answer goes on with further ends alone.
        only_end = torch.full((VOCABULARY,), NEVER).to(following.dtype)
        only_end[END] = 0.0
        following = torch.where((last == END).unsqueeze(1), only_end, following)
        log_probs, best = (log_probs.unsqueeze(1) + following).flatten().topk(self.beams)
        beam, letter = best // VOCABULARY, (best % VOCABULARY).to(torch.int32)
        answers = poptorch.dynamic_update(answers.index_select(0, beam), letter.unsqueeze(1), 1,
                                          column, 1)
        return [column + 1, answers, log_probs, letter, state.index_select(1, beam)]


def all_lines():
    """Every task with its answer, as numbers of letters ``[100, TASK + ANSWER]``."""
    lines = [f"{a}+{b}={a + b}".ljust(TASK + ANSWER, ".") for a in range(10) for b in range(10)]
    return torch.tensor([[LETTERS.index(letter) for letter in line] for line in lines])


def written(answers):
    """Answers as text."""
    return ["".join(LETTERS[i] for i in answer).rstrip(".") for answer in answers.tolist()]


def results(args, way):
    """Trains from ``--seed`` in one way, and searches for the answers to all tasks.

    Args:
        args: the command line.
        way: ``"poptorch"``, or the dtype in which plain PyTorch is to compute.

    Returns:
        Weights, answers and the logarithms of their probabilities by name; the loss of each step;
        and the share of tasks whose likeliest answer is right.
    """
    torch.manual_seed(args.seed)
    dtype = torch.float32 if way == "poptorch" else way
    net = Writer(args.width).to(dtype)
    optimizer = torch.optim.Adam(net.parameters(), lr=args.learning_rate)
    model = poptorch.trainingModel(net, optimizer=optimizer) if way == "poptorch" else net
    generator, lines, losses = torch.Generator().manual_seed(args.seed), all_lines(), []
    for _ in tqdm(range(args.steps), desc=f"with {way}"):
        _, loss = model(lines[torch.randint(0, 100, (args.batch,), generator=generator)])
        losses.append(loss.item())
        if way != "poptorch":
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    if way == "poptorch":
        model.destroy()
    search = Search(net.eval(), args.beam_width)
    if way == "poptorch":
        search = poptorch.inferenceModel(search)
    with torch.no_grad():
        found = [search(line[:TASK]) for line in lines]
    answers = torch.stack([answers for answers, _ in found]).long()
    best = written(answers[:, 0])
    right = sum(a == b for a, b in zip(best, written(lines[:, TASK:]))) / len(lines)
    log_probs = torch.stack([log_probs for _, log_probs in found])
    return {"answers": answers[:, 0], "log_probs": log_probs[:, 0], **net.state_dict()}, \
        losses, right


def parse_arguments(words=None):
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--steps", type=int, default=400, help="default: %(default)s")
    add("--batch", type=int, default=50, help="default: %(default)s")
    add("--width", type=int, default=48, help="of the memory (default: %(default)s)")
    add("--beam-width", type=int, default=4, help="default: %(default)s")
    add("--learning-rate", type=float, default=0.005, help="default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    return parser.parse_args(words)


def main(words=None):
    """Trains in both ways, prints losses, right answers and how far the weights are apart."""
    args = parse_arguments(words)
    ours, plain = results(args, "poptorch"), results(args, torch.float32)
    for name, (_, losses, right) in (("poptorch", ours), ("PyTorch", plain)):
        print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {right:.0%} of the answers right")
    print(f"same answers: {torch.equal(ours[0]['answers'], plain[0]['answers'])}")
    distance = max((ours[0][name] - x).abs().max().item() for name, x in plain[0].items())
    print(f"largest difference of a probability's logarithm or of a weight: {distance:.1e}")


if __name__ == "__main__":
    main()

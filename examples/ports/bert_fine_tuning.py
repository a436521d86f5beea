"""Fine-tunes a small BERT-style encoder: gradient accumulation, replicas, a learning-rate schedule.

The sentences are artificial: words are good, bad or neutral, and "not" inverts the next word. One
head says whether a sentence is good or bad, another the meaning of each word in its context. The
losses are added. The same steps in plain PyTorch give the same loss curve, except for rounding
errors, which grow from step to step.

Examples:
    python examples/ports/bert_fine_tuning.py
    python examples/ports/bert_fine_tuning.py --steps 40 --accumulation 2 --replicas 4
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset
from tqdm import tqdm

import poptorch

LENGTH = 15
NOT, WORDS = 0, 61  # 1..20 are good, 21..40 bad, 41..60 neutral
GOOD, BAD, NEUTRAL = 0, 1, 2


def make_sentences(count, seed):
    """Words ``[count, LENGTH]``, their meaning (same shape), and whether more are good than bad."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(1, WORDS, (count, LENGTH), generator=generator)
    is_not = torch.rand(count, LENGTH, generator=generator) < 0.2
    meaning = (words - 1) // 20
    turned = is_not.roll(1, dims=1)
    turned[:, 0] = False
    meaning = torch.where(turned & (meaning != NEUTRAL), 1 - meaning, meaning)
    words = words.masked_fill(is_not, NOT)
    meaning = meaning.masked_fill(is_not, NEUTRAL)
    is_good = (meaning == GOOD).sum(1) > (meaning == BAD).sum(1)
    return TensorDataset(words, meaning, is_good.long())


class Bert(nn.Module):
    """Embeddings, ``torch.nn.TransformerEncoder`` and two heads.

    Given the answers it returns ``(scores [batch, 2], loss)``, else the scores.
    """

    def __init__(self, width=48, heads=4, layers=2):
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.positions = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pooler, self.classify = nn.Linear(width, width), nn.Linear(width, 2)
        self.tag = nn.Linear(width, 3)

    def forward(self, words, meaning=None, is_good=None):
        positions = torch.arange(words.shape[1], device=words.device)
        x = self.encoder(self.words(words) + self.positions(positions))
        scores = self.classify(torch.tanh(self.pooler(x.mean(1))))
        if is_good is None:
            return scores
        tagging = F.cross_entropy(self.tag(x).flatten(0, 1), meaning.flatten())
        loss = F.cross_entropy(scores, is_good) + tagging
        return scores, poptorch.identity_loss(loss, reduction="none")


def optimizer_for(net, args):
    """AdamW without decay of biases and norms, and a schedule: warm up, then down to zero."""
    decayed = [p for p in net.parameters() if p.dim() > 1]
    others = [p for p in net.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.learning_rate)
    warm_up = max(1, args.steps // 10)

    def factor(step):
        return min((step + 1) / warm_up, (args.steps - step) / (args.steps - warm_up + 1))

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def train(net, batches, options, args):
    """Trains by poptorch; returns the loss of each step."""
    optimizer, schedule = optimizer_for(net, args)
    model = poptorch.trainingModel(net, options, optimizer)
    losses = []
    with tqdm(batches, desc="poptorch") as bar:
        for batch in bar:
            _, loss = model(*batch)
            losses.append(loss.mean().item())
            schedule.step()
            model.setOptimizer(optimizer)
            bar.set_postfix(loss=f"{losses[-1]:.3f}", lr=f"{schedule.get_last_lr()[0]:.1e}")
    model.destroy()
    return losses


def train_eager(net, batches, args):
    """The same in PyTorch, where the batch of a step is one batch."""
    optimizer, schedule = optimizer_for(net, args)
    losses = []
    for batch in tqdm(batches, desc="PyTorch"):
        optimizer.zero_grad()
        _, loss = net(*batch)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def accuracy(net, sentences):
    """Percentage of sentences that are classified correctly."""
    model = poptorch.inferenceModel(net.eval())
    words, _, is_good = sentences.tensors
    return (model(words).argmax(1) == is_good).float().mean().item() * 100


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=400, help="default: %(default)s")
    add("--micro-batch", type=int, default=8, help="default: %(default)s")
    add("--accumulation", type=int, default=4, help="micro-batches a step (default: %(default)s)")
    add("--replicas", type=int, default=2, help="default: %(default)s")
    add("--learning-rate", type=float, default=3e-3, help="default: %(default)s")
    add("--seed", type=int, default=0, help="default: %(default)s")
    return parser.parse_args()


def main():
    """Trains both ways, prints both losses and the accuracy."""
    args = parse_arguments()
    torch.manual_seed(args.seed)
    net = Bert()
    copy_of_net = copy.deepcopy(net)
    options = poptorch.Options().replicationFactor(args.replicas)
    options.outputMode(poptorch.OutputMode.All).randomSeed(args.seed)
    options.Training.gradientAccumulation(args.accumulation)
    per_step = args.micro_batch * args.replicas * args.accumulation
    sentences = make_sentences(args.steps * per_step, args.seed)
    loader = poptorch.DataLoader(options, sentences, batch_size=args.micro_batch)

    batches = list(loader)
    losses = train(net, batches, options, args)
    eager_losses = train_eager(copy_of_net, batches, args)
    held_back = make_sentences(500, args.seed + 1)
    print(f"accuracy on new sentences {accuracy(net, held_back):.1f} %")
    early = list(zip(losses, eager_losses, strict=True))[:100]
    distance = max(abs(ours - eager) for ours, eager in early)
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}, PyTorch's -> {eager_losses[-1]:.4f}, "
          f"largest distance in the first {len(early)} steps {distance:.1e}")


if __name__ == "__main__":
    main()

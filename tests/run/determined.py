"""Prints a digest of what networks compute: a program of its own, see test_determinism.py.

    python -m tests.run.determined <threads> <deterministic: 0 or 1> <offset of inputs in elements>
"""

import copy
import hashlib
import json
import sys

import torch
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

import poptorch
from tests.helpers import flatten, quiet_options
from tests.networks import harness
from tests.networks.zoo import build

NETWORKS = ("unet", "bert_encoder", "lstm_tagger")


class Large(nn.Module):
    """Convolutions that are oneDNN's, operators of torch's, and long sums of our own."""

    def __init__(self):
        super().__init__()
        self.dilated = nn.Conv2d(3, 12, 3, padding=2, dilation=2)
        self.volume = nn.Conv3d(1, 4, 3, padding=1)
        self.up = nn.ConvTranspose2d(12, 8, 3, stride=2, padding=1)
        self.line = nn.Conv1d(8, 16, 5, stride=2)
        self.table = nn.Embedding(50, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, x, words, target):
        x = torch.relu(self.dilated(x))
        x = x + self.volume(x.mean(1)[:, None, None])[:, :, 0].repeat(1, 3, 1, 1)
        x = self.line(torch.relu(self.up(x)).flatten(2))
        x = functional.dropout(x.mean(2) + self.table(words).mean(1), 0.2)
        scale = torch.linalg.vector_norm(x, ord=3.0) + torch.cdist(x, x).sum() / 100
        scale = scale + torch.special.i0(x).sum() / 100 + torch.lgamma(x.abs() + 1).std()
        scores = self.head(x) / scale
        return scores, functional.cross_entropy(scores, target)


def digest(tree) -> str:
    """A hash of all bits of the tensors of a structure."""
    found = hashlib.sha256()
    for name, tensor in flatten(tree).items():
        found.update(name.encode())
        found.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def shifted(tree, offset):
    """The same tensors, each beginning some elements after where memory begins."""

    def convert(x):
        memory = torch.empty(x.numel() + offset, dtype=x.dtype)[offset:]
        return memory.view(x.shape).copy_(x)

    return pytree.tree_map(lambda x: convert(x) if torch.is_tensor(x) else x, tree)


def run(module, optimizer, batches, deterministic, offset) -> dict[str, str]:
    """Digests of the results of two training steps, the weights, and inference."""
    options = quiet_options(randomSeed=7, deterministic=deterministic)
    model = poptorch.trainingModel(module.train(), options, optimizer)
    results = [model(*shifted(batch, offset)) for batch in batches]
    weights = harness.state_of(module)
    model.destroy()
    inference = poptorch.inferenceModel(
        copy.deepcopy(module).eval(), quiet_options(deterministic=deterministic))
    return {"results": digest(results), "weights": digest(weights),
            "inference": digest(inference(*shifted(batches[0], offset)))}


def main(threads: int, deterministic: bool, offset: int) -> None:
    """Prints the digests of all networks as JSON."""
    torch.set_num_threads(threads)
    found = {}
    for name in NETWORKS:
        network = build(name, 0)
        optimizer = network.make_optimizer(list(network.module.parameters()))
        found[name] = run(network.module, optimizer, network.batches(2, 0), deterministic, offset)
    torch.manual_seed(0)
    large = Large()
    batches = [(torch.randn(6, 3, 40, 40), torch.randint(0, 50, (6, 900)),
                torch.randint(0, 5, (6,))) for _ in range(2)]
    found["large"] = run(large, torch.optim.AdamW(large.parameters(), lr=0.01), batches,
                         deterministic, offset)
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "1", int(sys.argv[3]))

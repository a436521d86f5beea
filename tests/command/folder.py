"""The files that the examples of the help name."""

import json
import textwrap

import numpy
import safetensors.torch
import torch

import poptorch
from tests.helpers import quiet_options

NET = """
    import torch
    import poptorch

    class Net(torch.nn.Module):
        scale = 2

        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 8)

        def forward(self, x):
            y = self.fc(x) * self.scale
            return y, poptorch.identity_loss(y.square(), "mean")

    class Plain(torch.nn.Linear):
        def __init__(self):
            super().__init__(64, 8)

    class Deep(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU())
            self.head = torch.nn.Linear(32, 8)

        def forward(self, x):
            return self.head(self.encoder(x))

    inputs = torch.ones(16, 64)
"""


def fill(folder):
    """Writes the files to a folder, except those that commands write."""
    (folder / "net.py").write_text(textwrap.dedent(NET))
    x, label = torch.randn(16, 64), torch.randint(0, 8, (16,))
    numpy.save(folder / "x.npy", x.numpy())
    numpy.save(folder / "label.npy", label.numpy())
    numpy.savez(folder / "inputs.npz", x=x.numpy())
    numpy.savez(folder / "batches.npz", x=x.numpy(), label=label.numpy())
    safetensors.torch.save_file({"fc.weight": torch.randn(8, 64), "fc.bias": torch.zeros(8)},
                                folder / "net.safetensors")
    (folder / "config.json").write_text(json.dumps(
        {"precision_mode": "FP16", "precision_conversion_excluded_nodes": ["^head"],
         "batch_size": 4, "batch_per_step": 2, "matmul_amp": 0.3, "num_ipus": 1}))
    cached = quiet_options(enableExecutableCaching=str(folder / "cache"))
    model = poptorch.inferenceModel(torch.nn.Linear(4, 2), cached)
    model.compile(torch.ones(3, 4))
    (folder / "text.ir").write_text(model.ir("translate"))

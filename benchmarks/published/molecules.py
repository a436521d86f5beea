"""The definition of SchNet, with weights on the meta device."""

import math

import torch
from torch import nn
from torch.nn import functional


def _activation(x):
    return functional.softplus(x) - math.log(2.0)


class Interaction(nn.Module):
    """Filters from distances; messages along edges; two layers."""

    def __init__(self, features, gaussians, cutoff):
        super().__init__()
        self.filter1 = nn.Linear(gaussians, features)
        self.filter2 = nn.Linear(features, features)
        self.before = nn.Linear(features, features, bias=False)
        self.after, self.out = nn.Linear(features, features), nn.Linear(features, features)
        self.cutoff = cutoff

    def forward(self, x, edges, distance, basis):
        """Features of atoms of the same shape."""
        scale = 0.5 * (torch.cos(distance * (math.pi / self.cutoff)) + 1)
        filters = self.filter2(_activation(self.filter1(basis))) * scale[:, None]
        message = self.before(x).index_select(0, edges[0]) * filters
        sums = torch.zeros_like(x).index_add(0, edges[1], message)
        return x + self.out(_activation(self.after(sums)))


class SchNet(nn.Module):
    """SchNet with 100 features, 4 interactions and 25 gaussians.

    Args:
        atoms: of a pack; each pack has one target.
    """

    def __init__(self, atoms, cutoff=10.0):
        super().__init__()
        self.atoms, self.step = atoms, cutoff / 24
        self.species = nn.Embedding(100, 100)
        self.layers = nn.ModuleList(Interaction(100, 25, cutoff) for _ in range(4))
        self.hidden, self.energy = nn.Linear(100, 50), nn.Linear(50, 1)

    def forward(self, species, positions, edges, energies):
        """The loss of a micro-batch of packs.

        Args:
            species: int64 [packs, atoms].
            positions: float [packs, atoms, 3].
            edges: int64 [packs, 2, edges], indices of the pack's atoms.
            energies: float [packs].
        """
        packs = len(species)
        first = torch.arange(packs)[:, None, None] * self.atoms
        edges = (edges + first).transpose(0, 1).flatten(1)
        places = positions.flatten(0, 1)
        distance = (places.index_select(0, edges[0]) - places.index_select(0, edges[1])).square()
        distance = distance.sum(1).sqrt()
        centers = torch.arange(25, dtype=distance.dtype) * self.step
        basis = torch.exp(-0.5 / self.step ** 2 * (distance[:, None] - centers).square())
        x = self.species(species.flatten())
        for layer in self.layers:
            x = layer(x, edges, distance, basis)
        atoms = self.energy(_activation(self.hidden(x)))
        return functional.mse_loss(atoms.view(packs, self.atoms).sum(1), energies)

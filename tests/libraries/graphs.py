"""Models of torch_geometric, on graphs that are padded to a fixed number of nodes and edges."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

from tests.networks.zoo.base import Network, integers, normal, sgd

NODES, EDGES, FEATURES, CLASSES = 12, 40, 8, 3
UNUSED = 4  # edges of the padding: from the last node to itself


class Classified(nn.Module):
    """Scores of the nodes, and a loss that leaves out the last node, which is padding."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x, edges, labels):
        scores = self.model(x, edges)
        if not self.training:
            return scores
        return scores, F.cross_entropy(scores[:-1], labels[:-1])


@dataclass(frozen=True)
class GraphModel:
    """A class of ``torch_geometric.nn`` with two layers."""

    name: str
    settings: dict = field(default_factory=dict)

    def network(self) -> Network:
        """The model, without dropout."""
        import torch_geometric.nn  # not a requirement of the tests: `make libraries` installs it

        model = getattr(torch_geometric.nn, self.name)(
            FEATURES, 16, 2, out_channels=CLASSES, **self.settings)
        return Network(Classified(model), _graph, sgd(0.05))


def _graph(generator: torch.Generator) -> tuple:
    edges = integers(generator, NODES - 1, 2, EDGES - UNUSED - NODES)
    loops = torch.arange(NODES).expand(2, -1)
    padding = torch.full((2, UNUSED), NODES - 1)
    return (normal(generator, NODES, FEATURES), torch.cat([edges, loops, padding], dim=1),
            integers(generator, CLASSES, NODES))


# The edges have loops already. To add those that are missing, the library looks at their values.
MODELS = {model.name: model for model in (
    GraphModel("GCN", {"add_self_loops": False}), GraphModel("GAT", {"add_self_loops": False}),
    GraphModel("GIN"), GraphModel("GraphSAGE"), GraphModel("EdgeCNN"))}

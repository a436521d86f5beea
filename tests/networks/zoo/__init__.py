"""Small complete networks, each a whole training program: see ``base.Network``."""

from tests.networks.zoo import recurrent, structure, text, vision  # noqa: F401  (they register)
from tests.networks.zoo.base import NETWORKS, Network, build

__all__ = ["NETWORKS", "Network", "build"]

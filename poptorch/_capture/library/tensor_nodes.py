"""The node of the graph that a fake tensor stands for.

The tensor refers to it weakly. A node holds its tensor, and tensors hold others where
Python's collector does not see it, as a view does its base: a graph that they held in turn would
never be freed.
"""

import weakref

import torch
from torch import fx

_NODE = "_poptorch_node"


def attach(tensor: torch.Tensor, node: fx.Node) -> None:
    """Lets ``node`` stand for ``tensor``."""
    setattr(tensor, _NODE, weakref.ref(node))


def attach_like(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Lets the node of ``other``, if it has one, stand for ``tensor`` too."""
    setattr(tensor, _NODE, getattr(other, _NODE, None))


def node_of(tensor: torch.Tensor) -> fx.Node | None:
    """The node that stands for a tensor, if there still is one."""
    node = getattr(tensor, _NODE, None)
    return node and node()

"""The bodies of loops that are being traced, and what stands in them for tensors from outside.

A tensor from outside has a history, through which autograd would go on to parameters that the body
uses as well. So functions that are called in a body get a tensor without a history, of the same
node.
"""

import contextlib

import torch

from poptorch._base.layout import memory_of
from poptorch._base.pytree.structure import map_only
from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._capture.graph.unknown_sizes import UnknownSize
from poptorch._capture.library import tensor_nodes


class Taken:
    """What a body takes from outside: the ``outer`` tensors, and those ``standing`` for them.
    ``has_hooks`` is whether a hook is registered in it."""

    def __init__(self, recorder, name: str, region, is_trained: bool):
        self.name = name
        self.has_hooks = False
        self._recorder, self._region, self._is_trained = recorder, region, is_trained
        self._known: dict[int, int] = {}
        self.outer: list[torch.Tensor] = []
        self.standing: list[torch.Tensor] = []

    def inside(self, tensor: torch.Tensor) -> torch.Tensor:
        """What stands for a tensor in the body."""
        if not self._is_trained or not tensor.requires_grad:
            return tensor
        plain = private.without_transforms(tensor)
        node = tensor_nodes.node_of(plain)
        if node is not None and self._recorder.is_within(node, self._region):
            return tensor
        if plain is not tensor:
            raise self._recorder.error(
                "[torch.func] a function inside of the body is transformed for a tensor from "
                "outside of it that requires grad. Pass the tensor as an input of the body.")
        number = self._known.get(id(tensor))
        if number is None:
            number = self._known[id(tensor)] = len(self.outer)
            fake = self._recorder.fake(tensor)
            with private.without_function_transforms():
                standing = fake_tensors.detached(self._recorder.fake_mode, fake).requires_grad_()
            tensor_nodes.attach_like(standing, fake)
            self.outer.append(tensor)
            self.standing.append(standing)
        return self.standing[number]

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor stands for one from outside."""
        return any(tensor is x for x in self.standing)

    def check(self, results: list[torch.Tensor]) -> None:
        """Checks that the results depend on nothing outside by another way than functions of
        torch."""
        known = {id(x) for x in self.standing}
        for result in results:
            for node in private.autograd_nodes(result.grad_fn):
                leaf = getattr(node, "variable", None)
                if leaf is None or id(leaf) in known:
                    continue
                inner = tensor_nodes.node_of(leaf)
                if inner is None or not self._recorder.is_within(inner, self._region):
                    raise self._recorder.error(
                        f"[{self.name}] the body hands a tensor from outside of it that requires "
                        f"grad to a torch.autograd.Function. Pass the tensor as an input of the "
                        f"body.")


class Bodies:
    """The bodies that are being traced, the innermost last."""

    def __init__(self, recorder):
        self._recorder = recorder
        self._traced: list[Taken] = []

    def __bool__(self) -> bool:
        return bool(self._traced)

    @contextlib.contextmanager
    def traced(self, name: str, region, is_trained: bool):
        """A context in which a body of a function of this name is traced into a region."""
        self._traced.append(Taken(self._recorder, name, region, is_trained))
        try:
            yield self._traced[-1]
        finally:
            self._traced.pop()

    def note_hook(self) -> None:
        """Notes that the gradients of the innermost body pass code of the user's."""
        if self._traced:
            self._traced[-1].has_hooks = True

    def inside(self, tensor: torch.Tensor) -> torch.Tensor:
        """What stands for a tensor in the innermost body."""
        if isinstance(tensor, UnknownSize):
            return tensor
        traced, self._traced = self._traced, []  # functions that this calls are not the bodies'
        try:
            entered = [i for i, body in enumerate(traced, 1) if body.has(tensor)]
            for body in traced[max(entered, default=0):]:
                tensor = body.inside(tensor)
            return tensor
        finally:
            self._traced = traced

    def refusal(self, error: Exception, arguments) -> Exception | None:
        """What the user is to see where PyTorch refused by ``error`` to change a leaf in place, if
        one of the arguments stands for a tensor from outside, which may be none."""
        if "leaf Variable that requires grad" not in str(error):
            return None
        given: set = set()
        map_only(torch.Tensor, lambda x: given.add(memory_of(x)) or x, arguments)
        for body in reversed(self._traced):
            if not given.isdisjoint(map(memory_of, body.standing)):
                return self._recorder.error(changes_outside(body.name))
        return None


def changes_outside(name: str) -> str:
    """The message about a body that changes a tensor from outside."""
    return (f"[{name}] the body changes a tensor from outside of it in place. Pass it as an input "
            f"and return its new value.")

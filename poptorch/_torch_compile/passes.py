"""A forward and a backward graph as one function of autograd, without AOTAutograd's own call.

What AOTAutograd puts around its graphs takes longer than a small step. It handles arguments that a
call changes, results that share memory, tensor subclasses and symbolic sizes. Graphs without them
need only a node of autograd.
"""

from collections.abc import Callable
from functools import partial

import torch

from poptorch import _C
from poptorch._base.torch_private import compiling
from poptorch._base.torch_private.basic import untraced
from poptorch._torch_compile.graph import CompiledGraph
from poptorch.errors import Error


class Passes:
    """The forward and the backward graph that AOTAutograd makes from one graph.

    Attributes:
        forward: the forward graph, or the only one.
        backward: the backward graph; None: no result requires grad, or it is not compiled yet.
        make_backward: makes a backward graph without the arguments with these numbers: zeros.
        metadata: what AOTAutograd found out about arguments and results.
    """

    def __init__(self) -> None:
        self.forward: CompiledGraph | None = None
        self.backward: CompiledGraph | None = None
        self.make_backward: Callable[[set[int]], CompiledGraph] | None = None
        self.metadata = None
        self.is_differentiable = False

    def direct(self, arguments: int) -> _C.GraphCall | None:
        """A function of so many tensors that runs the graphs; None: AOTAutograd has to."""
        if self.forward is None or not compiling.is_direct(self.metadata, arguments) \
                or self.forward.arguments != arguments or self.forward.is_dynamic:
            return None
        results = len(self.metadata.output_info)
        if not self.is_differentiable:
            return _C.GraphCall(self.forward) if self.forward.results == results else None
        with_grad = [index for index, info in enumerate(self.metadata.output_info)
                     if info.requires_grad]
        saved = self.forward.results - results
        if self.backward is None or self.forward.returned != results \
                or self.backward.arguments != saved + len(with_grad) \
                or self.backward.results != arguments \
                or any(map(self.forward.is_constant, range(self.forward.results))) \
                or any(map(self.forward.is_argument, range(results))):
            return None
        # An argument without gradient: backward() of another result must not go through it.
        is_reached = [not self.backward.is_constant(index) for index in range(arguments)]
        call = _C.GraphCall(self.forward)
        call.differentiate(self.backward, partial(self._without, saved),
                           partial(_run_once, self.backward), results, is_reached, with_grad)
        return call

    def _without(self, saved: int, gradients: list[int]) -> CompiledGraph:
        """A backward graph without these gradients, which follow ``saved`` other arguments."""
        return self.make_backward({saved + number for number in gradients})


@untraced
def _run_once(backward: CompiledGraph, arguments: list) -> tuple:
    """The results of a backward graph, which have no derivative."""
    return _Once.apply(torch.empty(0, requires_grad=True), backward, arguments)


class _Once(torch.autograd.Function):
    """A backward pass without a derivative."""

    @staticmethod
    def forward(ctx, anchor, backward, arguments):
        return tuple(backward(arguments))

    @staticmethod
    def backward(ctx, *gradients):
        raise Error("[compile] second derivatives are not supported: backward() of gradients that "
                    "were made with create_graph=True reached a compiled graph. Leave create_graph "
                    "out, or run this part eagerly.")

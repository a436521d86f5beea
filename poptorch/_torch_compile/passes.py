"""A forward and a backward graph as one function of autograd, without AOTAutograd's own call.

What AOTAutograd puts around its graphs takes longer than a small step. It handles arguments that a
call changes, results that share memory, tensor subclasses and symbolic sizes. Graphs without them
need only ``torch.autograd.Function``.
"""

from collections.abc import Callable

import torch

from poptorch._base.torch_private import compiling
from poptorch._torch_compile.graph import CompiledGraph
from poptorch.errors import Error


class Passes:
    """The forward and the backward graph that AOTAutograd makes from one graph.

    Attributes:
        forward: the forward graph, or the only one.
        backward: the backward graph; None: no result requires grad, or it is not compiled yet.
        metadata: what AOTAutograd found out about arguments and results.
    """

    def __init__(self) -> None:
        self.forward: CompiledGraph | None = None
        self.backward: CompiledGraph | None = None
        self.metadata = None
        self.is_differentiable = False

    def direct(self, arguments: int) -> Callable | None:
        """A function of so many tensors that runs the graphs; None: AOTAutograd has to."""
        if self.forward is None or not compiling.is_direct(self.metadata, arguments) \
                or self.forward.arguments != arguments or self.forward.is_dynamic:
            return None
        results = len(self.metadata.output_info)
        if not self.is_differentiable:
            return self._infer if self.forward.results == results else None
        with_grad = [index for index, info in enumerate(self.metadata.output_info)
                     if info.requires_grad]
        saved = self.forward.results - results
        if self.backward is None or self.forward.returned != results \
                or self.backward.arguments != saved + len(with_grad) \
                or self.backward.results != arguments:
            return None
        self.with_grad = with_grad
        self.without_grad = sorted(set(range(results)) - set(with_grad))
        self._unviewed = self.metadata.unsafe_view_out_indices
        # Such an argument has no gradient: backward() of another result must not go through it.
        self._detached = [index for index, info in enumerate(self.metadata.input_info)
                          if info.requires_grad and not info.is_leaf
                          and self.backward.is_constant(index)]
        return self._train

    def _infer(self, *arguments: torch.Tensor) -> list[torch.Tensor]:
        with torch.no_grad():
            return self.forward(list(arguments))

    def _train(self, *arguments: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if self._detached:
            arguments = tuple(argument.detach() if index in self._detached else argument
                              for index, argument in enumerate(arguments))
        if torch.is_grad_enabled():
            return _Function.apply(self, *arguments)
        with torch.enable_grad():
            return _Function.apply(self, *arguments)

    def run_forward(self, arguments: tuple[torch.Tensor, ...]
                    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The results, and the tensors that :meth:`run_backward` takes."""
        values = self.forward(list(arguments))
        count = self.forward.returned
        for index in self._unviewed:
            values[index] = torch.ops.aten._unsafe_view(values[index], values[index].shape)
        return values[:count], [value.detach() if value._is_view() else value
                                for value in values[count:]]

    def run_backward(self, saved: tuple[torch.Tensor, ...], gradients: tuple) -> list:
        """The gradients of the arguments."""
        return self.backward([*saved, *(gradients[index] for index in self.with_grad)])


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, passes, *arguments):
        results, saved = passes.run_forward(arguments)
        ctx.passes = passes
        ctx.save_for_backward(*saved)
        if passes.without_grad:
            ctx.mark_non_differentiable(*[results[index] for index in passes.without_grad])
        return tuple(results)

    @staticmethod
    @compiling.untraced
    def backward(ctx, *gradients):
        saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            anchor = torch.empty(0, requires_grad=True)
            return None, *_Once.apply(anchor, ctx.passes, saved, gradients)
        return None, *ctx.passes.run_backward(saved, gradients)


class _Once(torch.autograd.Function):
    """A backward pass without a derivative."""

    @staticmethod
    def forward(ctx, anchor, passes, saved, gradients):
        return tuple(passes.run_backward(saved, gradients))

    @staticmethod
    def backward(ctx, *gradients):
        raise Error("[compile] second derivatives are not supported: backward() of gradients that "
                    "were made with create_graph=True reached a compiled graph. Leave create_graph "
                    "out, or run this part eagerly.")

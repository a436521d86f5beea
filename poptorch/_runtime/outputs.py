"""Host memory for what a call returns, and how it becomes the user's structure."""

import torch

from poptorch._base.hidden_subclass import Transparent, no_torch_function
from poptorch.enums import OutputMode
from poptorch.errors import Error


class Returned(Transparent, torch.Tensor):
    """What a call returns: a plain tensor, but that ``backward()`` says why it has no history."""

    __torch_function__ = no_torch_function

    def backward(self, *args, **kwargs):
        # A history that the user gave it (requires_grad_(), an op in place) is one to go back by.
        if self.requires_grad:
            return super().backward(*args, **kwargs)
        raise Error("[executor] backward() cannot be called explicitly on outputs of a PopTorch "
                    "model: a call of a model that poptorch.trainingModel wrapped runs the "
                    "backward pass and the weight update. Remove the call of backward().")

    def detach(self):
        # torch.nn.Parameter and torch.nn.Buffer read the class of what they are given.
        detached = super().detach()
        detached.__class__ = Returned
        return detached


def _becomes(kind: type, marker: str) -> property:
    """The attribute by which torch marks such a tensor, which then gets the class ``kind``."""
    def mark(self, value):
        self.__class__ = kind
        if kind is not torch.nn.Parameter:  # its class is the mark
            setattr(self, marker, value)
    return property(lambda self: False, mark)


Returned._is_param = _becomes(torch.nn.Parameter, "_is_param")
Returned._is_buffer = _becomes(torch.Tensor, "_is_buffer")


class OutputPlan:
    """How many results of one stream a call keeps, and the shape of the tensor that holds them.

    An Error for ``EveryN`` with a period that does not divide ``device_iterations``.
    """

    def __init__(self, mode: OutputMode, period: int, device_iterations: int, accumulation: int,
                 replicas: int):
        self.mode = mode
        self.period = period
        steps = device_iterations * accumulation
        if mode is OutputMode.EveryN and device_iterations % period:
            raise Error(f"[outputMode] OutputMode.EveryN keeps the results of every {period}-th "
                        f"of {device_iterations} device iterations, but {period} does not divide "
                        f"{device_iterations}. Choose a period that does.")
        self.steps = {OutputMode.All: steps, OutputMode.EveryN: steps // period}.get(mode, 1)
        self.kept = self.steps * replicas

    def shape(self, sizes: list[int]) -> list[int]:
        """The sizes of all kept results of micro-batches of ``sizes``, side by side on dimension 0.

        A 0-d result stays 0-d when exactly one is kept.
        """
        if sizes:
            return [self.kept * sizes[0], *sizes[1:]]
        return [] if self.kept == 1 else [self.kept]

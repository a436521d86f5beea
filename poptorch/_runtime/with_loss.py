"""A module and a loss function as one module."""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from poptorch.errors import Error
from poptorch.ops.loss import identity_loss


class WithLoss(torch.nn.Module):
    """Calls ``net``, then ``loss`` with its result and the last positional argument.

    Parameters, buffers and layers have the same paths as in ``net``.
    """

    def __init__(self, net: torch.nn.Module, loss: Callable):
        super().__init__()
        _check_loss(loss)
        self._modules[""] = net  # so that the path of a layer is the one in net
        self._name = "loss"
        while hasattr(net, self._name):
            self._name += "_"
        setattr(self, self._name, loss)
        self.training = net.training

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Any, torch.Tensor]:
        """The result of ``net``, and the loss."""
        net = self._modules[""]
        _check_call(net, args, kwargs)
        output = net(*args[:-1], **kwargs)
        loss = getattr(self, self._name)(output, args[-1])
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            got = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) \
                else f"an object of {type(loss).__name__}"
            raise Error(f"[trainingModel] expected one number from loss=, got {got}. Reduce the "
                        f"loss, for example with reduction=\"mean\".")
        return output, identity_loss(loss, reduction="mean")


def _check_loss(loss: Callable) -> None:
    if not callable(loss):
        raise TypeError(f"[trainingModel] loss must be a function of the output and the target, "
                        f"got {type(loss).__name__}. Pass a module such as "
                        f"torch.nn.CrossEntropyLoss(), or a function.")
    if isinstance(loss, type):
        raise TypeError(f"[trainingModel] loss must be a function of the output and the target, "
                        f"got the class {loss.__name__}. Pass an object: {loss.__name__}().")
    trained = [name for name, parameter in loss.named_parameters() if parameter.requires_grad] \
        if isinstance(loss, torch.nn.Module) else []
    if trained:
        raise Error(f"[trainingModel] loss has the parameter {trained[0]}, which requires grad, "
                    f"but only parameters of the model are trained. Make the loss a submodule of "
                    f"the model, or call requires_grad_(False) on it.")


def _check_call(net: torch.nn.Module, args: tuple, kwargs: dict) -> None:
    try:
        inspect.signature(net.forward).bind(*args[:-1], **kwargs)
    except ValueError:  # it has no signature
        pass
    except TypeError as error:
        raise Error(f"[trainingModel] with loss=, the last positional argument of a call is the "
                    f"target, and forward of {type(net).__name__} takes the others: {error}. Got "
                    f"{len(args)} positional arguments. Pass the inputs, then the target.") \
            from None

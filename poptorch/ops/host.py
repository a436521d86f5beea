"""Functions of the host inside a model."""

from collections.abc import Callable
from typing import Any

import torch

from poptorch._base import capture_context
from poptorch._base.pytree.structure import Structure, map_only
from poptorch.errors import Error
from poptorch.ops.host_sites import Site


class CPU:
    """A function that runs on the host, in PyTorch eager, inside a model.

    The model is compiled as one program; where it comes to the call, the program calls the
    function with the tensors that it has computed, once for each micro-batch, and continues with
    what the function returns. In training, the gradient goes through the function by autograd.
    Outside of poptorch the function is just called. The results are copies: none shares memory with
    an argument or a different result.

    It may do what cannot be compiled: read values, branch on them, use other libraries. Its
    results must be tensors, alone or in containers, whose types and sizes are the same in each run.
    To learn these, the function is called once while the model is compiled: on tensors without
    data, or, if it reads values, on zeros.

    Parameters that the function uses by itself are the host's: their gradients are added to their
    ``grad``, as those of the whole loss: without the loss scale, and divided by the number of
    micro-batches and replicas where gradients are combined by their mean. An automatic loss scale
    is refused with them. A parameter that the program trains must be passed as an argument.

    Args:
        layer_to_call: a function, a method or a module.
        ID: its name, for messages.

    Attributes:
        name: the name.
        inputs, outputs: arguments ``(args, kwargs)`` and result of the last call that was kept;
            see :meth:`registerPersistentData`.

    Raises:
        poptorch.Error: ``layer_to_call`` cannot be called; while the model is compiled, when the
            function changes its arguments in place, returns anything but tensors, or uses a
            parameter that the program trains; and when the program runs, where it returns other
            types or sizes, or the gradients of its own parameters have an automatic loss scale.
            What the function itself raises reaches the caller, and the executor can be used
            afterwards.

    Example:
        >>> import poptorch, torch
        >>> class Net(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.by_rank = poptorch.CPU(self.rank, "rank")
        ...     def rank(self, x):
        ...         order = x.numpy().argsort()
        ...         return torch.from_numpy(order)
        ...     def forward(self, x):
        ...         return self.by_rank(x * 2)
        >>> opts = poptorch.Options().showCompilationProgressBar(False)
        >>> model = poptorch.inferenceModel(Net(), opts)
        >>> model(torch.tensor([0.5, -1.0, 0.0]))
        tensor([1, 2, 0], dtype=torch.int32)
    """

    def __init__(self, layer_to_call: Callable[..., Any], ID: str):
        if not callable(layer_to_call):
            raise Error(f"[CPU] layer_to_call is {layer_to_call!r}, which cannot be called. Pass a "
                        f"function or a module.")
        self.layer_to_call, self.name = layer_to_call, str(ID)
        self.inputs = self.outputs = None
        self._is_kept = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result of the function for these arguments."""
        capture = capture_context.current()
        if capture is None:
            returned = self.layer_to_call(*args, **kwargs)
            self._note((args, kwargs), returned)
            return map_only(torch.Tensor, torch.Tensor.clone, returned)
        tensors, arguments = Structure.of((args, kwargs), "CPU", f"the arguments of {self.name!r}")
        tensors = list(map(capture.bodies.inside, tensors))
        site = Site(self, capture.users(self.layer_to_call), arguments, tensors)
        site.find_results(capture, tensors)
        capture.host_sites.append(site)
        return site.structure.unflatten(site.recorded(tensors))

    def registerPersistentData(self) -> None:
        """Keeps the arguments and the result of each call from now on, until the next one.

        They are in :attr:`inputs` and :attr:`outputs`, whether a program has made the call or not.

        Example:
            >>> import poptorch, torch
            >>> double = poptorch.CPU(lambda x: 2 * x, "double")
            >>> double.registerPersistentData()
            >>> double(torch.ones(2))
            tensor([2., 2.])
            >>> double.outputs
            tensor([2., 2.])
        """
        self._is_kept = True

    def execute(self) -> Any:
        """Calls the function again, on the arguments of the last call that was kept.

        Returns:
            Its result, which is kept too.

        Raises:
            poptorch.Error: No call was kept.

        Example:
            >>> import poptorch, torch
            >>> double = poptorch.CPU(lambda x: 2 * x, "double")
            >>> double.registerPersistentData()
            >>> double(torch.ones(2))
            tensor([2., 2.])
            >>> double.execute()
            tensor([2., 2.])
        """
        if self.inputs is None:
            raise Error(f"[CPU] no call of {self.name!r} was kept. Call registerPersistentData(), "
                        f"and the op.")
        args, kwargs = self.inputs
        self.outputs = self.layer_to_call(*args, **kwargs)
        return self.outputs

    def _note(self, inputs: tuple[tuple, dict], outputs) -> None:
        """Keeps a call, if calls are kept."""
        if self._is_kept:
            self.inputs, self.outputs = inputs, outputs

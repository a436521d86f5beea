"""Notices that a module no longer is the one that was compiled."""

import torch

from poptorch._capture.process_state import one_at_a_time
from poptorch._executor.transparent import plain_access
from poptorch.errors import Error


class ModuleGuard:
    """The parameters and buffers of a compiled module, as they were when it was compiled.

    Args:
        module: the module.
        states: the tensors that the program reads or writes.
        training: whether a changed ``requires_grad`` matters.
    """

    def __init__(self, module: torch.nn.Module, states, training: bool):
        kept = {id(tensor) for tensor in states}
        self._training = training
        # (the table that holds the module or tensor, its key there, itself)
        self._children = []
        # The same, with the tensor's dtype and requires_grad.
        self._slots = []
        self._paths = []
        for path, part in module.named_modules():
            self._children += [(part._modules, key, child)
                               for key, child in part._modules.items()]
            for table in (part._parameters, part._buffers):
                for key, tensor in table.items():
                    if id(tensor) in kept:
                        self._slots.append((table, key, tensor, tensor.dtype,
                                            tensor.requires_grad))
                        self._paths.append(f"{path}.{key}" if path else key)

    def check(self) -> None:
        """Checks that the module still has the layers and tensors it was compiled with.

        Raises:
            poptorch.Error: One was replaced, or a tensor's dtype or (in training)
                ``requires_grad`` is another.
        """
        try:
            self._check()
        except Error:
            # A capture in another thread puts tensors of its own into the module for a while.
            with one_at_a_time:
                self._check()

    def _check(self) -> None:
        for table, key, child in self._children:
            if table.get(key) is not child:
                raise _error(f"{type(child).__name__} {key}: the layer that was compiled was "
                             f"replaced, there is {table.get(key)}. Put it back")
        training = self._training
        # Metadata of a tensor that torch_function watches: without the detour through Python.
        with plain_access():
            for i, (table, key, tensor, dtype, requires_grad) in enumerate(self._slots):
                now = table.get(key)
                if now is not tensor or now.dtype is not dtype \
                        or (training and now.requires_grad is not requires_grad):
                    raise self._tensor_error(i, now)

    def _tensor_error(self, index: int, now) -> Error:
        _, _, tensor, dtype, requires_grad = self._slots[index]
        path = self._paths[index]
        if now is not tensor:
            found = "nothing" if now is None else f"another tensor of shape {tuple(now.shape)}"
            what = (f"the tensor of shape {tuple(tensor.shape)} that was compiled was replaced, "
                    f"there is {found}. To change values use copy_() and copyWeightsToDevice()")
        elif now.dtype is not dtype:
            what = f"it was compiled as {dtype}, it is {now.dtype}. Convert it back"
        else:
            what = (f"it was compiled with requires_grad={requires_grad}, it has "
                    f"requires_grad={now.requires_grad}. Set it back")
        return _error(f"{path}: {what}")


def _error(what: str) -> Error:
    return Error(f"[weights] {what}; or call destroy(), and the next call compiles the module as "
                 f"it is.")

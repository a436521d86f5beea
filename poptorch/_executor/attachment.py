"""The executor's hold on its device, as the API shows it; releasing it is not implemented."""

from poptorch._later import LATER
from poptorch.errors import Error


class Attachment:
    """The part of the executor that knows whether it holds a device."""

    def isAttachedToDevice(self) -> bool:
        """Whether the executor holds its device: from when ``Options.connectionType`` says on.

        Returns:
            True from then until ``destroy()``.

        Example:
            >>> import poptorch, torch
            >>> poptorch.inferenceModel(torch.nn.ReLU()).isAttachedToDevice()
            False
        """
        return self._device.is_held

    @property
    def _is_attached(self) -> bool:
        return self._device.is_held

    def attachToDevice(self) -> None:
        """Takes the device again after :meth:`detachFromDevice`; not implemented.

        Raises:
            poptorch.Error: Always, so far.

        Example:
            >>> import poptorch, torch
            >>> poptorch.inferenceModel(torch.nn.ReLU()).attachToDevice()
            Traceback (most recent call last):
            poptorch.errors.Error: [attachToDevice] is not implemented: it belongs to ...
        """
        raise _not_implemented("attachToDevice", "devices")

    def detachFromDevice(self) -> None:
        """Lets go of the device; not implemented. ``destroy()`` frees it for good.

        Raises:
            poptorch.Error: Always, so far.

        Example:
            >>> import poptorch, torch
            >>> poptorch.inferenceModel(torch.nn.ReLU()).detachFromDevice()
            Traceback (most recent call last):
            poptorch.errors.Error: [detachFromDevice] Device is not attached: ...
        """
        if not self._device.is_held:
            raise Error("[detachFromDevice] Device is not attached: the model holds none. Call "
                        "it, or compile() it, first.")
        raise _not_implemented("detachFromDevice", "devices")

    def cycleCount(self) -> int:
        """The cycles that the last run took on the device; not implemented.

        Returns:
            Their number; of several replicas, that of the first.

        Raises:
            poptorch.Error: Always, so far.

        Example:
            >>> import poptorch, torch
            >>> poptorch.inferenceModel(torch.nn.ReLU()).cycleCount()
            Traceback (most recent call last):
            poptorch.errors.Error: [cycleCount] is not implemented: it belongs to ...
        """
        raise _not_implemented("cycleCount", "cycles")


def _not_implemented(name: str, work: str) -> Error:
    return Error(f"[{name}] is not implemented: it belongs to {LATER[work]}, which this version of "
                 f"poptorch does not have. Leave the call out.")

"""The executor's hold on its device: taken, given back, and taken again."""

from poptorch._base import interrupts
from poptorch._base.torch_private import modes_off
from poptorch._base.unimplemented import LATER
from poptorch._capture.process_state import one_at_a_time
from poptorch._runtime import device_memory
from poptorch.errors import Error


class Attachment:
    """Takes the device of an executor and releases it; a part of PoplarExecutor."""

    def isAttachedToDevice(self) -> bool:
        """Whether the executor holds its device: from when ``Options.connectionType`` says on.

        Returns:
            True from then until :meth:`detachFromDevice` or ``destroy()``.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.ReLU(), opts)
            >>> before = model.isAttachedToDevice()
            >>> _ = model(torch.ones(2))
            >>> before, model.isAttachedToDevice()
            (False, True)
        """
        return self._device.is_held

    @property
    def _is_attached(self) -> bool:
        return self._device.is_held

    def attachToDevice(self) -> None:
        """Takes the device again after :meth:`detachFromDevice`. A call does so by itself.

        The weights are those that the module has now; the state of the optimizer and that of the
        random generator are what they were.

        Raises:
            poptorch.Error: The model is not compiled, or holds its device already; or another
                executor holds the device that ``Options.useIpuId`` names.
            AssertionError: The options say that the model is compiled and never run.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.ReLU(), opts)
            >>> _ = model(torch.ones(2)), model.detachFromDevice()
            >>> model.attachToDevice()
            >>> model.isAttachedToDevice()
            True
        """
        self._compiled_model("attachToDevice")
        self._device.check_can_run()
        if self._device.is_held:
            raise Error("[attachToDevice] Device is already attached: the model holds it since it "
                        "was compiled or last called. Leave the call out, or call "
                        "detachFromDevice() first.")
        modes_off.is_plain_for("attachToDevice")
        self._attach()

    def detachFromDevice(self) -> None:
        """Lets go of the device, and of the memory of the program, which stays compiled.

        Weights that runs changed are read back first. The state of the optimizer, that of the
        random generator, and buffers that replicas have different values of are kept, and can be
        read and saved. The next call, or :meth:`attachToDevice`, takes a device again and goes on
        with them and the weights that the module has then: what the host writes to weights
        meanwhile counts, where no other executor has a copy of them.

        Raises:
            poptorch.Error: The model holds no device; or one of its calls is running in this
                thread. Calls in other threads are waited for.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(2, 1), opts)
            >>> y = model(torch.ones(2))
            >>> model.detachFromDevice()
            >>> model.isCompiled(), model.isAttachedToDevice()
            (True, False)
            >>> torch.equal(model(torch.ones(2)), y), model.isAttachedToDevice()
            (True, True)
        """
        if self._device.is_held:
            with modes_off.plain_torch():
                if self._detach():
                    return
        raise Error("[detachFromDevice] Device is not attached: the model holds none. Call it, or "
                    "compile() or attachToDevice(), first.")

    @interrupts.whole
    def _detach(self) -> bool:
        """Whether a device was held, and is no more."""
        with self._in_flight.end("detachFromDevice"), one_at_a_time:
            compiled = self._compiled
            if compiled is None or not self._device.is_held:  # another thread was faster
                return False
            if self._weights.is_newest:
                self._weights.to_host()
            # First, so that the next call does all the rest anew, whatever happens here.
            self._device.release()
            self._weights.forget()
            device_memory.release(compiled)
            return True

    def _attach(self) -> None:
        """Takes the device for the compiled program, unless that is done."""
        self._device.when_free(self._attach_once)

    @interrupts.whole
    def _attach_once(self) -> None:
        with self._in_flight.end("attachToDevice"), one_at_a_time, modes_off.plain_torch():
            compiled = self._compiled
            if compiled is None or self._device.is_held:  # another thread was faster
                return
            compiled.guard.check()
            try:
                self._device.take()
                device_memory.restore(compiled, lambda: self._weights.compiled(compiled, self),
                                      self._weights.forget)
            except BaseException:
                self._device.release()
                raise

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
            poptorch.errors.Error: [cycleCount] is not implemented: it requires ...
        """
        raise _not_implemented("cycleCount", "cycles")


def _not_implemented(name: str, work: str) -> Error:
    return Error(f"[{name}] is not implemented: it requires {LATER[work]}, which this version of "
                 f"poptorch does not support. Remove the call.")

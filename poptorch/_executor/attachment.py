"""The executor's hold on its device: taken, given back, and taken again."""

from dataclasses import dataclass

from poptorch._base.torch_private import modes_off
from poptorch._device.device import Device
from poptorch._reports.profile_report import ProfileReport
from poptorch._runtime.compiled import CompiledModel
from poptorch._runtime.lifecycle import Lifecycle
from poptorch._runtime.programs import Programs
from poptorch._weights.link import WeightLink
from poptorch.errors import Error


@dataclass(frozen=True)
class Attachment:
    """Takes the device of an executor and releases it."""

    programs: Programs
    weights: WeightLink
    device: Device
    lifecycle: Lifecycle
    report: ProfileReport | None

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
        return self.device.is_held

    def attachToDevice(self) -> None:
        """Takes the device again after :meth:`detachFromDevice`. A call does so by itself.

        The weights are those that the module has now; the state of the optimizer and that of the
        random generator are kept.

        Raises:
            poptorch.Error: The model is not compiled, or holds its device already; or another
                executor holds the device that ``Options.useIpuId`` names, or all devices of the
                IPU system that have enough IPUs.
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
        self.programs.require("attachToDevice")
        self.device.check_can_run()
        if self.device.is_held:
            raise Error("[attachToDevice] Device is already attached: the model holds it since it "
                        "was compiled or last called. Leave the call out, or call "
                        "detachFromDevice() first.")
        modes_off.is_plain_for("attachToDevice")
        self.attach()

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
        with modes_off.plain_torch():
            if self.device.is_held and self.lifecycle.alone("detachFromDevice", self._detach):
                return
        raise Error("[detachFromDevice] Device is not attached: the model holds none. Call it, or "
                    "compile() or attachToDevice(), first.")

    def _detach(self) -> bool:
        """Whether a device was held, and is no more."""
        if self.programs.current is None or not self.device.is_held:  # by another thread
            return False
        if self.weights.is_newest:
            self.weights.to_host()
        if self.report is not None:
            self.report.write_trace()
        # First, so that the next call does all the rest again, whatever happens here.
        self.device.release()
        self.programs.release_memory()
        return True

    def attach(self) -> None:
        """Takes the device for the current program, unless that is done."""
        if not self.device.is_held:
            self.lifecycle.alone("attachToDevice", self._attach)

    def _attach(self) -> None:
        program = self.programs.current
        if program is None or self.device.is_held:  # another thread was faster
            return
        with modes_off.plain_torch():
            if not program.guards.are_tensors_fit():  # the next call compiles again
                self.programs.keep_for_next()
                return
            try:
                self.programs.take_device(program)
            except BaseException:
                self.device.release()
                raise

    def destroy(self) -> None:
        """Reads the weights back and frees the device. A later call compiles again.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> _ = model(torch.ones(3, 4))
            >>> model.destroy()
            >>> model.isCompiled()
            False
        """
        program = self.programs.current
        # Without a program there are no calls to wait for, but a signal's handler in one that
        # compiles.
        self.lifecycle.alone("destroy", lambda: self._destroy(program),
                              waits_for_calls=program is not None)

    def _destroy(self, program: CompiledModel | None) -> None:
        if self.programs.current is not program:  # another thread destroyed it, or compiled
            return
        if self.weights.is_newest:
            self.weights.to_host()
        if self.report is not None:
            self.report.write_trace()
        self.programs.clear()
        self.device.release()
        self.weights.unwatch()

"""The executor's methods that say what the compiled program costs on an IPU system."""

from dataclasses import dataclass

from poptorch._base.logging import logger
from poptorch._reports.device.report import DeviceReport
from poptorch._runtime.compiled import CompiledModel
from poptorch._runtime.programs import Programs
from poptorch.errors import Error


@dataclass(frozen=True)
class DeviceReports:
    """Reports and cycles of the current program."""

    programs: Programs

    def report(self) -> DeviceReport:
        """What the compiled program costs on an IPU system: whether it fits, and how fast it is.

        The numbers come from a model of the device. Nothing runs. The kind of IPU is that of
        ``Options.target``, else that of the system, else Mk2 (GC200).

        Returns:
            The report. ``print`` shows a page of text, ``to_html(path)`` writes a page for a
            browser.

        Raises:
            poptorch.Error: The model is not compiled.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(1024, 1024), opts)
            >>> model.compile(torch.ones(64, 1024))
            >>> report = model.report()
            >>> report.fits, report.tile_memory.peak < report.tile_memory.limit
            (True, True)
            >>> [row.op for row in report.ops if row.flops]
            ['addmm']
        """
        return self.programs.device_report(self.programs.require("report"))

    def cycleCount(self) -> int:
        """The cycles of the last run on the device, by the model of :meth:`report`.

        Returns:
            Cycles of one replica. Transfers from and to the host do not count.

        Raises:
            poptorch.Error: The model is not compiled, or has not run.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> y = model(torch.ones(3, 4))
            >>> model.cycleCount() == round(model.report().cycles)
            True
        """
        program = self.programs.require("cycleCount")
        if program.executable.runs_begun == 0:
            raise Error("[cycleCount] the model has not run. Call it first, or read "
                        "report().cycles, which needs no run.")
        return round(self.programs.device_report(program).cycles)

    def log_cycles(self, program: CompiledModel) -> None:
        """Logs the cycles of a run, for ``Options.logCycleCount``."""
        cycles = self.programs.device_report(program).cycles
        logger.debug("Total number of IPU cycles: %d", round(cycles))

"""The report of Options.enableProfiling: what was compiled, and a trace of steps and runs."""

import contextlib
import json
import os
import time
from pathlib import Path

from poptorch import profiling
from poptorch._base.environment import json_object
from poptorch._reports import work
from poptorch._reports.device.report import DeviceReport
from poptorch.options import Options

_VARIABLE = "POPLAR_ENGINE_OPTIONS"

# The folders of the reports of this process.
_taken: set[Path] = set()


class ProfileReport:
    """The report of one executor, in a folder of its own, which is made with the first file.

    Where another executor has the folder already, a number stands after its name.
    """

    def __init__(self, folder: Path, options: Options):
        self._folder = folder
        self._options = options
        self.recording = profiling.Recording(folder / "trace.json")
        self._is_begun = False

    @classmethod
    def of(cls, options: Options) -> "ProfileReport | None":
        """The report that options or environment enable; None when they enable none."""
        engine = {**options._Popart.options.get("engineOptions", {}), **_engine_options()}
        is_asked = str(engine.get("autoReport.all", "false")).lower() == "true"
        folder = options.profile_dir
        if is_asked or folder is not None:
            folder = engine.get("autoReport.directory", folder or os.curdir)
        if folder is None:
            return None
        return cls(Path(folder).absolute() / options.model_name, options)

    def compiled(self, executable, device_report: DeviceReport) -> None:
        """Writes what is known about a compiled program, and from now on the trace."""
        if not self._is_begun:
            self._folder = _free(self._folder)
            self.recording.path = self._folder / "trace.json"
        self._folder.mkdir(parents=True, exist_ok=True)
        for step in executable.steps():
            (self._folder / f"{step}.ir").write_text(executable.ir(step), encoding="utf-8")
        strategy = self._options._execution_strategy
        report = {"options": {**self._options.toDict(), "execution_strategy": repr(strategy)},
                  "memory_bytes": executable.memory_report(), "ops": executable.op_report(),
                  "work": work.report(executable), "step_times_ns": executable.step_times(),
                  "ipus": executable.ipus, "host": executable.host_form()}
        text = json.dumps(report, indent=1)
        (self._folder / "report.json").write_text(text + "\n", encoding="utf-8")
        device_report.to_json(self._folder / "device_report.json")
        device_report.to_html(self._folder / "device_report.html")
        if not self._is_begun:
            self._is_begun = True
            self.recording.write_at_exit()
        self.recording.write()

    def write_trace(self) -> None:
        """Writes the trace so far."""
        if self._is_begun:
            self.recording.write()


def recorded(report: ProfileReport | None):
    """Takes what is done within into the trace of a report, if there is one."""
    return contextlib.nullcontext() if report is None \
        else profiling.recorded_by(report.recording)


def run_recorded(report: ProfileReport | None, program, tensors: list, options: Options):
    """Runs a program, with a span for it and each iteration where a trace is recorded."""
    if report is None and not profiling.is_recording():
        return program.call.run(tensors)
    with recorded(report):
        begin = time.monotonic_ns()
        result = program.call.run(tensors)
        category = f"run {options.model_name}"
        profiling.add_span("run", category, begin, time.monotonic_ns())
        for number, (start, end) in enumerate(program.executable.timestamps()):
            profiling.add_span(f"iteration {number}", category, start, end)
    return result


def _free(folder: Path) -> Path:
    found, number = folder, 1
    while found in _taken:
        number += 1
        found = folder.with_name(f"{folder.name}.{number}")
    _taken.add(found)
    return found


def _engine_options() -> dict:
    text = os.environ.get(_VARIABLE)
    return json_object(_VARIABLE, text, '{"autoReport.all": "true"}') if text else {}

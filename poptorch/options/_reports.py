"""General options, third part: logs, reports, and how the IR names things."""

import os
from typing import Self

import torch

from poptorch._base.checks import Bool, Int, OrNone, Path, Text, Texts
from poptorch.options._group import OptionGroup
from poptorch.options._row import option, row

# The user's own frames are the interesting ones: by default those of torch are passed over.
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep


class _FolderName(Text):
    """A name that a folder can have."""

    def __call__(self, value, option: str) -> str:
        name = super().__call__(value, option)
        if os.sep in name or name in (".", ".."):
            raise ValueError(f"[{option}] expected a name without {os.sep!r}, got {name!r}. It "
                             f"becomes the name of a folder.")
        return name


class Reports(OptionGroup, part_of="Options"):
    """The options about what is written for people to read."""

    @option("show_compilation_progress_bar", True, Bool(), is_run_time=True)
    def showCompilationProgressBar(self, show: bool = True) -> Self:
        """Shows or hides the progress bar of a compilation, on stderr or in a notebook.

        Without a call it is shown in notebooks, and where stderr is a terminal.

        Args:
            show: True: it is shown everywhere. False: nowhere.
        """

    @option("log_dir", ".", Path(), example="/tmp/run", backend="logDir", is_run_time=True,
            default_text="no file is written")
    def logDir(self, log_dir: str | os.PathLike[str]) -> Self:
        """Also writes the log to ``poptorch.log`` in a folder, starting when a model is wrapped.

        Args:
            log_dir: the folder, which is made if it is not there.
        """

    @option("max_repeat_logs", 4, OrNone(Int(1)), example=16, is_run_time=True)
    def maxRepeatLogs(self, max_lines: int | None) -> Self:
        """Sets how often the log shows equal lines, starting when a model is wrapped.

        Args:
            max_lines: at least 1, default 4; None: show every line.
        """

    @option("model_name", None, _FolderName(), example="encoder", is_run_time=True,
            default_text='`"training"` or `"inference"`')
    def modelName(self, name: str) -> Self:
        """Names the model in the progress bar, in the log and in the folder of its report.

        Args:
            name: not empty; by default ``"training"`` or ``"inference"``.
        """

    @row("profile_dir", None, Path(), example="/tmp/profile", is_run_time=True,
         default_text="None: no report")
    def enableProfiling(self, profile_dir: str | os.PathLike[str] | None = None) -> Self:
        """Writes a report about the compiled model and its runs.

        The report is in ``<profile_dir>/<model name>``: the IR after each step, memory, ops and
        compile times as JSON, a trace of steps and runs that chrome://tracing and Perfetto
        open, and the report of :meth:`PoplarExecutor.report` (``device_report.html`` and
        ``device_report.json``). Where another model of the process has that folder, ``.2`` or a
        higher number is added to its name. ``"autoReport.directory"`` in the JSON of
        ``POPLAR_ENGINE_OPTIONS`` overrides ``profile_dir``.

        Args:
            profile_dir: the folder, made if it is not there; None: the current one.
        """
        return self._set("profile_dir", os.curdir if profile_dir is None else profile_dir)

    @option("source_location_excludes", [_TORCH], Texts(), example=["/layers/"],
            default_text="the folder of torch")
    def sourceLocationExcludes(self, excludes: list[str]) -> Self:
        """Sets which stack frames are skipped to find the ``file:line`` of an op.

        The source location of an op is the innermost frame whose file contains none of these
        strings. Frames of poptorch and of Python's standard library are always skipped.

        Args:
            excludes: replaces the list, which by default holds the folder of torch.
        """

    def appendToLocationExcludes(self, *excludes: str) -> Self:
        """Adds to the list of :meth:`sourceLocationExcludes`.

        Args:
            excludes: strings that a file's path may contain.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a str.

        Example:
            >>> import poptorch
            >>> options = poptorch.Options().sourceLocationExcludes(["/layers/"])
            >>> options.appendToLocationExcludes("/hooks/").source_location_excludes
            ['/layers/', '/hooks/']
        """
        Texts()(excludes, "appendToLocationExcludes")
        return self._set("source_location_excludes", [*self.source_location_excludes, *excludes])

    @row("module_namescope_enabled", True, Bool())
    def disableModuleNamescope(self) -> Self:
        """Leaves the paths of modules out of the IR and of the names of tensors.

        Example:
            >>> import poptorch
            >>> poptorch.Options().disableModuleNamescope()
            Options(module_namescope_enabled=False)
        """
        return self._set("module_namescope_enabled", False)

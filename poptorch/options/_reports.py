"""General options, third part: logs, reports, and how the IR names things."""

import os
from typing import Self

import torch

from poptorch._base.checks import Bool, Int, OrNone, Path, Text, Texts
from poptorch.options._group import OptionGroup, Row

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


class Reports(OptionGroup):
    """The options about what is written for people to read."""

    _ROWS = (
        Row("show_compilation_progress_bar", True, "Show a progress bar while compiling.",
            Bool(), "showCompilationProgressBar", is_run_time=True),
        Row("log_dir", ".", "Folder of the log file; by default none is written.", Path(),
            "logDir", backend="logDir", is_run_time=True),
        Row("max_repeat_logs", 4, "Equal log lines that are shown; None: all.",
            OrNone(Int(1)), "maxRepeatLogs", is_run_time=True),
        Row("model_name", None, "Name of the model in logs and reports.",
            OrNone(_FolderName()), "modelName", default_text='`"training"` or `"inference"`',
            is_run_time=True),
        Row("profile_dir", None, "Folder of the profiling report; None: no report.",
            OrNone(Path()), "enableProfiling", is_run_time=True),
        Row("source_location_excludes", [_TORCH], "Frames that are not the place of an op.",
            Texts(), "sourceLocationExcludes", default_text="the folder of torch"),
        Row("module_namescope_enabled", True, "Ops carry the path of their module.", Bool(),
            "disableModuleNamescope"),
    )

    def showCompilationProgressBar(self, show: bool = True) -> Self:
        """Shows or hides the progress bar of a compilation (shown by default, on stderr).

        Args:
            show: True shows it.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.Options().showCompilationProgressBar(False)
            Options(show_compilation_progress_bar=False)
        """
        return self._set("show_compilation_progress_bar", show)

    def logDir(self, log_dir: str | os.PathLike[str]) -> Self:
        """Writes the log to ``poptorch.log`` in a folder too, from when a model is wrapped.

        Args:
            log_dir: the folder, which is made if it is not there.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a path.

        Example:
            >>> import poptorch
            >>> poptorch.Options().logDir("/tmp/run")
            Options(log_dir='/tmp/run')
        """
        return self._set("log_dir", log_dir)

    def maxRepeatLogs(self, max_lines: int | None) -> Self:
        """Sets how often an equal line of the log is shown. It holds from when a model is wrapped.

        Args:
            max_lines: at least 1, default 4; None: show every line.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Neither an int nor None.
            ValueError: Less than 1.

        Example:
            >>> import poptorch
            >>> poptorch.Options().maxRepeatLogs(None)
            Options(max_repeat_logs=None)
        """
        return self._set("max_repeat_logs", max_lines)

    def modelName(self, name: str) -> Self:
        """Names the model: in the progress bar, in the log, and as folder of its report.

        Args:
            name: not empty; by default ``"training"`` or ``"inference"``.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a str.
            ValueError: Empty, or not usable as the name of a folder.

        Example:
            >>> import poptorch
            >>> poptorch.Options().modelName("encoder")
            Options(model_name='encoder')
        """
        return self._set("model_name", _FolderName()(name, "modelName"))

    def enableProfiling(self, profile_dir: str | os.PathLike[str] | None = None) -> Self:
        """Writes a report about the compiled model and its runs.

        The report is in ``<profile_dir>/<model name>``: the IR after each step, memory, ops and
        compile times as JSON, and a trace of steps and runs that chrome://tracing and Perfetto
        open. Where another model of the process has that folder, ``.2`` or a higher number is
        added to its name. ``"autoReport.directory"`` in the JSON of ``POPLAR_ENGINE_OPTIONS``
        beats ``profile_dir``.

        Args:
            profile_dir: the folder, made if it is not there; None: the current one.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Neither a path nor None.

        Example:
            >>> import poptorch
            >>> poptorch.Options().enableProfiling("/tmp/profile")
            Options(profile_dir='/tmp/profile')
        """
        return self._set("profile_dir", os.curdir if profile_dir is None else profile_dir)

    def sourceLocationExcludes(self, excludes: list[str]) -> Self:
        """Sets which frames are passed over when an op gets its ``file:line``.

        The place of an op is the innermost frame whose file contains none of these strings.
        Frames of poptorch and of Python's standard library never are.

        Args:
            excludes: replaces the list, which by default holds the folder of torch.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a list of str.

        Example:
            >>> import poptorch
            >>> poptorch.Options().sourceLocationExcludes(["/layers/"])
            Options(source_location_excludes=['/layers/'])
        """
        return self._set("source_location_excludes", excludes)

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

    def disableModuleNamescope(self) -> Self:
        """Leaves the paths of modules out of the IR and of the names of tensors.

        Returns:
            This object, so that calls can be chained.

        Example:
            >>> import poptorch
            >>> poptorch.Options().disableModuleNamescope()
            Options(module_namescope_enabled=False)
        """
        return self._set("module_namescope_enabled", False)

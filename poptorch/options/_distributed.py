"""Options about running in several processes."""

import os
from typing import Self

from poptorch._base.checks import Int, Texts
from poptorch._base.logging import logger
from poptorch.options._group import OptionGroup
from poptorch.options._row import row

_COUNT_VARIABLE, _ID_VARIABLE = "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"


class _DistributedOptions(OptionGroup):
    """Options about running in several processes: ``options.Distributed``.

    A launcher's environment variables (by default those of Open MPI) are read when the options
    are built.

    Example:
        >>> import poptorch
        >>> opts = poptorch.Options()
        >>> _ = opts.Distributed.configureProcessId(0, 2)
        >>> opts.Distributed.processId, opts.Distributed.numProcesses
        (0, 2)
    """

    _PREFIX = "Distributed."

    def __init__(self):
        super().__init__()
        if _COUNT_VARIABLE in os.environ and _ID_VARIABLE in os.environ:
            self.setEnvVarNames(_COUNT_VARIABLE, _ID_VARIABLE)

    def _check_together(self) -> None:
        Int(0, self.numProcesses - 1)(self.processId, "Distributed.configureProcessId process_id")

    @property
    def processId(self) -> int:
        """Which of the processes this is, from 0.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Distributed.configureProcessId(1, 4).processId
            1
        """
        return self.distributed_process_id

    @property
    def numProcesses(self) -> int:
        """How many processes share the work, at least 1.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Distributed.configureProcessId(1, 4).numProcesses
            4
        """
        return self.num_distributed_processes

    @row("num_distributed_processes", 1, Int(1), doc="Processes that share the work.")
    @row("distributed_process_id", 0, Int(0), doc="Which of them this is.")
    def configureProcessId(self, process_id: int, num_processes: int) -> Self:
        """Sets how many processes there are and which of them this is.

        Args:
            process_id: from 0 to ``num_processes - 1``.
            num_processes: at least 1, the default.

        Raises:
            TypeError: A value is not an int.
            ValueError: A value is out of range.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Distributed.configureProcessId(1, 4)
            DistributedOptions(num_distributed_processes=4, distributed_process_id=1)
        """
        where = "Distributed.configureProcessId"
        Int(1)(num_processes, f"{where} num_processes")
        Int(0, num_processes - 1)(process_id, f"{where} process_id")
        self._set("num_distributed_processes", num_processes)
        return self._set("distributed_process_id", process_id)

    def disable(self) -> Self:
        """Goes back to one process, whatever environment variables or other calls said.

        Returns:
            This object, so that calls can be chained.

        Example:
            >>> import poptorch
            >>> poptorch.Options().Distributed.configureProcessId(1, 4).disable()
            DistributedOptions()
        """
        return self.configureProcessId(0, 1)

    def setEnvVarNames(self, var_num_processes: str,
                       var_process_id: str) -> Self:
        """Reads number of processes and process from a launcher's environment variables.

        Without a launcher, when neither variable is set, this is process 0 of 1.

        Args:
            var_num_processes: the variable with the number of processes.
            var_process_id: the variable with this process's number.

        Returns:
            This object, so that calls can be chained.

        Raises:
            ValueError: Only one variable is set, one holds no int, or the values are out of range.

        Example:
            >>> import os, poptorch
            >>> os.environ.update(MY_SIZE="2", MY_RANK="1")
            >>> poptorch.Options().Distributed.setEnvVarNames("MY_SIZE", "MY_RANK").processId
            1
        """
        names = var_num_processes, var_process_id
        if not any(name in os.environ for name in names):
            logger.info("[Distributed.setEnvVarNames] the environment variables %s and %s are not "
                        "set: this is process 0 of 1.", *names)
            return self.disable()
        count, number = map(_int_variable, names)
        return self.configureProcessId(number, count)

    @row("ipuof_configs", [], Texts(), example=["/etc/ipuof.d/*.conf"], later="devices")
    def IPUoFConfigFiles(self, files: str | list[str]) -> Self:
        """Names the files that describe devices of other hosts.

        Args:
            files: one path or several; ``*`` stands for any part of a name.

        Raises:
            TypeError: Neither a str nor a list of str.
        """
        return self._set("ipuof_configs", [files] if isinstance(files, str) else files)


def _int_variable(name: str) -> int:
    text = os.environ.get(name)
    if text is None or not text.strip().lstrip("-").isdigit():
        raise ValueError(f"[Distributed.setEnvVarNames] the environment variable {name} must hold "
                         f"an int, got {text!r}. Set it, or use configureProcessId.")
    return int(text)

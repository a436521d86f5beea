"""General options, second part: the device that a model is compiled for and runs on."""

import os
from typing import Self

from poptorch._base.checks import Bool, Choice, Int, Member, OrNone, Path
from poptorch.enums import ConnectionType, SyncPattern
from poptorch.options._group import OptionGroup, Row


class Device(OptionGroup):
    """The options about the device."""

    _ROWS = (
        Row("use_ipu_model", None, "Run on the IPU Model; None: where no system is present.",
            OrNone(Bool()), "useIpuModel", is_run_time=True),
        Row("offline_ipu_version", None, "Compile for an IPU of this version, never run.",
            OrNone(Choice((1, 2, 21))), "useOfflineIpuTarget"),
        Row("connection_type", ConnectionType.Always, "When the device is taken.",
            Member(ConnectionType), "connectionType", is_run_time=True),
        Row("ipu_id", None, "The device to take; None: any that is free.", OrNone(Int(0)),
            "useIpuId", is_run_time=True),
        Row("auto_round_num_ipus", False, "Take the next power of two of IPUs.", Bool(),
            "autoRoundNumIPUs"),
        Row("is_deterministic", False, "The same bits with any number of threads.", Bool(),
            "deterministic"),
        Row("sync_pattern", SyncPattern.Full, "Which IPUs wait for one another.",
            Member(SyncPattern), "syncPattern", later="schedules"),
        Row("executable_cache_path", None, "Folder of compiled programs; None: no cache.",
            OrNone(Path(is_as_given=True)), "enableExecutableCaching", later="cache",
            backend="cachePath", is_run_time=True),
        Row("log_cycle_count", False, "Log the cycles of each run.", Bool(), "logCycleCount",
            later="cycles", backend="instrumentWithHardwareCycleCounter", is_run_time=True),
    )

    def useIpuModel(self, use_model: bool) -> Self:
        """Chooses between the IPU Model and an IPU system; it beats ``POPTORCH_IPU_MODEL``.

        Args:
            use_model: True: the IPU Model. False: a system; where none is present (always, so
                far), the program runs on the IPU Model after a warning.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.Options().useIpuModel(True)
            Options(use_ipu_model=True)
        """
        if use_model is None:
            raise Bool().wrong_type(None, "useIpuModel")
        return self._set("use_ipu_model", use_model)

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Self:
        """Compiles for an IPU that is not there: the model can be saved, but not run.

        Args:
            ipu_version: 1 (Mk1), 2 (Mk2, the default) or 21 (Mk2 with 8-bit floating point).

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not an int.
            ValueError: No such version.

        Example:
            >>> import poptorch
            >>> poptorch.Options().useOfflineIpuTarget()
            Options(offline_ipu_version=2)
        """
        if ipu_version is None:
            raise Choice((1, 2, 21)).wrong_type(None, "useOfflineIpuTarget")
        return self._set("offline_ipu_version", ipu_version)

    def connectionType(self, connection_type: ConnectionType) -> Self:
        """Sets when an executor takes hold of its device, if at all.

        Args:
            connection_type: ``Always``, the default: before it compiles. ``OnDemand``: when the
                program is ready to run. ``Never``: it compiles, and refuses to run.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a ConnectionType.

        Example:
            >>> import poptorch
            >>> poptorch.Options().connectionType(poptorch.ConnectionType.OnDemand)
            Options(connection_type=OnDemand)
        """
        return self._set("connection_type", connection_type)

    def useIpuId(self, ipu_id: int) -> Self:
        """Sets which device to take. One executor of a process holds it at a time.

        Another executor that uses it raises an error when it takes its device, until the first
        one releases it by :meth:`PoplarExecutor.detachFromDevice` or ``destroy``. With the
        environment variable ``POPTORCH_WAIT_FOR_IPU=1`` it waits instead, for another thread to
        do that.

        Args:
            ipu_id: number of a device, at least 0. The IPU Model has devices of all numbers, with
                as many IPUs as the model uses, and each process has devices of its own.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not an int.
            ValueError: Less than 0.

        Example:
            >>> import poptorch
            >>> poptorch.Options().useIpuId(3)
            Options(ipu_id=3)
        """
        if ipu_id is None:
            raise Int(0).wrong_type(None, "useIpuId")
        return self._set("ipu_id", ipu_id)

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Self:
        """Takes the next power of two of IPUs where a model needs another number.

        Devices have 1, 2, 4, ... IPUs. The IPUs that are taken in addition stay idle.

        Args:
            auto_round_num_ipus: True: round up. False, the default: another number is an error.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.Options().replicationFactor(3).autoRoundNumIPUs()
            Options(replication_factor=3, auto_round_num_ipus=True)
        """
        return self._set("auto_round_num_ipus", auto_round_num_ipus)

    def syncPattern(self, sync_pattern: SyncPattern) -> Self:
        """Sets which IPUs wait for one another before they talk to the host.

        Args:
            sync_pattern: ``Full``, the default, ``SinglePipeline`` or ``ReplicaAndLadder``.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a SyncPattern.

        Example:
            >>> import poptorch
            >>> poptorch.Options().syncPattern(poptorch.SyncPattern.SinglePipeline)
            Options(sync_pattern=SinglePipeline)
        """
        return self._set("sync_pattern", sync_pattern)

    def deterministic(self, enabled: bool) -> Self:
        """Makes the bits of all results independent of the number of threads.

        The same seed, options, number of threads and level of the CPU always give the same bits
        in every run. With this option a run on one thread, on four, and one of a program that was
        compiled for two, give the same ones, too: torch's operators and oneDNN, which may sum in
        an order that follows from the number of threads, then run on one thread. All other
        operations never depend on it. See ``docs/guide/numbers.md``.

        Args:
            enabled: True: independent of it. False: the default.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.Options().deterministic(True)
            Options(is_deterministic=True)
        """
        return self._set("is_deterministic", enabled)

    def enableExecutableCaching(self, path: str | os.PathLike[str]) -> Self:
        """Keeps compiled programs in a folder, so that no graph is compiled twice.

        Args:
            path: the folder; None, the default: nothing is kept.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Neither a path nor None.

        Example:
            >>> import poptorch
            >>> options = poptorch.Options().enableExecutableCaching("/tmp/cache")
            >>> options._popart.options["cachePath"]
            '/tmp/cache'
        """
        return self._set("executable_cache_path", path)

    def logCycleCount(self, log_cycle_count: bool) -> Self:
        """Logs how many cycles each run takes on the device, at level DEBUG.

        Args:
            log_cycle_count: True: log them. False: the default.

        Returns:
            This object, so that calls can be chained.

        Raises:
            TypeError: Not a bool.

        Example:
            >>> import poptorch
            >>> poptorch.Options().logCycleCount(True)
            Options(log_cycle_count=True)
        """
        return self._set("log_cycle_count", log_cycle_count)

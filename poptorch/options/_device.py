"""General options, second part: the device that a model is compiled for and runs on."""

import os
from typing import Any, Self

from poptorch import _C
from poptorch._base.checks import Bool, Choice, Int, Member, OrNone, Path
from poptorch.enums import ConnectionType, SyncPattern
from poptorch.options._group import OptionGroup
from poptorch.options._row import option, row
from poptorch.options._target import Machine


class Device(OptionGroup, part_of="Options"):
    """The options about the device."""

    @option("use_ipu_model", None, Bool(), is_run_time=True,
            default_text="None: the IPU Model where no system is present")
    def useIpuModel(self, use_model: bool) -> Self:
        """Chooses between the IPU Model and an IPU system; overrides ``POPTORCH_IPU_MODEL``.

        Args:
            use_model: True: the IPU Model. False: a system; where none is present, the program
                runs on the IPU Model after a warning.
        """

    @option("ipu_system", None, Choice(tuple(row[0] for row in _C.systems())), example="pod16",
            is_run_time=True, default_text="None: what `POPTORCH_IPU_SYSTEM` names")
    def system(self, name: str) -> Self:
        """Chooses the virtual IPU system that the model runs on.

        The machine then has a fixed number of IPUs of one version. An executor takes as many as
        its program needs, and no other executor of any process can take them meanwhile.
        ``useIpuModel(True)`` overrides it. See ``docs/guide/ipus/virtual_system.md``.

        Args:
            name: of a system. ``poptorch.devices()`` lists the devices of the one that the
                environment variable ``POPTORCH_IPU_SYSTEM`` names.
        """

    @row("ipu_target", None, Machine(), is_run_time=True, example="bow",
         default_text="None: that of the system or of `useOfflineIpuTarget`, else `gc200`")
    def target(self, target: str | os.PathLike[str] | dict[str, Any]) -> Self:
        """Chooses the kind of IPU that estimates of time and memory are for.

        It changes neither results nor the device that runs the model.

        A TOML file describes a machine of your own. ``base = "bow"`` takes all fields that the file
        does not have from that kind; without it, all fields are required. The name is that of the
        file, or the field ``name``. ``docs/guide/performance/ipu_kinds.md`` lists the fields. The
        file is read when you call this method.

        Args:
            target: ``"gc2"`` (Mk1), ``"gc200"`` (Mk2), ``"bow"``, ``"c600"`` (Mk2 with 8-bit
                floating point), ``"small"`` (Mk2 with 4 tiles); the path of a file that ends in
                ``.toml``; or a dict of the fields of such a file, with ``name``.

        Raises:
            TypeError: ``target`` is not a str, a path or a dict.
            ValueError: there is no such kind, or a field is unknown, missing or out of range.
            OSError: the file cannot be read.

        Example:
            >>> import poptorch
            >>> poptorch.Options().target({"name": "large", "base": "bow", "tile_bytes": 2**20})
            Options(ipu_target={'name': 'large', 'base': 'bow', 'tile_bytes': 1048576})
        """
        return self._set("ipu_target", target)

    @option("offline_ipu_version", None, Choice((1, 2, 21)), example=2,
            default_text="None: compile to run")
    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Self:
        """Compiles for an IPU version without a device: the model can be saved, but not run.

        Args:
            ipu_version: 1 (Mk1), 2 (Mk2, the default) or 21 (Mk2 with 8-bit floating point). A
                virtual system with IPUs of another version refuses to load the file.
        """

    @option("connection_type", ConnectionType.Always, Member(ConnectionType),
            example=ConnectionType.OnDemand, is_run_time=True)
    def connectionType(self, connection_type: ConnectionType) -> Self:
        """Sets when an executor attaches to its device, if at all.

        Args:
            connection_type: ``Always``, the default: before it compiles. ``OnDemand``: when the
                program is ready to run. ``Never``: it compiles, and running raises an error.
                ``PreCompile``: it compiles, and a call returns zeros.
        """

    @option("ipu_id", None, Int(0), example=3, is_run_time=True,
            default_text="None: any device that is free")
    def useIpuId(self, ipu_id: int) -> Self:
        """Sets which device to take. One executor of a process holds it at a time.

        Another executor that uses it raises an error when it takes its device, until the first
        one releases it by :meth:`PoplarExecutor.detachFromDevice` or ``destroy``. With the
        environment variable ``POPTORCH_WAIT_FOR_IPU=1`` it waits instead, for another thread to
        do that. In a virtual system (``docs/guide/ipus/virtual_system.md``) this also holds for
        executors of other processes.

        Args:
            ipu_id: number of a device, at least 0. A system of n IPUs numbers its single IPUs from
                0 to n - 1, then n / 2 pairs, n / 4 groups of 4, and so on. A model that needs
                several IPUs needs the number of such a group: in the chosen virtual system, or in
                a system of some size if none is chosen. Another number is an error. The IPU Model
                has all these devices, and each process has devices of its own.
        """

    @option("auto_round_num_ipus", False, Bool())
    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Self:
        """Rounds the number of IPUs that a model needs up to a power of two.

        Devices have 1, 2, 4, ... IPUs. The additional IPUs stay idle.

        Args:
            auto_round_num_ipus: True: round up. False, the default: any other number is an error.
        """

    @option("sync_pattern", SyncPattern.Full, Member(SyncPattern),
            example=SyncPattern.SinglePipeline, step="sync_pattern")
    def syncPattern(self, sync_pattern: SyncPattern) -> Self:
        """Sets which IPUs wait for one another before they talk to the host.

        With ``Full`` all IPUs of a replica meet before an exchange with the host, with the others
        none does. The timeline shows this where its units are cycles. Results do not change.

        Args:
            sync_pattern: ``Full``, the default, ``SinglePipeline`` or ``ReplicaAndLadder``.
        """

    @option("is_deterministic", False, Bool(), compiler="deterministic")
    def deterministic(self, enabled: bool) -> Self:
        """Makes the bits of all results independent of the number of threads.

        The same seed, options, number of threads and level of the CPU always give the same bits
        in every run. With this option a run on one thread, on four, and one of a program that was
        compiled for two, give the same ones, too: torch's operators and oneDNN, which may sum in
        an order that follows from the number of threads, then run on one thread. All other
        operations never depend on it. See ``docs/guide/debugging/numbers.md``.

        Args:
            enabled: True: independent of it. False: the default.
        """

    @option("executable_cache_path", None, OrNone(Path(is_as_given=True)), is_run_time=True,
            backend="cachePath",
            default_text="None: the folder that `POPTORCH_CACHE_DIR` names, if it is set")
    def enableExecutableCaching(self, path: str | os.PathLike[str] | None) -> Self:
        """Keeps compiled programs in a folder, so that no graph is compiled twice.

        The module is always captured and translated. If the folder has an executable for the same
        translated program, options, CPU level and build of poptorch, it is loaded and nothing is
        compiled. Several processes can use one folder at the same time.
        ``python -m poptorch cache`` lists what is there. See ``docs/guide/deploy/caching.md``.

        Args:
            path: the folder, which is created if it does not exist. None: nothing is kept. If this
                is not called, the environment variable ``POPTORCH_CACHE_DIR`` names the folder.

        Example:
            >>> import poptorch
            >>> options = poptorch.Options().enableExecutableCaching("/tmp/cache")
            >>> options._popart.options["cachePath"]
            '/tmp/cache'
        """

    @option("executable_cache_max_bytes", 8 << 30, Int(1), example=1 << 30, is_run_time=True,
            default_text="8 GiB")
    def limitExecutableCache(self, max_bytes: int) -> Self:
        """Sets the most bytes that the folder of :meth:`enableExecutableCaching` keeps.

        When a new executable exceeds them, those that have not been used for longest are removed.

        Args:
            max_bytes: at least 1, default 8 GiB.
        """

    @option("log_cycle_count", False, Bool(),
            backend="instrumentWithHardwareCycleCounter", is_run_time=True)
    def logCycleCount(self, log_cycle_count: bool) -> Self:
        """Logs how many cycles each run takes on the device, at level DEBUG.

        The number is that of :meth:`PoplarExecutor.cycleCount`.

        Args:
            log_cycle_count: True: log them. False: the default.
        """

    @option("recompilation_values", True, Bool(), is_run_time=True,
            doc="Compile again when a value that forward reads changes.")
    @option("recompilation_shapes", False, Bool(), is_run_time=True,
            doc="Compile again when an argument has another shape.")
    @option("recompilation_limit", 8, Int(1), is_run_time=True,
            doc="The programs that an executor keeps.")
    def recompilation(self, values: bool = True, shapes: bool = False, limit: int = 8) -> Self:
        """Sets which changes make an executor compile its model again.

        Args:
            values: a Python value, attribute, global, hook or layer that the program depends on.
                True, the default: a change of it recompiles the model. False: it raises an error
                that names the change.
            shapes: an argument of another shape, dtype, structure or non-tensor value. True: it
                recompiles the model. False, the default: it raises an error.
            limit: the number of programs that an executor keeps, at least 1, default 8. The first
                program is counted.

        Example:
            >>> import poptorch
            >>> poptorch.Options().recompilation(shapes=True, limit=4)
            Options(recompilation_shapes=True, recompilation_limit=4)
        """

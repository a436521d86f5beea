"""The executor's methods that show the compiled program."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakMethod

from poptorch import _C
from poptorch._base import interrupts, switches
from poptorch._base.torch_private import modes_off
from poptorch._device.cost_settings import settings_of, target_of
from poptorch._device.device import Device
from poptorch._executor.attachment import Attachment
from poptorch._executor.compilation import Compilation
from poptorch._reports import partition, work
from poptorch._reports.balance import best_move
from poptorch._reports.device.costs import DeviceCosts
from poptorch._reports.schedule import Schedule
from poptorch._reports.simulation import StageCosts
from poptorch._reports.timeline import Timeline
from poptorch._runtime.nan_report import NanReport, recording, replay
from poptorch._runtime.programs import Programs
from poptorch._runtime.wrapped import Wrapped
from poptorch._weights.link import WeightLink
from poptorch.errors import Error


@dataclass(frozen=True)
class Reports:
    """Text, memory, places and ops of the program, and values that are not finite."""

    wrapped: Wrapped
    programs: Programs
    weights: WeightLink
    device: Device
    attachment: Attachment
    compilation: Compilation
    build: WeakMethod  # of PoplarExecutor._build

    def ir(self, step: str = "plan") -> str:
        """The program's text after a step.

        Args:
            step: ``"translate"``, ``"rewrite"``, ``"place"``, ``"lower"``, ``"schedule"`` or
                ``"plan"``.

        Raises:
            poptorch.Error: The model is not compiled, or there is no such step.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.compile(torch.ones(3, 4))
            >>> "linear" in model.ir("translate") or "addmm" in model.ir("translate")
            True
        """
        return self.programs.require("ir").executable.ir(step)

    def memory_report(self) -> dict[str, Any]:
        """Peak bytes on the device by category.

        Returns:
            For ``parameters``, ``buffers``, ``optimizer_state`` and ``constants`` (with what is
            prepared once), the bytes that they hold all the time; for ``activations`` of the
            forward pass, ``gradients`` of the backward pass and ``scratch`` (within one op, or the
            update), those alive when most of these three together are; for ``streams`` (arguments
            and results), those alive at that moment; ``arena``, the block of memory that has room
            for all of it at any moment, with the gaps. Beside that ``transfers``, the bytes that
            one call moves between the chip and streaming memory, in each replica, and
            ``scratch [winograd]`` for each algorithm (see ``op_report``) that needs such memory,
            the most that one op has. ``workers``: the memory that running micro-batches side by
            side takes in addition, in all replicas; absent when they run one after the other.
            With sharding over replicas (``TensorLocationSettings.useReplicatedTensorSharding``),
            ``sharding`` says for each parameter which part of it, or of its states, a replica has,
            or why it has all. Memory that one value takes over from another counts once. A result
            is no activation even while the program still reads it: it usually lies in the
            caller's memory, not in the arena.

            ``ipus`` lists what each IPU of one replica holds, read from ``ir("place")``: a
            dictionary with the bytes of ``parameters``, of ``optimizer`` states, of
            ``accumulators`` of gradients, of ``constants`` (with buffers and the random state), of
            ``activations`` (with gradients, arguments and results, at the operation at which most
            of them are alive), of ``stashes`` (tensors that forward tasks keep for backward tasks,
            for all micro-batches that there is room for), and of tensors in ``streaming`` memory.

        Raises:
            poptorch.Error: The model is not compiled.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.compile(torch.ones(3, 4))
            >>> report = model.memory_report()
            >>> report["parameters"], report["transfers"], report["ipus"][0]["parameters"]
            (40, 0, 40)
        """
        compiled = self.programs.require("memory_report")
        report = compiled.executable.memory_report()
        report["ipus"] = _C.ipu_memory(compiled.executable.ir("place"))
        sharding = compiled.program.sharding
        return {**report, "sharding": sharding} if sharding else report

    def partition_summary(self) -> partition.PartitionTable:
        """A table of what runs where: a line for each stage.

        It has the stage's number and IPU, its blocks and modules, the number and bytes of its
        parameters, their share of all parameters, and the FLOPs and cycles of one micro-batch
        without recomputation; in phased execution also the phase. With several IPUs it also has the
        bytes that the stage keeps on the chip for its backward pass, and the share of time that its
        IPU waits (see :meth:`timeline`). Where a pipeline would be faster with a block in a
        neighbouring stage, a line below says so.

        Returns:
            The table. ``print`` shows it as text, a notebook as HTML; ``rows`` is a list with a
            dictionary for each stage, ``advice`` the line below or None.

        Raises:
            poptorch.Error: The model is not compiled.

        Example:
            >>> import poptorch, torch
            >>> net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 2))
            >>> _ = poptorch.BeginBlock(net[0], "wide", ipu_id=0)
            >>> _ = poptorch.BeginBlock(net[1], "narrow", ipu_id=1)
            >>> opts = poptorch.Options().setExecutionStrategy(poptorch.ShardedExecution())
            >>> _ = opts.showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(net, opts)
            >>> model.compile(torch.ones(1, 4))
            >>> table = model.partition_summary()  # print(table) shows it
            >>> [(row["blocks"], row["parameter_bytes"], row["flops"]) for row in table.rows]
            [(['wide'], 120, 48.0), (['narrow'], 56, 24.0)]
        """
        executable = self.programs.require("partition_summary").executable
        blocks, placed = executable.ir("rewrite"), executable.ir("place")
        options = self.wrapped.options
        cycles = _C.block_costs(blocks, target_of(options), settings_of(options))
        by_block = partition.BlockWork(_C.block_report(blocks), cycles)
        shares, schedule, costs = executable.shares(), Schedule(placed), self._costs(placed)
        return partition.PartitionTable(shares, by_block, schedule, Timeline(schedule, costs),
                                        best_move(shares, cycles, schedule, costs))

    def _costs(self, text: str) -> DeviceCosts:
        """Of the text of the placed program, by the target of the options."""
        options = self.wrapped.options
        return DeviceCosts(_C.program_costs(text, target_of(options), settings_of(options)))

    def schedule(self) -> Schedule:
        """When each task of the program handles which micro-batch.

        A task is what one IPU computes of one micro-batch in one turn: the forward or the backward
        pass of a stage. See :class:`poptorch.PipelineSchedule`. A program on one IPU has a task for
        its forward and one for its backward pass.

        Returns:
            ``tasks`` is a list of tasks in the order of a round, each with ``name``, ``ipu``,
            ``stage``, ``part`` (``"forward"``, ``"backward"`` or ``"both"``) and ``offset``: in
            round r the task has micro-batch ``r - offset``. ``edges`` lists what passes between
            tasks, each with ``source`` and ``target`` (names of tasks), ``bytes`` of one
            micro-batch, ``depth`` (for how many micro-batches there is room) and ``memory``
            (``"chip"`` or ``"streaming"``). ``print`` draws the first rounds: ``F2`` is the forward
            pass of micro-batch 2, ``B2`` its backward pass.

        Raises:
            poptorch.Error: The model is not compiled.

        Example:
            >>> import poptorch, torch
            >>> net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Linear(6, 2))
            >>> _ = poptorch.BeginBlock(net[0], "wide", ipu_id=0)
            >>> _ = poptorch.BeginBlock(net[1], "narrow", ipu_id=1)
            >>> opts = poptorch.Options().deviceIterations(4)
            >>> _ = opts.showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(net, opts)
            >>> model.compile(torch.ones(4, 4))
            >>> model.schedule()
            grouped, 4 micro-batches
            IPU 0  F0 F1 F2 F3 .
            IPU 1  .  F0 F1 F2 F3
        """
        return Schedule(self.programs.require("schedule").executable.ir("place"))

    def timeline(self) -> Timeline:
        """What each IPU does when, in one step: one weight update, or one call for inference.

        It is computed from :meth:`schedule` and the cycles of operations and transfers on the
        target of the options (Mk2 without one); the program does not run. Each IPU runs its tasks
        in the order of the schedule. It begins one when what the task reads is there, and ends one
        when what holds the results has room.

        Returns:
            ``rows`` is a list of what happens. Each row has ``replica``, ``ipu``, ``kind``,
            ``task``, ``micro_batch``, ``begin``, ``end`` and ``track``. The kinds are ``"compute"``
            (a task computes), ``"exchange"`` (values arrive from another IPU, from a stash or from
            streaming memory, or leave for streaming memory), ``"host"`` (values arrive from the
            host or leave for it), ``"sync"`` (the IPUs of the replica wait for one another before
            an exchange with the host), ``"all_reduce"`` (replicas add their gradients),
            ``"update"`` (the optimizer changes the weights) and ``"idle"`` (the IPU waits).
            ``track`` is ``"compute"``, or ``"io"`` for transfers of the IO tiles
            (``TensorLocations.numIOTiles``), which happen meanwhile. ``span`` is the time of the
            step in ``units`` (``"cycles"``). ``idle_share(ipu=None)`` is the share of it in which
            IPUs wait. ``to_perfetto(path)`` and ``plot(path)`` write files; a notebook shows a
            picture.

        Raises:
            poptorch.Error: The model is not compiled.
            ValueError: Within :func:`poptorch.testing.stage_costs`, a stage has no cost.

        Example:
            >>> import poptorch, torch
            >>> net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
            >>> _ = poptorch.BeginBlock(net[0], "first", ipu_id=0)
            >>> _ = poptorch.BeginBlock(net[1], "second", ipu_id=1)
            >>> opts = poptorch.Options().deviceIterations(4)
            >>> _ = opts.showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(net, opts)
            >>> model.compile(torch.ones(4, 4))
            >>> line = model.timeline()
            >>> 0.1 < line.idle_share() < 0.3  # each IPU waits for about one of five rounds
            True
        """
        text = self.programs.require("timeline").executable.ir("place")
        stages = switches.current_stage_costs()
        costs = self._costs(text) if stages is None else StageCosts(stages)
        return Timeline(Schedule(text), costs, self.wrapped.options.replication_factor)

    def op_report(self, algorithms: bool = False) -> dict[str, Any]:
        """How many ops of each name the program has, by phase: forward, backward, update.

        Args:
            algorithms: whether names also say by which algorithm an op is computed, where there
                are several: ``convolution [winograd]``. It depends on the processor. Where it
                was chosen by measuring, the times of one thread are there, too:
                ``addmm [blocked (measured 812 us, blas 990 us)]``.

        Returns:
            ``{phase: {op: count}}``; an op that runs in a loop counts once.

        Raises:
            poptorch.Error: The model is not compiled.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Softmax(1), opts)
            >>> model.compile(torch.ones(3, 4))
            >>> model.op_report()["forward"]
            {'_softmax': 1}
        """
        return self.programs.require("op_report").executable.op_report(algorithms)

    def work_report(self) -> dict[str, Any]:
        """What one call computes and moves, in each replica: FLOPs and bytes of its ops.

        It is read from ``ir("place")`` by the rows of the op table, so it is the same on every
        processor. FLOPs are floating-point operations. Matrix products and convolutions, including
        those of attention and of recurrent layers, count ``2 m n k`` and nothing else, as in
        ``torch.utils.flop_counter``. That counter, however, counts the weight gradient of a grouped
        convolution once for each group. Of other ops a sum, a product, a comparison and a function
        such as exp count one each; moves, selections and casts none.
        Bytes are the fewest that must be read and written: each element of an operand and of a
        result once; views none, a look-up in a table what it takes, an update in place what it
        changes.

        Returns:
            ``phases``: ``{phase: {op: {"flops", "bytes", "count"}}}`` for the phases of
            ``op_report``; an op that runs in a loop counts as often as it runs. ``total``: the
            ``flops`` and ``bytes`` of all that is counted. ``not_counted``: ``{op: count}`` of ops
            with unknown FLOPs, which are None in ``phases``: operators of PyTorch that are called
            through its dispatcher, functions of the host, custom ops, and ``loop`` where a tensor
            decides how often it runs; what is in such a loop is not counted either, nor are its
            bytes.

        Raises:
            poptorch.Error: The model is not compiled.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2, bias=False), opts)
            >>> model.compile(torch.ones(3, 4))
            >>> report = model.work_report()
            >>> report["phases"]["forward"]
            {'matmul': {'flops': 48, 'bytes': 104, 'count': 1}}
            >>> report["total"]["flops"] / report["total"]["bytes"] < 1
            True
        """
        return work.report(self.programs.require("work_report").executable)

    # -- values that are not finite ------------------------------------------------------------

    def nan_report(self, *args: Any, **kwargs: Any) -> NanReport | None:
        """The first value that is NaN or infinite: which, how, in which step, from which line.

        Without arguments it returns that of the last run, which must have recorded it: see
        ``Options.Precision.recordNonFinite``. With arguments, it returns that of a call with them
        now: a second program that records is compiled and run on copies of the weights, of
        the optimizer's state and of the state of the random generator. These, and the arguments,
        do not change; functions of the host are called.

        A value counts when it is not finite but all values that it was computed from are, so
        infinite masks do not count. NaN counts in arguments and buffers; NaN and infinities count
        in weights and in the optimizer's state. Operations are checked one by one, including those
        of the backward pass and of the update.

        Args:
            args: positional arguments of a call; none: the last run.
            kwargs: keyword arguments of a call.

        Returns:
            A report with the attributes ``what`` (the operation, ``input x`` or ``parameter
            fc.weight``), ``condition``, ``element``, ``phase``, ``location``,
            ``device_iteration``, ``micro_batch``, ``loop_iterations`` and ``replica``; printed, it
            is a sentence. None: all values were finite.

        Raises:
            poptorch.Error: Without arguments, the model is not compiled, has not run or does not
                record; with arguments, what a call raises.

        Example:
            >>> import poptorch, torch
            >>> class Log(torch.nn.Module):
            ...     def forward(self, x):
            ...         return torch.log(x) * 2
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(Log(), opts)
            >>> report = model.nan_report(torch.tensor([1.0, -1.0]))
            >>> report.what, report.condition, report.phase
            ('log', 'real operation with a complex result', 'forward')
            >>> report.element
            'element [1] of f32[2]: operand -1, result nan'
        """
        if args or kwargs:
            return self._replayed(args, kwargs)
        executable = self.programs.require("nan_report").executable
        if not executable.is_recording_floats:
            raise Error("[nan_report] the last run recorded nothing. Set "
                        "options.Precision.recordNonFinite(True) before the model is wrapped, or "
                        "give nan_report() the arguments of a call.")
        if executable.runs_begun == 0:
            raise Error("[nan_report] the model has not run. Call it first.")
        return NanReport.of(executable)

    def _replayed(self, args: tuple, kwargs: dict) -> NanReport | None:
        with interrupts.deferred():
            self.device.check_can_run()
            compiled = self.compilation.ensure_current(args, kwargs)
            self.attachment.attach()
            tensors = compiled.match(args, kwargs)
            options, optimizer = recording(self.wrapped.options), self.wrapped.optimizer
            second = self.build()(options, args, kwargs, lambda step: None)
            with modes_off.plain_torch():
                self.weights.before_run(compiled, compiled.guards.check())
                if optimizer is not None:
                    optimizer.before_run(compiled.call)
                replay(compiled, second, tensors)
        return NanReport.of(second.executable)

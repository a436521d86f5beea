"""The executor's methods that show the compiled program."""

from poptorch._reports import partition


class Reports:
    """Text, memory, places and ops of the program; a part of PoplarExecutor."""

    def ir(self, step: str = "plan") -> str:
        """The program's text after a step.

        Args:
            step: ``"translate"``, ``"rewrite"``, ``"place"``, ``"schedule"`` or ``"plan"``.

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
        return self._compiled_model().executable.ir(step)

    def memory_report(self) -> dict:
        """Peak bytes on the device by category.

        Returns:
            For ``parameters``, ``buffers``, ``optimizer_state`` and ``constants`` (with what is
            prepared once), the bytes that they hold all the time; for ``activations`` of the
            forward pass, ``gradients`` of the backward pass and ``scratch`` (within one op, or the
            update), those alive when most of these three together are; for ``streams`` (arguments
            and results), those alive at that moment; ``arena``, the block of memory that has room
            for all of it at any moment, with the gaps. Beside that ``transfers``, the bytes that
            one call moves between the chip and streaming memory, in each replica. Memory that one
            value takes over from another counts once. A result is no activation even while the
            program still reads it: it usually lies in the caller's memory, not in the arena.

        Raises:
            poptorch.Error: The model is not compiled.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.compile(torch.ones(3, 4))
            >>> report = model.memory_report()
            >>> report["parameters"], report["transfers"]
            (40, 0)
        """
        return self._compiled_model().executable.memory_report()

    def partition_summary(self) -> None:
        """Prints a table of what runs where: a line for each stage.

        It has the stage's number and IPU, its blocks and modules, the number and bytes of its
        parameters, and their share of all parameters; in phased execution also the phase.

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
            >>> model.partition_summary()
            stage  IPU  blocks  modules  parameters  bytes  share
                0    0  wide    0                30    120  68.2%
                1    1  narrow  1                14     56  31.8%
        """
        print(partition.summary(self._compiled_model().executable.shares()))

    def op_report(self) -> dict:
        """How many ops of each name the program has, by phase: forward, backward, update.

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
        return self._compiled_model().executable.op_report()

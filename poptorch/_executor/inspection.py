"""The methods of an executor that describe a compiled model and its last run."""

import json
import re
from dataclasses import dataclass
from types import SimpleNamespace

import torch

from poptorch._runtime.latency import RunTimes
from poptorch._runtime.programs import ProgramInfo, Programs
from poptorch._runtime.wrapped import Wrapped
from poptorch.options import Options

# A line of IR text that is an op: `  %1, %2 = topk %x {...}` or `  stream_out %1 {...}`.
_OP = re.compile(r"  (?:%[\w.]+(?:, %[\w.]+)* = )?(?P<op>(?!output\b)\w+)\b")

# How it ends: `  // net.py:3 fc`; a file or module with other characters stands in quotes.
_WORD = r'"(?:[^"\\]|\\.)*"|[^\s":\\]+'
_PLACE = re.compile(rf"  // (?:{_WORD})?:\d+(?: (?P<module>{_WORD}))?$")


@dataclass(frozen=True)
class Inspection:
    """Names, anchors, times and the random state."""

    wrapped: Wrapped
    programs: Programs

    def isCompiled(self) -> bool:
        """Whether the model has been compiled (and not destroyed).

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.isCompiled()
            False
        """
        return self.programs.current is not None

    @property
    def model(self) -> torch.nn.Module:
        """The wrapped module.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.model
            Linear(in_features=4, out_features=2, bias=True)
        """
        return self.wrapped.user_model

    @property
    def options(self) -> Options:
        """The options in use, frozen. What the user left open is decided here: the output mode,
        the model's name, and for training the mean reduction strategy: ``Running`` if gradients
        are added up in half precision (by the ``accum_type`` of an optimizer of
        ``poptorch.optim``, else by the type of the parameter), else ``Post``. That is decided when
        the module is wrapped, and again by :meth:`setOptimizer` and by each compilation.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> opts.output_mode.name, model.options.output_mode.name
            ('Default', 'All')
        """
        return self.wrapped.options

    @property
    def training(self) -> bool:
        """Whether a call trains.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.training
            False
        """
        return self.wrapped.training

    # Names that existing programs read.

    @property
    def executable(self):
        """The compiled program; None before."""
        program = self.programs.current
        return program and program.executable

    @property
    def executable_inputs(self):
        """Tensors like those that the model is compiled for, without values; None before."""
        program = self.programs.current
        return program and SimpleNamespace(args=tuple(
            torch.zeros((), dtype=leaf.dtype).expand(leaf.shape)
            for leaf in program.arguments.tensor_leaves()))

    def getTensorNames(self) -> list[str]:
        """The names of all tensors of the model, as ``Options.anchorTensor`` takes them.

        Parameters and buffers have their dotted path (``fc.weight``); arguments, results and the
        loss are ``input.<name>``, ``output.<number>`` and ``loss``; what an operation computes is
        ``<module>/<operation>``, with a number from the second one on, and with ``backward/``
        before it in the backward pass. A trained parameter has ``Gradient___<path>``, the
        gradient that the optimizer gets, ``UpdatedVar___<path>``, its value afterwards, and what
        the optimizer's ``state_dict`` calls the states and numbers of its update, such as
        ``Accl1___<path>`` and ``scaledLearningRate0___specific___<path>``. Where a parameter or
        buffer has the name of an argument, a result or the loss, that one has ``.value`` after it.

        Raises:
            AssertionError: The model is not compiled.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.compile(torch.ones(3, 4))
            >>> model.getTensorNames()
            ['input.input', 'weight', 'bias', 't', 'addmm', 'output.0']
        """
        compiled = self.programs.current
        if compiled is None:
            raise AssertionError("[getTensorNames] the model is not compiled. Call it, or "
                                 "compile() it, first.")
        return list(compiled.program.tensor_names)

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """The values that an anchored tensor had in the last run.

        Args:
            short_name: as given to ``Options.anchorTensor``.

        Returns:
            The values that the anchor's output mode keeps, side by side on dimension 0.

        Raises:
            poptorch.Error: No tensor is anchored under this name, or nothing has run yet.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> _ = opts.anchorTensor("hidden", "1/relu")
            >>> net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(),
            ...                           torch.nn.Linear(5, 2))
            >>> model = poptorch.inferenceModel(net, opts)
            >>> y = model(torch.ones(3, 4))
            >>> model.getAnchoredTensor("hidden").shape
            torch.Size([3, 5])
        """
        return self.programs.require("getAnchoredTensor").call.anchored(short_name)

    def popart_ir(self) -> str:
        """The compiled program as JSON: ``{"maingraph": [{"type": ..., "name": ...}, ...]}``.

        For each op its name, the module that it comes from, and its line of ``ir("plan")``.
        """
        ops = []
        executable = self.programs.require("_debugGetPopartIR").executable
        for line in executable.ir("plan").splitlines():
            found = _OP.match(line)
            if found is not None:
                place = _PLACE.search(line)
                module = (place and place["module"] or "").strip('"')
                ops.append({"type": found["op"], "name": module, "text": line.strip()})
        return json.dumps({"maingraph": ops})

    # -- times of the last run -----------------------------------------------------------------

    def getPerfCounters(self) -> dict[str, list[list[float]]]:
        """When the last run requested its inputs and gave its outputs.

        Returns:
            Times in seconds; their zero has no meaning, their differences do. Keys are ``input``
            (a step requests an argument), ``input_complete`` (it has it), ``output`` (a result is
            there) and ``output_complete`` (the host has it). Each holds a list for each argument
            tensor or result, with an entry for each step: all of them for arguments, those that
            the output mode returns for results, none for an argument that the program does not
            read. Empty under ``enableSyntheticData``.

        Raises:
            poptorch.Error: The model is not compiled or has not run.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False).deviceIterations(2)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> y = model(torch.ones(6, 4))
            >>> {event: [len(steps) for steps in times]
            ...  for event, times in model.getPerfCounters().items()}
            {'input': [2], 'input_complete': [2], 'output': [2], 'output_complete': [2]}
        """
        return self._times("getPerfCounters").counters()

    def getLatency(self) -> tuple[float, float, float]:
        """The time from the request for the first argument to the last result at the host.

        It is measured for one micro-batch at a time, while the program runs. The results of a
        training step are there after its forward pass: its backward pass and the weight update
        follow, and are not part of this time. It also leaves out the host's work before and after
        the run. For the time of a whole call, measure the call.

        Returns:
            Minimum, maximum and mean over the returned steps of the last run, in seconds; zeros
            under ``enableSyntheticData``.

        Raises:
            poptorch.Error: The model is not compiled or has not run.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> y = model(torch.ones(6, 4))
            >>> least, greatest, mean = model.getLatency()
            >>> 0 < least <= mean <= greatest
            True
        """
        return self._times("getLatency").latency("asked", "returned")

    def getHostIpuLatency(self) -> tuple[float, float, float]:
        """The time from the request for the first argument to the last one there; as in
        :meth:`getLatency`.

        Raises:
            poptorch.Error: The model is not compiled or has not run.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> y = model(torch.ones(6, 4))
            >>> len(model.getHostIpuLatency())
            3
        """
        return self._times("getHostIpuLatency").latency("asked", "given")

    def getComputeLatency(self) -> tuple[float, float, float]:
        """The time from the last argument there to the last result available; as in
        :meth:`getLatency`.

        Raises:
            poptorch.Error: The model is not compiled or has not run.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> y = model(torch.ones(6, 4))
            >>> len(model.getComputeLatency())
            3
        """
        return self._times("getComputeLatency").latency("given", "last")

    def getIpuHostLatency(self) -> tuple[float, float, float]:
        """The time from the first result available to the last one at the host; as in
        :meth:`getLatency`.

        Raises:
            poptorch.Error: The model is not compiled or has not run.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> y = model(torch.ones(6, 4))
            >>> len(model.getIpuHostLatency())
            3
        """
        return self._times("getIpuHostLatency").latency("first", "returned")

    def _times(self, where: str) -> RunTimes:
        program = self.programs.require(where)
        return RunTimes(program.executable, program.interface, self.wrapped.options)

    @property
    def compilationTime(self) -> float:
        """Seconds that the last compilation took, or the loading where it came from a file.

        Raises:
            poptorch.Error: The model is not compiled.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.Linear(4, 2), opts)
            >>> model.compile(torch.ones(6, 4))
            >>> model.compilationTime > 0
            True
        """
        return self.programs.all[self.programs.require("compilationTime")].seconds

    def programs(self) -> list[ProgramInfo]:
        """The programs of this executor: the first one, and those that it compiled when something
        changed that ``forward`` depends on, see :meth:`Options.recompilation`.

        Returns:
            For each, its ``signature`` (shapes and types of tensors, other arguments), the
            ``reason`` why it was compiled, and the ``seconds`` that it took.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False)
            >>> model = poptorch.inferenceModel(torch.nn.LeakyReLU(0.5), opts)
            >>> y = model(torch.ones(3))
            >>> model.negative_slope = 0.25
            >>> y = model(torch.ones(3))
            >>> for program in model.programs():
            ...     print(program.signature, "|", program.reason)
            input: float32[3] | the first call
            input: float32[3] | self.negative_slope changed from 0.5 to 0.25
        """
        return list(self.programs.all.values())

    # -- the random generator ------------------------------------------------------------------

    @property
    def rng_state(self) -> list[int]:
        """The state of the device's random generator: its seed, then a counter for each replica.

        May be assigned, to continue from a state that was read before.

        Raises:
            poptorch.Error: The model is not compiled; or what is assigned is no such list.

        Example:
            >>> import poptorch, torch
            >>> opts = poptorch.Options().showCompilationProgressBar(False).randomSeed(42)
            >>> model = poptorch.inferenceModel(torch.nn.Dropout(0.5), opts)
            >>> x = torch.ones(64)
            >>> first = model(x)
            >>> state = model.rng_state
            >>> second = model(x)
            >>> state, torch.equal(first, second)
            ([42, 1], False)
            >>> model.rng_state = state
            >>> torch.equal(model(x), second)
            True
        """
        return self.programs.require("rng_state").random.read()

    @rng_state.setter
    def rng_state(self, state: list[int]) -> None:
        self.programs.require("rng_state").random.write(state)

    def gradients(self) -> dict[str, torch.Tensor]:
        """See :func:`poptorch.testing.gradients`."""
        return self.programs.require("gradients").call.gradients()

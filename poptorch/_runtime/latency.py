"""When a run's steps got their inputs and gave their outputs: measured on the host."""

from poptorch._translate.replica_groups import ReplicaGroups
from poptorch.enums import CommGroupType, OutputMode
from poptorch.errors import Error
from poptorch.options import Options

_SECOND_NS = 1e9


class RunTimes:
    """The times of the last run of a program; an Error if nothing has run yet.

    Attributes:
        inputs, outputs: for each argument and result ``(begin, end)`` of each slice, in ns; no
            slices of an argument that the program does not read.
    """

    def __init__(self, executable, interface, options: Options):
        self._iterations = executable.timestamps()
        if not any(end for _, end in self._iterations):
            raise Error("[getPerfCounters] the model has not run yet. Call it first.")
        self._spec, self._options = interface.spec, options
        names = {stream.name for stream in executable.streams()}
        arguments = [interface.program.inputs.get(number)
                     for number in range(len(interface.arguments.tensor_leaves()))]
        results = [stream for stream, output in interface.program.outputs
                   if output is not None and output.kind == "output"]
        self.inputs = self._times(executable, arguments, names)
        self.outputs = self._times(executable, results, names)

    @staticmethod
    def _times(executable, streams: list[str | None], names: set[str]) -> list:
        found = [executable.stream_times(s) if s in names else [] for s in streams]
        return found if any(found) else []

    def counters(self) -> dict[str, list[list[float]]]:
        """The times in seconds, by event, tensor and step."""
        def seconds(tensors, which: int):
            return [[times[which] / _SECOND_NS for times in steps] for steps in tensors]

        return {"input": seconds(self.inputs, 0), "input_complete": seconds(self.inputs, 1),
                "output": seconds(self.outputs, 0), "output_complete": seconds(self.outputs, 1)}

    def latency(self, begin: str, end: str) -> tuple[float, float, float]:
        """The least, the greatest and the mean time between two moments, in seconds.

        The moments of each returned step: the first input is ``asked`` for, the last one
        ``given``; the ``first`` and the ``last`` output are available, all are ``returned``.
        """
        if self._spec.synthetic_data:
            return 0.0, 0.0, 0.0
        moments = [self._moments(number, step) for number, step in enumerate(self._steps())]
        values = [max(one[end] - one[begin], 0) / _SECOND_NS for one in moments]
        return min(values), max(values), sum(values) / len(values)

    def _moments(self, number: int, step: tuple[int, int, int]) -> dict[str, int]:
        # A model without arguments, or without results, has those of the device iteration.
        begin, end = self._iterations[step[0]]
        taken = self._input_slice(*step)
        asked, given = zip(*[steps[taken] for steps in self.inputs if steps] or [(begin, begin)])
        available, returned = zip(*[steps[number] for steps in self.outputs if steps]
                                  or [(end, end)])
        return {"asked": min(asked), "given": max(given), "first": min(available),
                "last": max(available), "returned": max(returned)}

    def _steps(self) -> list[tuple[int, int, int]]:
        """Device iteration, replica and micro-step of each slice of an output, in order."""
        spec, mode = self._spec, self._options.output_mode
        replicas, micro = range(spec.replicas), range(spec.accumulation)
        if mode in (OutputMode.Final, OutputMode.Sum):
            return [(spec.device_iterations - 1, r, spec.accumulation - 1) for r in replicas]
        stride = self._options.output_return_period if mode is OutputMode.EveryN else 1
        return [(d, r, g) for d in range(stride - 1, spec.device_iterations, stride)
                for r in replicas for g in micro]

    def _input_slice(self, iteration: int, replica: int, micro: int) -> int:
        spec = self._spec
        groups = ReplicaGroups(spec.replicas, spec.input_group_size,
                               self._options.input_group_type is CommGroupType.Orthogonal)
        return (iteration * groups.count + groups.of(replica)) * spec.accumulation + micro

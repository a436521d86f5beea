"""When a run's steps got their inputs and gave their outputs: measured on the host."""

from poptorch._translate.replica_groups import ReplicaGroups
from poptorch.enums import OutputMode
from poptorch.errors import Error

_SECOND_NS = 1e9


class RunTimes:
    """The times of the last run of a program.

    Args:
        executable: the program.
        interface: which of its streams are arguments and results.
        mode: the output mode.
        period: N of ``OutputMode.EveryN``.
        is_orthogonal: how replicas form input groups.

    Attributes:
        inputs, outputs: for each argument and result ``(begin, end)`` of each slice, in ns; no
            slices of an argument that the program does not read.

    Raises:
        poptorch.Error: Nothing has run yet.
    """

    def __init__(self, executable, interface, mode: OutputMode, period: int,
                 is_orthogonal: bool):
        if not any(end for _, end in executable.timestamps()):
            raise Error("[getPerfCounters] the model has not run yet. Call it first.")
        self._iterations = executable.timestamps()
        self._spec = interface.spec
        self._mode, self._period = mode, period
        self._is_orthogonal = is_orthogonal
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

    def latency(self, measure) -> tuple[float, float, float]:
        """The least, the greatest and the mean latency of the returned steps, in seconds.

        Args:
            measure: gives ns of a step; takes ``(begin, end)`` of its inputs and its outputs.
        """
        if self._spec.synthetic_data:
            return 0.0, 0.0, 0.0
        values = [max(measure(*self._events(number, step)), 0) / _SECOND_NS
                  for number, step in enumerate(self._steps())]
        return min(values), max(values), sum(values) / len(values)

    def _events(self, number: int, step: tuple[int, int, int]) -> tuple[list, list]:
        # A model without arguments, or without results, has those of the device iteration.
        begin, end = self._iterations[step[0]]
        taken = self._input_slice(*step)
        return ([steps[taken] for steps in self.inputs if steps] or [(begin, begin)],
                [steps[number] for steps in self.outputs if steps] or [(end, end)])

    def _steps(self) -> list[tuple[int, int, int]]:
        """Device iteration, replica and micro-step of each slice of an output, in order."""
        spec = self._spec
        replicas, micro = range(spec.replicas), range(spec.accumulation)
        if self._mode in (OutputMode.Final, OutputMode.Sum):
            return [(spec.device_iterations - 1, r, spec.accumulation - 1) for r in replicas]
        stride = self._period if self._mode is OutputMode.EveryN else 1
        return [(d, r, g) for d in range(stride - 1, spec.device_iterations, stride)
                for r in replicas for g in micro]

    def _input_slice(self, iteration: int, replica: int, micro: int) -> int:
        spec = self._spec
        groups = ReplicaGroups(spec.replicas, spec.input_group_size, self._is_orthogonal)
        return (iteration * groups.count + groups.of(replica)) * spec.accumulation + micro


def round_trip(inputs, outputs) -> int:
    """From the first input asked for to the last output written back."""
    return max(end for _, end in outputs) - min(begin for begin, _ in inputs)


def host_to_ipu(inputs, outputs) -> int:
    """From the first input asked for to the last one there."""
    return max(end for _, end in inputs) - min(begin for begin, _ in inputs)


def compute(inputs, outputs) -> int:
    """From the last input there to the last output available."""
    return max(begin for begin, _ in outputs) - max(end for _, end in inputs)


def ipu_to_host(inputs, outputs) -> int:
    """From the first output available to the last one written back."""
    return max(end for _, end in outputs) - min(begin for begin, _ in outputs)

"""Host memory for what a call returns, and how it becomes the user's structure."""

from poptorch.enums import OutputMode
from poptorch.errors import Error


class OutputPlan:
    """How many results of one stream a call keeps, and the shape of the tensor that holds them.

    An Error for ``EveryN`` with a period that does not divide ``device_iterations``.
    """

    def __init__(self, mode: OutputMode, period: int, device_iterations: int, accumulation: int,
                 replicas: int):
        self.mode = mode
        self.period = period
        steps = device_iterations * accumulation
        if mode is OutputMode.EveryN and device_iterations % period:
            raise Error(f"[outputMode] OutputMode.EveryN keeps the results of every {period}-th "
                        f"of {device_iterations} device iterations, but {period} does not divide "
                        f"{device_iterations}. Choose a period that does.")
        self.steps = {OutputMode.All: steps, OutputMode.EveryN: steps // period}.get(mode, 1)
        self.kept = self.steps * replicas

    def shape(self, sizes: list[int]) -> list[int]:
        """The sizes of all kept results of micro-batches of ``sizes``, side by side on dimension 0.

        A 0-d result stays 0-d when exactly one is kept.
        """
        if sizes:
            return [self.kept * sizes[0], *sizes[1:]]
        return [] if self.kept == 1 else [self.kept]

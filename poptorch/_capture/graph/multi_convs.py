"""The convolutions of one capture that are computed together."""

from torch import fx

from poptorch._capture.graph.producers import CONVOLUTIONS, annotate, name_of
from poptorch._capture.graph.regions import region_of


class MultiConvs:
    """Numbers multi-convolutions, and annotates their convolutions when they end."""

    def __init__(self, recorder):
        self._recorder = recorder
        self._count = 0
        self._open = None

    def begin(self) -> tuple:
        """Begins one; returns what :meth:`end` takes."""
        if self._open is not None:
            raise self._recorder.error(
                "[MultiConv] Nested poptorch.MultiConv blocks are not supported. Leave the outer "
                "block first, or put all convolutions into one block.")
        graph = self._recorder.graph
        self._open = graph, next(iter(reversed(graph.nodes)))
        return self._open

    def end(self, begun: tuple, settings: dict, is_whole: bool) -> None:
        """Ends the one that ``begun`` stands for; in ``settings`` a tuple has one value for each
        convolution.

        ``is_whole`` is False if an exception left it: forward failed, or a checkpoint's function
        was left once all is recomputed that is needed.
        """
        self._open = None
        found = list(_convolutions(*begun))
        if is_whole:
            self._check(found, settings)
        for index, node in enumerate(found):
            annotate(node, "multi_conv", self._count)
            annotate(node, "plan_type", settings.get("plan_type", "parallel"))
            for kind, value in settings.items():
                annotate(node, kind, value[index] if isinstance(value, tuple) else value)
        self._count += 1

    def _check(self, found: list, settings: dict) -> None:
        if not found:
            raise self._recorder.error(
                "[MultiConv] Unexpected end_multi_conv: there is no convolution inside. Enter it "
                "where convolutions are computed.")
        for kind, value in settings.items():
            if isinstance(value, tuple) and len(value) != len(found):
                raise self._recorder.error(
                    f"[MultiConv] {kind} has {len(value)} values, but there are {len(found)} "
                    f"convolutions. Give one for each, or one for all.")


def _convolutions(graph: fx.Graph, newest: fx.Node | None = None):
    """Those behind a node, in the order of the program, with those of regions."""
    behind = newest is None
    for node in graph.nodes:
        if behind and region_of(node) is not None:
            yield from _convolutions(region_of(node).graph)
        elif behind and name_of(node) in CONVOLUTIONS:
            yield node
        behind |= node is newest

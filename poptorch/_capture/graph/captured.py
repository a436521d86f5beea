"""What capture hands to translate: a functional FX graph and the meaning of its ends."""

from dataclasses import dataclass, field

import torch

from poptorch._annotations.annotations import BlockUse
from poptorch._base.pytree.structure import Structure
from poptorch._capture.graph.stream_overlap import Overlap


@dataclass
class InputSpec:
    """The meaning of one placeholder.

    Attributes:
        kind: ``"input"``, ``"param"``, ``"buffer"`` or ``"constant"``; placeholders stand in
            this order.
        name: dotted path of a parameter or buffer (the first, if it is tied); a readable path of
            an input (``x``, ``batch.0``, ``kwargs.mask``); ``constant.N`` for a tensor that
            ``forward`` took from elsewhere.
        tensor: the real tensor, None for inputs.
        requires_grad: whether it is a parameter that is trained.
        persistent: False for a buffer that ``state_dict`` leaves out.
        aliases: further paths of a tied parameter or buffer.
        layout: of an input, if the program depends on it: see ``InputLayouts.of``.
        reshaped: of an input, if ``forward`` changes its shape in place: see
            ``Shapes.changes_of``.
    """

    kind: str
    name: str
    tensor: torch.Tensor | None = None
    requires_grad: bool = False
    persistent: bool = True
    aliases: list[str] = field(default_factory=list)
    layout: tuple[list[int | None], int | None] | None = None
    reshaped: list[tuple[str, list]] = field(default_factory=list)


@dataclass
class OutputSpec:
    """The meaning of one result of the graph.

    Attributes:
        kind: ``"output"`` (what ``forward`` returned), ``"loss"`` (what was differentiated),
            ``"grad"`` (of a parameter), ``"buffer_update"`` (new value of a buffer or parameter
            that ``forward`` changes), ``"input_update"``, or ``"constant_update"`` (new value of
            a captured tensor; the next call begins with the captured one again).
        name: path among the results, or the name of the input it belongs to.
        node: whose value it is.
        leaf: for ``"input_update"`` the index among the inputs of kind ``"input"``.
        tensor: for ``"constant_update"`` the real tensor, if there is one.
        is_complex: whether the program's result is pairs of real and imaginary parts.
    """

    kind: str
    name: str
    node: torch.fx.Node
    leaf: int | None = None
    tensor: torch.Tensor | None = None
    is_complex: bool = False


@dataclass
class Captured:
    """A captured program.

    Each node of the graph has in its ``meta``: ``val`` (a fake tensor, or a tuple of them),
    ``place`` (``(file, line)`` of the user, or None), ``module`` (dotted path), ``annotations``
    (an ``Annotations``), ``backward`` (bool), ``recompute`` (0, or the number
    of the recomputed region); the ones that the backward pass begins with have ``seed``, random
    ones ``salt``, views that ``poptorch.nop`` made ``nop``.

    A node of the function ``region`` runs the graph of its ``meta["region"]``, a
    :class:`poptorch._capture.graph.regions.Region`.

    Attributes:
        graph: functional: no node changes a tensor.
        inputs: one for each placeholder, in order.
        outputs: one for each result of the graph, in order.
        out_spec: how the ``output`` results form what ``forward`` returns.
        in_spec: the structure of the positional and keyword arguments, ``(args, kwargs)``.
        training: whether there is a backward pass.
        blocks: every block that the forward pass began, in order.
        attributes: what ``forward`` depends on of modules and of objects that they hold: each a
            ``HeldAttribute``.
        argument_attributes: the same of objects in arguments.
        beside: attributes of containers that ``forward`` depends on, by the container's number
            among :meth:`Structure.nodes` of the arguments by name.
        overlaps: the copies from and to the host for which ``forward`` sets an overlap mode.
        host_sites: the calls of functions of the host, which operations name by their numbers.
        plain_tensors: the user's tensors that are constants, or whose values Python code has read
            (:mod:`read_values`), with their paths in the module; None for one that is elsewhere.
        modes: the modules whose attribute ``training`` was read by ``forward``.
        outer: the guards of what ``forward`` may have read outside of the module.
    """

    graph: torch.fx.Graph
    inputs: list[InputSpec]
    outputs: list[OutputSpec]
    out_spec: Structure
    in_spec: Structure
    training: bool
    blocks: tuple[BlockUse, ...] = ()
    attributes: list[tuple] = field(default_factory=list)
    argument_attributes: list[tuple] = field(default_factory=list)
    beside: dict[int, set[str]] = field(default_factory=dict)
    overlaps: tuple[Overlap, ...] = ()
    host_sites: list = field(default_factory=list)
    plain_tensors: list[tuple[torch.Tensor, str | None]] = field(default_factory=list)
    modes: list[torch.nn.Module] = field(default_factory=list)
    outer: list = field(default_factory=list)

    def changed_buffers(self) -> list[str]:
        """The paths of the buffers that ``forward`` changes."""
        names = {spec.name for spec in self.inputs if spec.kind == "buffer"}
        return [spec.name for spec in self.outputs
                if spec.kind == "buffer_update" and spec.name in names]

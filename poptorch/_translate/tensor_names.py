"""Names of the tensors of a captured model, for getTensorNames and anchors.

    fc.weight               a parameter or buffer, as it is before the update
    input.x, output.0, loss the arguments, the results, the loss
    fc/addmm                what an operation of the module `fc` computes; fc/addmm.1 the next one
    backward/fc/mm          the same in the backward pass
    Gradient___fc.weight    the gradient that the optimizer sees
    gradientNorm            the norm of all gradients together, before they are clipped
    UpdatedVar___fc.weight  the parameter after the update
    Accl1___fc.weight       the optimizer's state and settings, see poptorch/_optimizer/rows.py

They come from the user's code, before anything is rewritten: the same model has the same
names. Where two would be equal, a parameter or buffer keeps its path, ``.value`` is added to the
name of an argument, a result or the loss, and an operation gets the next number.
"""

import difflib
import operator

import torch

from poptorch.errors import Error

GRADIENT = "Gradient___"
GRADIENT_NORM = "gradientNorm"
UPDATED = "UpdatedVar___"
_STATES = ("param", "buffer")


class TensorNames:
    """All names of one captured model: ``nodes`` of forward and backward by name, and
    ``gradients``, the parameters that have one."""

    def __init__(self, captured):
        self.nodes: dict[str, torch.fx.Node] = {}
        self._counts: dict[str, int] = {}
        self._taken = {spec.name for spec in captured.inputs if spec.kind in _STATES}
        sources = iter([self._name_of(spec) for spec in captured.inputs])
        outputs = [spec for spec in captured.outputs if spec.kind == "output"]
        results = {self._free(f"output.{number}"): spec.node
                   for number, spec in enumerate(outputs)}
        results |= {self._free("loss"): spec.node for spec in captured.outputs
                    if spec.kind == "loss"}
        for node in captured.graph.nodes:
            if node.op == "placeholder":
                name = next(sources)
                if name is not None:
                    self.nodes[name] = node
            elif node.op == "call_function" and isinstance(node.meta["val"], torch.Tensor):
                self._add(title(node), node)
        self.nodes |= results
        self.gradients = [spec.name for spec in captured.outputs if spec.kind == "grad"]

    def _name_of(self, spec) -> str | None:
        if spec.kind == "input":
            return self._free(f"input.{spec.name}")
        return spec.name if spec.kind in _STATES else None

    def _free(self, name: str) -> str:
        while name in self._taken:
            name = f"{name}.value"
        self._taken.add(name)
        return name

    def _add(self, name: str, node) -> None:
        count = self._counts.get(name, 0)
        while (numbered := f"{name}.{count}" if count else name) in self._taken:
            count += 1
        self._counts[name] = count + 1
        self.nodes[numbered] = node

    def all(self, bound: list[str]) -> list[str]:
        """Every name; ``bound``: those of the tensors that the update uses and makes."""
        return [*self.nodes, *(GRADIENT + name for name in self.gradients), *bound]

    def unknown(self, name: str, bound: list[str]) -> Error:
        """The error for a name that is not there."""
        near = difflib.get_close_matches(name, self.all(bound), 5, 0.5)
        return Error(f"[anchorTensor] the model has no tensor {name!r}."
                     f"{' Did you mean ' + ' or '.join(near) + '?' if near else ''} "
                     f"executor.getTensorNames() lists all.")


def title(node: torch.fx.Node) -> str:
    """What the names of an operation's results begin with."""
    source = node.args[0] if node.target is operator.getitem else node
    module = (source.meta.get("module") or "").rstrip("/")  # of a name scope outside of modules
    parts = ["backward" if node.meta.get("backward") else "", module, operation_name(source)]
    return "/".join(part for part in parts if part)


def operation_name(node: torch.fx.Node) -> str:
    """The name of an operation without namespace and overload."""
    schema = getattr(node.target, "_schema", None)
    return schema.name.rpartition("::")[2] if schema else node.target.__name__

"""The same model in PyTorch and here: which operation first gives other numbers."""

import copy
from typing import Any

import torch

from poptorch._base import switches
from poptorch._base.checks import at_least, check_module
from poptorch._base.torch_private.basic import pytree
from poptorch._base.types import narrowed
from poptorch._capture import capture
from poptorch._translate.recomputation import recomputed
from poptorch._translate.tensor_names import TensorNames
from poptorch.enums import OutputMode
from poptorch.errors import Error
from poptorch.models import inferenceModel, trainingModel
from poptorch.options import Options
from poptorch.options._options import checked_options
from poptorch.testing._comparison import (
    Comparison,
    Difference,
    OtherForm,
    relative_error,
    worst_element,
)
from poptorch.testing._operations import ROUNDING, Operations

_FLOOR = 2e-6  # the error that the rule allows in addition to four times that of eager float32
_RANDOM = "random numbers are drawn by another generator than PyTorch's"
_RECORDED = ("no single operation differs: the recorded graph differs from the module in PyTorch, "
             "or an optimization fuses operations wrongly. Check whether forward calls "
             "isRunningOnIpu() or depends on values; try POPTORCH_OFF=<name of a pass>")


def compare(model: torch.nn.Module, *inputs: Any, steps: int = 1, training: bool | None = None,
            options: Options | None = None, optimizer: torch.optim.Optimizer | None = None
            ) -> Comparison:
    """Runs a model in PyTorch and here, and finds the first operation that differs.

    Every operation of the recorded program, those of the backward pass included, is computed by
    PyTorch from the operands that it had here, in float64 and in the type that it has. Its result
    may differ from the one in float64 by four times the error of PyTorch's own, and 2e-6 of its
    norm (for 16-bit types by two roundings more). Then results, losses and gradients of the whole
    model are compared with those of the module itself, by the same rule, unless the model draws
    random numbers. The model, which is copied, does not change.

    Args:
        model: the module. In training it returns what :func:`poptorch.trainingModel` takes: its
            results; the last one, or the only one, is the loss.
        inputs: its arguments: tensors, or nested structures of them.
        steps: how many steps to run, on the same arguments.
        training: whether to train; None: where the module is in training mode. Its layers keep
            the modes that they have.
        options: of precision and the like; one step a call. None: the defaults.
        optimizer: whose class and settings train the copies; None: SGD with a learning rate of
            0.01.

    Returns:
        A :class:`Comparison`: true where nothing differs, and printable.

    Raises:
        TypeError: ``model`` is not a module.
        poptorch.Error: The model cannot be compiled, has nothing to train, or the options have
            several steps a call.
        ValueError: ``steps`` is less than 1.

    Example:
        >>> import torch, poptorch
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU()).eval()
        >>> found = poptorch.testing.compare(net, torch.randn(3, 4))
        >>> bool(found), found.first
        (True, None)
        >>> print(found)
        3 values of 1 step compared one by one: the same numbers as PyTorch.
    """
    at_least(1, steps, "compare steps")
    check_module(model, "compare")
    if training is None:
        training = model.training
    if training and not any(tensor.requires_grad for tensor in model.parameters()):
        raise Error(f"[compare] no parameter of the {type(model).__name__} requires grad: there is "
                    f"nothing to train. Pass training=False; on the command line leave out "
                    f"--training.")
    options = _single_step(options)
    return _Run(model, inputs, training, options, optimizer).compared(steps)


def _single_step(options: Options | None) -> Options:
    options = Options() if options is None else checked_options(options, "compare").clone()
    several = {"deviceIterations": options.device_iterations,
               "gradientAccumulation": options.Training.gradient_accumulation,
               "replicationFactor": options.replication_factor}
    for name, number in several.items():
        if number != 1:
            raise Error(f"[compare] the options have {name}({number}), and one step of each call "
                        f"is compared with one of PyTorch. Leave it out.")
    return options.showCompilationProgressBar(False)


def _copies(tree, dtype: torch.dtype | None = None):
    """Copies of all tensors, those of floats in another dtype."""

    def copied(leaf):
        if not torch.is_tensor(leaf):
            return leaf
        leaf = leaf.detach().clone()
        return leaf.to(dtype) if dtype is not None and leaf.is_floating_point() else leaf

    return pytree.tree_map(copied, tree)


class _Eager:
    """A copy of the module in PyTorch, in one dtype."""

    def __init__(self, model, training: bool, optimizer, dtype: torch.dtype | None):
        self.module = copy.deepcopy(model)
        if dtype is not None:
            self.module = self.module.to(dtype)
        self.dtype, self.training = dtype, training
        self.optimizer = _like(optimizer, model, self.module) if training else None

    def step(self, inputs) -> dict[str, torch.Tensor]:
        """Results, loss and gradients of one step, by name."""
        inputs = _copies(inputs, self.dtype)
        if not self.training:
            with torch.no_grad():
                return _named(self.module(*inputs))
        self.optimizer.zero_grad()
        results = self.module(*inputs)
        loss = pytree.tree_leaves(results)[-1]
        loss.sum().backward()
        found = _named(results)
        found |= {f"gradient of {name}": p.grad.clone()
                  for name, p in self.module.named_parameters() if p.grad is not None}
        self.optimizer.step()
        return found


def _like(optimizer, model: torch.nn.Module, copied: torch.nn.Module) -> torch.optim.Optimizer:
    """An optimizer with the settings of ``optimizer``, for a copy of the module."""
    own = dict(copied.named_parameters())
    if optimizer is None:
        return torch.optim.SGD([p for p in own.values() if p.requires_grad], lr=0.01)
    names = {id(p): name for name, p in model.named_parameters()}
    groups = [{**{key: value for key, value in group.items() if key != "params"},
               "params": [own[names[id(p)]] for p in group["params"]]}
              for group in optimizer.param_groups]
    return type(optimizer)(groups)


def _named(results) -> dict[str, torch.Tensor]:
    leaves = [leaf for leaf in pytree.tree_leaves(results) if torch.is_tensor(leaf)]
    return {f"result {i}": leaf.detach().clone() for i, leaf in enumerate(leaves)}


class _Run:
    """One model on both sides, step by step."""

    def __init__(self, model, inputs: tuple, training: bool, options: Options, optimizer):
        self._inputs, self._training, self._options = inputs, training, options
        self._eager = [_Eager(model, training, optimizer, dtype)
                       for dtype in (torch.float64, None)]
        self._plain = self._executor(model, optimizer, options.clone())
        captured = capture(copy.deepcopy(model), _copies(inputs), {}, training=training,
                           location_excludes=options.source_location_excludes)
        captured = recomputed(captured)
        self._operations = Operations(captured, TensorNames(captured).nodes, options)
        anchored = options.clone()
        for number, name in enumerate(self._operations.names):
            anchored.anchorTensor(f"v{number}", name, OutputMode.Final)
        self._anchored = self._executor(model, optimizer, anchored)

    def _executor(self, model, optimizer, options: Options):
        module = copy.deepcopy(model)
        if not self._training:
            return inferenceModel(module, options)
        return trainingModel(module, options, _like(optimizer, model, module))

    def compared(self, steps: int) -> Comparison:
        """Compares up to ``steps`` steps, until something differs."""
        first, results, compared, step = None, (), 0, 0
        for step in range(steps):
            values = self._values()
            first, count = self._operations.first_difference(values, step)
            compared += count
            results = self._whole(step)
            if first is not None or results:
                break
        return Comparison(first, tuple(results), compared, self._operations.skipped(), step + 1)

    def _values(self) -> dict[str, torch.Tensor]:
        """What each tensor of the program was in one step of it."""
        self._anchored(*_copies(self._inputs))
        return {name: self._anchored.getAnchoredTensor(f"v{number}")
                for number, name in enumerate(self._operations.names)}

    def _whole(self, step: int) -> list[Difference | OtherForm]:
        """Results, loss and gradients against those of the module."""
        with switches.keep_gradients():
            ours = _named(self._plain(*_copies(self._inputs)))
        if self._training:
            ours |= {f"gradient of {name}": value
                     for name, value in switches.gradients(self._plain).items()}
        exact, eager = (side.step(self._inputs) for side in self._eager)
        found = [OtherForm(name, step, _form(ours.get(name)), _form(eager.get(name), is_eager=True),
                           _RECORDED) for name in {**eager, **ours}]
        found = [other for other in found if other.ours != other.expected]
        if self._operations.is_random:
            return found
        differing = {other.name for other in found}
        for name, expected in exact.items():
            if name in differing:
                continue
            error = relative_error(ours[name], expected)
            limit = 4 * relative_error(eager[name], expected) + _FLOOR
            limit += ROUNDING.get(ours[name].dtype, 0.0)
            if not error <= limit:
                index = worst_element(ours[name], expected)
                found.append(Difference(
                    name, step, "", "", "", error, limit, index,
                    float(ours[name][index]), float(expected[index]), _RECORDED))
        return found


def _form(value: torch.Tensor | None, is_eager: bool = False) -> str:
    """Type and shape; for a tensor of PyTorch, those that it has on the device."""
    if value is None:
        return "nothing"
    return f"{narrowed(value.dtype) if is_eager else value.dtype} of shape {list(value.shape)}"

"""The arguments of commands that take a model from a Python file."""

import argparse

import torch

from poptorch._command.given import given_options, model_file, typed_inputs
from poptorch.executor import PoplarExecutor
from poptorch.models import inferenceModel, trainingModel
from poptorch.options import Options

OPTIMIZERS = tuple(typed_inputs.OPTIMIZERS)


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the model, its arguments and its options."""
    parser.add_argument("model", help="file.py:Name of a class, function or module")
    add_inputs(parser)


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of the model and its options."""
    parser.add_argument("--input", action="append", default=[], metavar="TYPE[SHAPE]",
                        help="an argument of forward, with the batch of a whole step, such as "
                        "f32[8,3,224,224]. Repeat it for each argument. Default: the variable "
                        "`inputs` of the file, which is a tuple of the arguments or a function "
                        "that returns one")
    parser.add_argument("--options", nargs="+", default=[], metavar="OPTION",
                        help="NAME=VALUE by the names of Options.toDict(), values as JSON, such as "
                        "ipu_target=bow gradient_accumulation=8; and file.py:name of an Options "
                        "object. The settings change that object; without one, the variable "
                        "`options` of the model's file, if there is one")


def add_optimizer(parser: argparse.ArgumentParser) -> None:
    """Adds the optimizer."""
    parser.add_argument("--optimizer", choices=OPTIMIZERS, help="train with this optimizer. "
                        "Default: inference")


class Model:
    """What the arguments say: ``model``, ``inputs``, ``options`` and ``optimizer``."""

    def __init__(self, arguments: argparse.Namespace, where: str, learning_rate: float = 0.01):
        module, self.model = model_file.read(arguments.model, where)
        self.inputs = typed_inputs.inputs(arguments.input, module, where)
        self.options: Options = given_options.of(module, arguments.options, where)
        self.optimizer = typed_inputs.optimizer(getattr(arguments, "optimizer", None), self.model,
                                                learning_rate)

    def executor(self, loss: torch.nn.Module | None = None) -> PoplarExecutor:
        """The wrapped model; for inference, in evaluation mode."""
        if self.optimizer is None:
            return inferenceModel(self.model.eval(), self.options)
        return trainingModel(self.model, self.options, self.optimizer, loss=loss)

"""The steps before the first run: capture, translate, and what ``_C.compile`` does."""

from dataclasses import dataclass

import torch

from poptorch import _C
from poptorch._base.torch_private.modes_off import plain_torch
from poptorch._capture import capture
from poptorch._guards import globals_read, outer_counts
from poptorch._guards.attribute_reads import warn_of_kept
from poptorch._guards.host_randomness import Draws
from poptorch._runtime import replicas, settings
from poptorch._runtime.arguments import ArgsParser, Arguments
from poptorch._runtime.interface import Interface
from poptorch._runtime.modes import TrainingModes
from poptorch._runtime.outer_watch import HeldName, OuterWatch, Variable
from poptorch._runtime.plain_tensors import PlainTensors
from poptorch._translate import StepSpec, translate
from poptorch.options import Options


@dataclass(frozen=True)
class Source:
    """What a program is made from, apart from the arguments of the first call.

    Attributes:
        model: the module that is captured.
        user_model: the module that the options refer to.
        options: resolved options.
        spec: the loops around the captured graph.
        modes: which layers are in training mode.
        optimizer: the executor's ``OptimizerLink``; None for inference.
        parser: which parameters the model takes, if it is not ``forward`` that says so.
    """

    model: torch.nn.Module
    user_model: torch.nn.Module
    options: Options
    spec: StepSpec
    modes: TrainingModes
    optimizer: object
    parser: ArgsParser | None


def build(source: Source, args: tuple, kwargs: dict, progress) -> tuple[Interface, object]:
    """Makes a program for arguments like these.

    Args:
        source: what it is made from.
        args, kwargs: of the first call.
        progress: called with the name of each step as it begins.

    Returns:
        The interface of the program, and the program. Nothing else is changed.

    Raises:
        poptorch.Error: The module cannot be compiled for these arguments.
    """
    options, spec = source.options, source.spec
    progress("capture")
    arguments = Arguments(source.model, args, kwargs, spec, source.parser)
    groups = dict(spec.weight_groups)
    draws = Draws()
    outer, sets, lines, objects = globals_read.read_and_set(source.model, [args, kwargs], draws)
    try:
        captured = capture(source.model, *arguments.micro_batch(args, kwargs),
                           training=spec.training,
                           location_excludes=options.source_location_excludes,
                           module_paths=options.module_namescope_enabled,
                           grouped=frozenset(groups),
                           mode_of=source.modes.mode_of, replicas=spec.replicas,
                           called=arguments.called, outer=objects, draws=draws)
    finally:
        outer, kept = globals_read.put_back(outer)
        sets, kept_there = globals_read.put_back(sets)
    warn_of_kept(kept + kept_there)
    outer_counts.warn(outer, sets, lines)
    outer = globals_read.unchanged(outer)
    known = {name.text for name in outer}
    held = [HeldName(*one) for one in captured.outer_attributes if one[2] not in known]
    watched = [*outer, *held, *map(Variable, captured.environment)]
    arguments.compare(captured.beside)
    captured.out_spec.copy_data([args, kwargs, source.model, [name.value() for name in outer]])
    settings.check_buffers(options, source.user_model, captured.changed_buffers())
    replicas.check_parameters(options, groups, captured)
    progress("translate")
    with plain_torch():
        program = translate(captured, spec, source.optimizer)
        executable = _C.compile(program.module, settings.compile_options(options), progress)
        interface = Interface(arguments, captured.out_spec, program, spec, captured.attributes,
                              captured.argument_attributes, OuterWatch(watched),
                              PlainTensors(captured.plain_tensors), captured.modes)
    return interface, executable

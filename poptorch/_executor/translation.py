"""Steps 1 and 2: a module and its arguments become a module of the IR."""

from collections.abc import Callable
from dataclasses import dataclass

from poptorch._base.torch_private.modes_off import plain_torch
from poptorch._capture import capture
from poptorch._capture.graph.captured import Captured
from poptorch._runtime import replicas, settings
from poptorch._runtime.arguments import ArgsParser, Arguments
from poptorch._runtime.wrapped import Wrapped
from poptorch._translate import Program, StepSpec, translate
from poptorch.options import Options


@dataclass(frozen=True)
class Translated:
    """The translated ``program``, and the objects that it was translated from."""

    arguments: Arguments
    captured: Captured
    spec: StepSpec
    program: Program


def translated(wrapped: Wrapped, options: Options, groups: tuple, args: tuple, kwargs: dict,
               progress: Callable[[str], None], parser: ArgsParser | None = None,
               is_run: bool = True) -> Translated:
    """Captures and translates ``wrapped`` for arguments like these; changes nothing else.

    Args:
        groups: the weights with a value for each group of replicas, by path.
        progress: called with the name of each step.
        parser: as in :class:`Arguments`.
        is_run: whether the program is to run; if not, weights may be on the meta device.
    """
    model = wrapped.model
    spec = settings.step_spec(wrapped.options, wrapped.training, groups)
    progress("capture")
    arguments = Arguments(model, args, kwargs, spec, parser)
    captured = capture(model, *arguments.micro_batch(args, kwargs), training=spec.training,
                       location_excludes=options.source_location_excludes,
                       module_paths=options.module_namescope_enabled,
                       grouped=frozenset(dict(groups)), mode_of=wrapped.modes.mode_of,
                       replicas=spec.replicas, accumulation=spec.accumulation,
                       called=arguments.called, takes_meta=not is_run)
    arguments.compare(captured.beside)
    outside = [guard.value for guard in captured.outer]
    captured.out_spec.copy_data([args, kwargs, model, outside])
    settings.check_buffers(options, wrapped.user_model, captured.changed_buffers())
    replicas.check_parameters(options, dict(groups), captured)
    progress("translate")
    with plain_torch():
        program = translate(captured, spec, wrapped.optimizer)
    return Translated(arguments, captured, spec, program)

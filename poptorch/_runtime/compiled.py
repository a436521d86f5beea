"""A compiled model: made completely, then published; replaced as a whole."""

from dataclasses import dataclass

import torch

from poptorch._guards.guard import GuardSet
from poptorch._guards.module_guards import guards_of, layers_of
from poptorch._guards.training_modes import CompiledModes, TrainingModes
from poptorch._runtime.argument_memory import check_layouts
from poptorch._runtime.arguments import Arguments
from poptorch._runtime.call import Call
from poptorch._runtime.interface import Interface
from poptorch._runtime.random_state import RandomState
from poptorch._translate import Program
from poptorch.errors import Error
from poptorch.options import Options


@dataclass(frozen=True, eq=False)
class CompiledModel:
    """A compiled program and what binds it to the module that it was made from.

    No attribute is assigned after construction. What calls change is in the states of the program
    and in the tensors of the module. ``program`` and ``arguments`` are those of ``interface``.

    Attributes:
        guards: check whether everything that decided what was compiled is as it was.
        modes: of the layers, when it was compiled.
        reads_states: whether values of parameters or buffers are compiled in.
    """

    executable: object
    interface: Interface
    program: Program
    arguments: Arguments
    call: Call
    guards: GuardSet
    modes: CompiledModes
    reads_states: bool
    random: RandomState

    @classmethod
    def of(cls, interface: Interface, executable, model: torch.nn.Module,
           options: Options, modes: TrainingModes) -> "CompiledModel":
        """Binds a program to the module whose tensors ``interface`` names."""
        program, spec = interface.program, interface.spec
        compiled_modes = CompiledModes(model, interface.modes, modes)
        guards = GuardSet(
            (*guards_of(model, program.states, spec.training, program.weight_groups),
             *compiled_modes.guards(), *interface.guards()),
            list(program.states.values()), spec.training, [part for _, part in layers_of(model)],
            compiled_modes.warn, compiled_modes.places())
        states = set(map(id, (*model.parameters(), *model.buffers())))
        reads_states = any(id(tensor) in states for tensor, _ in interface.plain_tensors.alive())
        return cls(executable, interface, program, interface.arguments,
                   Call(executable, interface, options), guards, compiled_modes, reads_states,
                   RandomState(executable, options.random_seed))

    def require_unchanged(self, where: str) -> None:
        """Raises an Error if a guard does not hold, for a method that cannot recompile."""
        change = self.guards.change_of_module()
        if change is not None:
            raise Error(f"[{where}] {change.text} after the model was compiled. Set it back; or "
                        f"call the model first, which compiles it again.")

    def match(self, args: tuple, kwargs: dict) -> list[torch.Tensor]:
        """The tensors that :attr:`call` takes. An Error if the program is not compiled for them."""
        tensors = self.arguments.match(args, kwargs)
        if self.program.layouts:
            check_layouts(tensors, [leaf.path for leaf in self.arguments.tensor_leaves()],
                          self.program.layouts)
        return tensors

    def fits(self, args: tuple, kwargs: dict) -> bool:
        """Whether a call with these arguments can run the program."""
        try:
            self.match(args, kwargs)
        except Error:
            return False
        return self.guards.holds()

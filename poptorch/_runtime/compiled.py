"""A compiled model: made completely, then published; replaced as a whole."""

from dataclasses import dataclass

import torch

from poptorch._runtime.arguments import Arguments
from poptorch._runtime.call import Call
from poptorch._runtime.guard import ModuleGuard
from poptorch._runtime.interface import Interface
from poptorch._runtime.modes import CompiledModes, TrainingModes
from poptorch._runtime.random_state import RandomState
from poptorch._translate import Program
from poptorch.options import Options


@dataclass(frozen=True, eq=False)
class CompiledModel:
    """A compiled program and what binds it to the module that it was made from.

    No attribute is assigned after construction. What calls change is in the states of the program
    and in the tensors of the module.

    Attributes:
        executable: the program, with memory of its own for its states.
        interface: how its arguments, results and states are those of the module.
        program: of the interface: names of streams and states, and the host's tensors.
        arguments: of the interface: the structure of the arguments.
        call: runs it; each call has pointers and results of its own.
        guard: checks whether the module is still the one that was compiled.
        random: the state of its random generator.
    """

    executable: object
    interface: Interface
    program: Program
    arguments: Arguments
    call: Call
    guard: ModuleGuard
    random: RandomState

    @classmethod
    def of(cls, interface: Interface, executable, model: torch.nn.Module,
           options: Options, modes: TrainingModes) -> "CompiledModel":
        """Binds a program to a module.

        Args:
            interface: of the program.
            executable: the program.
            model: the module whose tensors ``interface`` names.
            options: resolved options.
            modes: of the layers, which the program was made with.
        """
        program, spec = interface.program, interface.spec
        call = Call(executable, program, interface.outputs, options, spec, interface.arguments,
                    interface.plain_tensors)
        guard = ModuleGuard(model, program, spec.training, interface.attributes,
                            interface.argument_attributes,
                            CompiledModes(model, interface.modes, modes))
        return cls(executable, interface, program, interface.arguments, call, guard,
                   RandomState(executable, options.random_seed))

    def check(self) -> bool:
        """Checks that a call finds the module, and what the program depends on beside it, as they
        were compiled.

        Returns:
            What :meth:`ModuleGuard.check` gives.

        Raises:
            poptorch.Error: They are others.
        """
        self.interface.check()
        return self.guard.check()

"""The capture of one module, step by step."""

import contextlib
import warnings
from collections.abc import Callable

import torch
from torch.nn.utils.rnn import PackedSequence

from poptorch._annotations import annotations, block_uses
from poptorch._base import capture_context
from poptorch._base.layout import memory_of
from poptorch._base.logging import logger
from poptorch._base.pytree.structure import Constant, Structure
from poptorch._base.torch_private import fake_tensors
from poptorch._base.torch_private import tracing as private
from poptorch._base.value_snapshot import has_attributes
from poptorch._capture import (
    aliasing,
    call_arguments,
    capture_errors,
    context_managers,
    process_state,
    tracing,
)
from poptorch._capture.functional.functionalize import functionalize
from poptorch._capture.functions.mode import Functions
from poptorch._capture.graph.captured import Captured, InputSpec, OutputSpec
from poptorch._capture.graph.losses import Losses
from poptorch._capture.graph.module_paths import ModulePaths
from poptorch._capture.graph.multi_convs import MultiConvs
from poptorch._capture.graph.producers import Producers
from poptorch._capture.graph.regions import prune
from poptorch._capture.graph.source_location import Places
from poptorch._capture.graph.stream_overlap import Overlaps
from poptorch._capture.graph.unknown_sizes import UnknownSize
from poptorch._capture.library.layers import ops
from poptorch._capture.loops.bodies import Bodies
from poptorch._capture.module_state import ModuleState
from poptorch._capture.record.recorder import Recorder
from poptorch._capture.refused_results import refuse_hidden_tensors
from poptorch._guards.attribute_reads import Origin
from poptorch._guards.environment_variables import Environment
from poptorch.errors import Error, place_text


def capture(module: torch.nn.Module, args: tuple = (), kwargs: dict | None = None, *,
            training: bool, location_excludes: list[str] | None = None,
            module_paths: bool = True, grouped: frozenset[str] = frozenset(),
            mode_of: Callable[[torch.nn.Module], bool] | None = None,
            replicas: int = 1, accumulation: int = 1, is_substituted: bool = True,
            called: tuple[int, tuple[str, ...]] | None = None,
            takes_meta: bool = False, refusals=None) -> Captured:
    """Runs ``forward`` once without data and records it, with its backward pass for training.

    Args:
        module: the user's module; left as it was.
        args, kwargs: arguments of one call, with the shapes of one micro-batch.
        training: whether to record the gradients of the parameters that require grad.
        location_excludes: an operation's place is the innermost frame whose file contains none of
            these; None: the folder of torch.
        module_paths: whether operations have the path of the module that they are part of.
        grouped: paths of the parameters that ``forward`` sees without their first dimension.
        mode_of: whether a part of the module is captured in training mode; None: as it is now.
        replicas: that run the program.
        accumulation: the number of micro-batches whose gradients a replica adds up.
        is_substituted: whether the context managers of :mod:`context_managers` are entered.
        called: how the user called it, where ``args`` and ``kwargs`` have defaults too: how many
            arguments by position, and the names of the others; None: with just these.
        takes_meta: whether parameters and buffers may be on the meta device.
        refusals: a :class:`Refusals`, to note refused calls and go on; None: they raise.

    Raises a :class:`poptorch.Error` that names the place where ``forward`` does what cannot be
    compiled, and whatever ``forward`` itself raises, unchanged.
    """
    places = Places() if location_excludes is None else Places(location_excludes)
    called = called or (len(args), tuple(kwargs or ()))
    work = _Capture(module, args, kwargs or {}, training, places, module_paths, grouped, mode_of,
                    replicas, accumulation, is_substituted, called, takes_meta, refusals)
    try:
        return work.run()
    finally:
        vars(work).clear()  # its parts refer to it, and so would keep the module alive


class _Capture:
    """The state of one capture; ``called`` is as :func:`capture` takes it."""

    def __init__(self, module, args, kwargs, training: bool, places: Places, module_paths: bool,
                 grouped: frozenset[str], mode_of, replicas: int, accumulation: int,
                 is_substituted: bool, called: tuple, takes_meta: bool, refusals):
        self._mode_of = mode_of
        self.refusals = refusals
        self._module = module
        self._grouped = grouped
        self.training = training
        self._module_paths = module_paths
        self._called_with = [args, kwargs]
        self._arguments, self._named = call_arguments.named(module, args, kwargs)
        self._input_names = self._named.paths
        self.fake_mode = fake_tensors.new_fake_mode()
        self.recorder = Recorder(self.fake_mode, self.draw_salt, places)
        if refusals is not None:
            refusals.graph = self.recorder.graph
        self.losses = Losses(self.recorder)
        self.producers = Producers()
        self.multi_convs = MultiConvs(self.recorder)
        self.overlaps = Overlaps(self.recorder)
        self.bodies = Bodies(self.recorder)
        self._batch_count = None
        self._gradients: list = []
        self._loss = None
        self.host_sites: list = []
        self._environment = Environment()
        self.replicas, self._accumulation = replicas, accumulation
        self._is_substituted, self._called = is_substituted, called
        self._takes_meta = takes_meta

    def run(self) -> Captured:
        """Captures; whatever happens, the process is afterwards as it was."""
        if capture_context.is_capturing():
            raise Error("[capture] a model is compiled inside the forward of another that is "
                        "being compiled. Call the inner module itself instead of its executor.")
        others = context_managers.entered() if self._is_substituted else contextlib.nullcontext()
        with process_state.preserved(self.training), others, self._environment:
            self._state = ModuleState(self._module, self.fake_mode, self.recorder.places,
                                      self.training, self._grouped, self._mode_of,
                                      self._takes_meta)
            self._state.keep_outside(self._called_with)
            capture_errors.check_text((*self._input_names, *self._state.names.values(),
                                 *(state.name for state in self._state.states)))
            self._declare_inputs()
            try:
                capture_context.set_current(self)
                annotations.reset()
                block_uses.reset()
                result = self._trace()
                self._blocks = block_uses.uses()
            except Exception as error:
                refused = capture_errors.of_forward(error, self.recorder.places, self._state.names,
                                              self.recorder.failed)
                if refused is error:
                    raise
                raise refused from error
            finally:
                annotations.reset()
                block_uses.reset()
                capture_context.set_current(None)
            return self._assemble(result)

    @property
    def module_names(self) -> dict[int, str]:
        """The paths of the modules, by their identity."""
        return self._state.names

    def path_of(self, module: torch.nn.Module) -> str:
        """Dotted path of a part of the model; of the part that runs, if it is none."""
        return self._state.names.get(id(module), self.recorder.module)

    def checkpoint(self, tensor: torch.Tensor) -> None:
        """Marks a tensor that training keeps for the backward pass."""
        if self.training and not self.recorder.in_backward:
            with torch.no_grad():
                ops.checkpoint(tensor)

    def nop(self, tensor: torch.Tensor) -> torch.Tensor:
        """A view of a whole tensor that stays an operation in the program."""
        out = tensor.view(tensor.shape)
        self.recorder.node_of(out).meta["nop"] = True
        return out

    def users(self, function):
        """A module or a method of one, of the user's module where it is a clone's."""
        return self._state.users(function)

    def attributes_of_users(self):
        """While it is entered, the user's modules have the attributes of their own."""
        return self._state.attributes_of_users()

    def is_trained(self, tensor: torch.Tensor) -> str | None:
        """The name of a parameter of the user's that the program trains; None for another tensor.
        """
        if not self.training:
            return None
        return next((state.name for state in self._state.states
                     if state.trained and state.tensor is tensor), None)

    def draw_salt(self, generator: torch.Generator | None = None) -> int:
        """A number for a random operation, from a real generator; from torch's own by default.

        torch.utils.checkpoint puts the generator back before it recomputes: the recomputed
        operation draws the same number, and so computes the same values.
        """
        with private.without_modes():
            return int(torch.randint(0, 2**31 - 1, (), generator=generator))

    def random_state(self) -> None:
        """The state that random operations are given: they read that of the program."""
        return None

    def note_batch_count(self, count):
        """``float(count)`` where batch norm takes the average over all batches so far. The number
        changes from step to step: the running statistics are computed from the tensor instead."""
        module = self._paths.running
        if not isinstance(module, private.BatchNorm) or module.momentum is not None:
            return NotImplemented
        if module.num_batches_tracked is not count:
            return NotImplemented
        self._batch_count = count
        return 1.0

    def statistics_replicas(self) -> int:
        """The number of replicas that share the statistics of the batch norm that runs.

        An Error if the layer has a process group.
        """
        module = self._paths.running
        if not isinstance(module, torch.nn.SyncBatchNorm) or not module.training \
                or self.replicas == 1:
            return 1
        if module.process_group is not None:
            raise self.recorder.error(
                f"[SyncBatchNorm] expected process_group=None, got a "
                f"{type(module.process_group).__name__}: the {self.replicas} replicas of a program "
                f"do not belong to a process group. Create the layer without process_group; it "
                f"then uses the statistics of all replicas.")
        return self.replicas

    def take_batch_count(self):
        """The count noted just before this call of batch norm, or None."""
        count, self._batch_count = self._batch_count, None
        return count

    def _declare_inputs(self) -> None:
        tensors, self._in_spec = Structure.of(self._arguments)
        self._fake_inputs, self._input_nodes = [], []
        for name, tensor in zip(self._input_names, tensors):
            if tensor.device.type != "cpu":
                raise Error(f"[capture] {name}: expected a tensor on the CPU but got one on "
                            f"{tensor.device}. Pass {name}.cpu().")
            fake = fake_tensors.fake_like(self.fake_mode, tensor)
            self._fake_inputs.append(fake)
            self._input_nodes.append(self.recorder.placeholder(fake, name))
            self.recorder.shapes.watch(fake, name)
        self.overlaps.declare_inputs(self._input_nodes, self._input_names)
        self._state_nodes = []
        for state in self._state.states:
            node = self.recorder.placeholder(state.fake, state.name)
            self.recorder.stand_for(state.tensor, node, state.name)
            self._state_nodes.append(node)
            if not state.trained and state.name not in self._grouped:
                node.meta["path"] = f"self.{state.name}"
                self.recorder.values.states[node] = state.tensor
        self._state.let_last(self.recorder, self._state_nodes)

    # -- tracing -------------------------------------------------------------------------------

    def _trace(self):
        args, kwargs = self._in_spec.unflatten(self._fake_inputs)
        names = self._state.names if self._module_paths else {}
        self._paths = ModulePaths(names, self.recorder)
        self.functions = Functions(self)
        with self._state, self._paths, self.fake_mode, self.recorder, self.functions, \
                private.without_compiling(capture_context.is_capturing), \
                private.without_reentrant_checkpoints(capture_context.is_capturing):
            found = self._named.paired(call_arguments.bound(self._module, args, kwargs))
            self._containers = self._watch_arguments(found)
            containers = call_arguments.Containers(found)
            args, kwargs = call_arguments.as_called(self._module, args, kwargs, *self._called)
            result = tracing.run_forward(self._state.module, args, kwargs)
            containers.warn_of_changes()
            if self.recorder.values.unread is not None:  # forward goes on without the value
                raise self.recorder.values.unread
            self._state.check_kept()
            leaves, structure = Structure.of(result)
            for leaf in leaves:
                if isinstance(leaf, UnknownSize):
                    raise capture_errors.of_result(leaf)
            self._overlaps = self.overlaps.finish(leaves, structure.paths)
            ends = {node: self.recorder.shapes.end_of(state.fake, state.trained)
                    for state, node in zip(self._state.states, self._state_nodes)}
            self._reshaped = [*map(self.recorder.shapes.changes_of, self._fake_inputs)]
            self._checked = self.recorder.checks.tie(leaves)
            self._looking_otherwise = {node: end for node, end in ends.items() if end is not None}
            if self.training:
                self._differentiate(leaves, structure)
        return result

    def _watch_arguments(self, found: list[tuple]) -> list:
        """Begins to record what ``forward`` reads of its arguments; the containers among them."""
        for path, part, value in found:
            if isinstance(value, PackedSequence):
                self.recorder.values.packed[memory_of(value.batch_sizes)] = path
            if isinstance(part, Constant):
                self._state.reads.meet(value, path, Origin.ARGUMENT)
            else:
                self._state.reads.enter(value, path, Origin.ARGUMENT)
        by_node = {id(part): value for _, part, value in found}
        return [by_node.get(id(node)) for node in self._named.nodes()]

    def _read_of_arguments(self) -> tuple[list, dict[int, set[str]]]:
        """What was read of objects in arguments; and of containers, by number."""
        numbers = {id(value): number for number, value in enumerate(self._containers)}
        beside = {number: set() if has_attributes(value) else {"__dict__"}
                  for number, value in enumerate(self._containers)}
        of_objects = []
        for held in self._state.attributes_read(Origin.ARGUMENT):
            if id(held.holder) in numbers:
                beside[numbers[id(held.holder)]].add(held.name)
            else:
                of_objects.append(held)
        return of_objects, beside

    def _differentiate(self, results: list[torch.Tensor], structure: Structure) -> None:
        try:
            self._loss = self.losses.final(results, structure.paths)
        except Error as error:
            if self.refusals is None:
                raise
            self.refusals.note(error, self.recorder, "loss")
            return
        trained = [state for state in self._state.states if state.trained]
        self._state.check_trained()
        self._state.check_hooks(self._accumulation, self.replicas)
        if not trained:
            logger.warning("[trainingModel] no parameter of the module requires grad: calls run "
                           "forward and its loss, and update nothing.")
            return
        names = {node.name() for node in private.autograd_nodes(self._loss.grad_fn)}
        if "CheckpointFunctionBackward" in names:
            raise Error("[capture] torch.utils.checkpoint.CheckpointFunction was called by itself, "
                        "which gives no gradients here. Call torch.utils.checkpoint.checkpoint.")
        if not self._loss.requires_grad:
            logger.warning("[loss] the loss does not depend on any parameter that requires grad: "
                           "calls run forward and update nothing. To train, compute the loss from "
                           "the model's output, without detach() or no_grad().")
            return
        aliasing.check_history(self.recorder, self._loss, self._state.name_of_plain)
        self.recorder.in_backward = True
        # Where forward holds on to a real parameter, autograd has it and not its stand-in.
        met = [state for state in trained if id(state.tensor) in self.recorder.met_real]
        owners = [*trained, *met]
        leaves = [*(state.fake for state in trained), *(state.tensor for state in met)]
        gradients: dict[str, torch.Tensor] = {}
        with contextlib.nullcontext() if self.refusals is None \
                else self.refusals.backward(self._loss, self.recorder):
            found, seed = tracing.run_backward(self._loss, leaves)
        self.recorder.node_of(seed).meta["seed"] = True
        for state, gradient in zip(owners, found):
            if gradient is not None:
                first = gradients.get(state.name)
                if first is not None and state.tensor._backward_hooks:
                    raise Error(f"[capture] {state.name} has a hook on its gradient (register_hook)"
                                f", and forward uses the parameter in two ways: from the module, "
                                f"and from a closure or a list in a torch.autograd.Function. The "
                                f"hook would run on two parts of the gradient. Read it from the "
                                f"module, as self.{state.name}, in both places.")
                gradients[state.name] = gradient if first is None else first + gradient
        self._gradients = list(gradients.items())

    # -- result --------------------------------------------------------------------------------

    def _assemble(self, result) -> Captured:
        leaves, out_spec = Structure.of(result)
        refuse_hidden_tensors(out_spec)
        outputs = self._outputs(leaves, out_spec)
        real = [spec for spec, leaf in zip(outputs, leaves)
                if not fake_tensors.is_fake(leaf)]
        real_nodes = [spec.node for spec in real]
        self.recorder.finish_inputs()
        layouts = self.recorder.layouts.of(
            self.recorder.graph, [node.meta["val"] for node in self._input_nodes])
        wanted = [spec.node for spec in outputs] + list(self._looking_otherwise.values())
        finals, changed = functionalize(self.recorder.graph, wanted, self.fake_mode)
        changed |= zip(self._looking_otherwise, finals[len(outputs):])
        self.recorder.values.check_states(changed)
        for spec, node in zip(real, real_nodes):
            if node not in changed:
                warnings.warn(f"[capture] Output expected to be on the IPU but is on cpu: result "
                              f"{spec.name} was not computed from the inputs and is compiled in "
                              f"as a constant.", stacklevel=2)
        for spec, node in zip(outputs, finals):
            spec.node = node
        self._add_updates(outputs, changed)
        graph = self.recorder.graph
        graph.output(tuple(spec.node for spec in outputs))
        prune(graph)
        inputs = self._inputs(layouts)
        aliasing.check_memory(self.recorder, inputs, outputs, self._state.name_of_plain)
        return Captured(graph, inputs, outputs, out_spec, self._in_spec, self.training,
                        self._blocks, self._state.attributes_read(), *self._read_of_arguments(),
                        self._overlaps, self.host_sites, self._plain_tensors(changed),
                        self._state.modes_read(),
                        [*self._state.guards_outside(), *self._environment.guards()])

    def _outputs(self, leaves: list, out_spec: Structure) -> list[OutputSpec]:
        outputs = []
        for number, (name, leaf) in enumerate(zip(out_spec.paths, leaves)):
            node = self._checked.get(number) or self.recorder.node_of(leaf)
            outputs.append(OutputSpec("output", name or "0", node))
        if self._loss is not None:
            outputs.append(OutputSpec("loss", "loss", self.recorder.node_of(self._loss)))
        for name, gradient in self._gradients:
            outputs.append(OutputSpec("grad", name, self.recorder.node_of(gradient)))
        return outputs

    def _add_updates(self, outputs: list[OutputSpec], changed: dict) -> None:
        for index, (name, node) in enumerate(zip(self._input_names, self._input_nodes)):
            if node in changed:
                outputs.append(OutputSpec("input_update", name, changed[node], index))
        for state, node in zip(self._state.states, self._state_nodes):
            if node in changed:
                outputs.append(OutputSpec("buffer_update", state.name, changed[node]))
        for index, (node, tensor) in enumerate(self.recorder.constants.items()):
            if node in changed and "fresh" not in node.meta:
                outputs.append(OutputSpec("constant_update", f"constant.{index}", changed[node],
                                          tensor=tensor))
                meta = changed[node].meta
                self._state.warn_of_change(tensor, place_text(meta["place"], meta["module"]))

    def _inputs(self, layouts: list) -> list[InputSpec]:
        """What the placeholders mean; those of constants that are not used are removed."""
        inputs = [InputSpec("input", name, layout=layout, reshaped=reshaped)
                  for name, layout, reshaped in zip(self._input_names, layouts, self._reshaped)]
        inputs += [InputSpec(state.kind, state.name, state.tensor, state.trained,
                             state.persistent, state.aliases) for state in self._state.states]
        for index, node in enumerate(self.recorder.constants):
            if node.users:
                inputs.append(InputSpec("constant", f"constant.{index}",
                                        self.recorder.constant(node), persistent=False))
            else:
                self.recorder.graph.erase_node(node)
        return inputs

    def _plain_tensors(self, changed: dict) -> list[tuple[torch.Tensor, str | None]]:
        """The user's tensors that decide what is compiled, with their paths in the module."""
        kept, read = set(self.recorder.graph.nodes), self.recorder.values.tensors
        found = {id(tensor): tensor for node, tensor in self.recorder.constants.items()
                 if node in kept and "fresh" not in node.meta} | read
        own = {id(self.recorder.constants.get(node)) for node in changed}
        states = {id(state.tensor): state.name for state in self._state.states}
        names = {key: states.get(key) or self._state.name_of_plain(tensor)
                 for key, tensor in found.items() if key not in own}
        return [(found[key], name and f"self.{name}") for key, name in names.items()]

"""Runs a random program: in PyTorch eager, step by step, and through poptorch.

A *run* is a flat dictionary of tensors by readable names: the results of each call, the inputs
afterwards, the gradients of the last update, and parameters and buffers at the end.
"""

import contextlib
import os
from unittest import mock

import torch

import poptorch
from poptorch import _C
from poptorch._base.layout import extent
from tests.fuzz.programs.program import NATURAL, WIDE, Net, Program, Setting, entered

_NEXT_CALL = 7919  # distance of the seeds of two calls


def inputs_of(program: Program, world: dict, call: int) -> list[torch.Tensor]:
    """Fresh inputs of one call, with all its micro-batches."""
    slices = program.setting.micro_batches
    return [source.tensor(world, program.seed + call * _NEXT_CALL, slices)
            for source in program.of_kind("x")]


def _trained(net: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    return {name: p for name, p in net.named_parameters() if p.requires_grad}


def _joined(pieces: list[torch.Tensor]) -> torch.Tensor:
    if len(pieces) == 1:
        return pieces[0]
    return torch.cat([p.unsqueeze(0) if p.dim() == 0 else p for p in pieces])


def _memory_of(x: torch.Tensor) -> torch.Tensor:
    """The memory that a tensor lies in, from its first element to its last."""
    return x.as_strided((extent(x),), (1,))


def _alone(part: torch.Tensor, start: int) -> torch.Tensor:
    """A micro-batch as a tensor that does not see the memory of the others, and begins where the
    whole argument does."""
    memory = _memory_of(part)
    own = part.new_zeros(start + memory.numel())
    own[start:] = memory
    return own.as_strided(part.shape, part.stride(), start)


def _state(net: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {f"state {name}": tensor.detach().clone()
            for name, tensor in (*net.named_parameters(), *net.named_buffers())}


def eager(program: Program, world: dict) -> dict[str, torch.Tensor]:
    """The run in PyTorch; numbers below 2^-126 count as 0 where they do on the device."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal("flush_denormals" not in program.setting.off)
    try:
        with entered(world):
            return _Eager(program, world).run()
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)


class _Eager:
    def __init__(self, program: Program, world: dict):
        self.program, self.world = program, world
        self.net = Net(program, world)
        self.setting = program.setting
        self.optimizer = optimizer_of(program, self.net)
        self.found: dict[str, torch.Tensor] = {}

    def run(self) -> dict[str, torch.Tensor]:
        for call in range(self.setting.calls):
            inputs = inputs_of(self.program, self.world, call)
            steps = [self._iteration(inputs, number) for number in range(self.setting.iterations)]
            rows = [row for step in steps for row in step]
            for i, column in enumerate(zip(*rows)):
                self.found[f"call {call} result {i}"] = _joined(list(column))
            for i, tensor in enumerate(inputs):
                self.found[f"call {call} input {i}"] = tensor
        return {**self.found, **_state(self.net)}

    def _iteration(self, inputs, number: int) -> list:
        setting, rows = self.setting, []
        parts = setting.accumulation * setting.replicas
        trained = _trained(self.net)
        for p in trained.values():
            p.grad = None
        for part in range(parts):
            rows.append(self._micro_step(inputs, number * parts + part))
        if self.program.loss:
            self._update(trained, parts)
        return rows

    def _micro_step(self, inputs, number: int) -> list:
        count = self.setting.micro_batches
        parts = inputs if count == 1 else [
            tensor.narrow(0, number * (n := tensor.shape[0] // count), n) for tensor in inputs]
        alone = [_alone(part, tensor.storage_offset()) for part, tensor in zip(parts, inputs)]
        with torch.set_grad_enabled(bool(self.program.loss)):
            given = [own.detach() for own in alone]
            results = self.net(*given)
        if self.program.loss:
            results[-1].backward()
            for p in self.net.parameters():  # autograd gives two of them views of one tensor
                p.grad = None if p.grad is None else p.grad.clone()
        for own, part in zip(alone, parts):
            _memory_of(part).copy_(_memory_of(own))
        for own, seen, part in zip(alone, given, parts):
            if seen.shape != own.shape and count == 1:  # forward has changed its shape
                part.as_strided_(seen.shape, seen.stride())
        for name, buffer in self.net._buffers.items():
            if buffer.requires_grad:  # the next micro-batch has its value, not its graph
                self.net._buffers[name] = buffer.detach()
        return [result.detach().clone() for result in results]

    def _update(self, trained: dict, parts: int) -> None:
        for name, p in trained.items():
            if p.grad is not None:
                p.grad = p.grad / parts
                self.found[f"gradient {name}"] = p.grad.clone()
        self.optimizer.step()


def optimizer_of(program: Program, net: torch.nn.Module) -> torch.optim.Optimizer | None:
    """The optimizer that the setting asks for; None in inference."""
    if not program.loss:
        return None
    return eval(program.setting.optimizer, {"optim": torch.optim, "params": net.parameters()})


def options_of(setting: Setting, training: bool) -> poptorch.Options:
    """The options that a setting asks for."""
    options = poptorch.Options().showCompilationProgressBar(False)
    options.deviceIterations(setting.iterations).replicationFactor(setting.replicas)
    options.outputMode(poptorch.OutputMode.All)
    if training:
        options.Training.gradientAccumulation(setting.accumulation)
    return options


@contextlib.contextmanager
def applied(setting: Setting):
    """The process-wide part of a setting; afterwards all is as it was."""
    variables = {"POPTORCH_OFF": ",".join(setting.off), "POPTORCH_POISON": str(+setting.poison),
                 "POPTORCH_RELOAD_IR": str(+setting.reload_ir),
                 "POPTORCH_ALGORITHM": ",".join(setting.algorithms)}
    isa, threads = _C.isa(), torch.get_num_threads()
    with mock.patch.dict(os.environ, variables), contextlib.ExitStack() as stack:
        if setting.wide:
            stack.enter_context(poptorch.testing.wide())
        if setting.isa in _C.machine_isas():
            _C.set_isa(setting.isa)
        torch.set_num_threads(setting.threads)
        try:
            yield
        finally:
            _C.set_isa(isa)
            torch.set_num_threads(threads)


def through_poptorch(program: Program) -> dict[str, torch.Tensor]:
    """The run through poptorch."""
    setting, training = program.setting, bool(program.loss)
    world = WIDE if setting.wide else NATURAL
    with entered(world), applied(setting):
        net = Net(program, world)
        options = options_of(setting, training)
        if training:
            model = poptorch.trainingModel(net, options, optimizer_of(program, net))
        else:
            model = poptorch.inferenceModel(net, options)
        try:
            with poptorch.testing.keep_gradients():
                return _called(program, model, net, world)
        finally:
            model.destroy()


def _called(program: Program, model, net, world: dict) -> dict[str, torch.Tensor]:
    found = {}
    for call in range(program.setting.calls):
        inputs = inputs_of(program, world, call)
        results = model(*inputs)
        for i, result in enumerate(results):
            found[f"call {call} result {i}"] = result.detach().clone()
        for i, tensor in enumerate(inputs):
            found[f"call {call} input {i}"] = tensor
    if program.loss and _trained(net):
        for name, gradient in poptorch.testing.gradients(model).items():
            found[f"gradient {name}"] = gradient.detach().clone()
    model.copyWeightsToHost()
    return {**found, **_state(net)}

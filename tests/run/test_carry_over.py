"""One program of an executor continues where another one stopped; both stay compiled."""

import copy

import pytest
import torch

import poptorch
from poptorch._optimizer.link import OptimizerLink
from poptorch._runtime.device_memory import carry_over
from tests.helpers import quiet_options

SHAPES = ((4, 3), (2, 3))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, x):
        return poptorch.identity_loss(self.layer(x).square(), "mean")


class Drops(torch.nn.Module):
    """Draws random numbers for its first shape only, and counts in each replica."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.total += x.sum()
        noise = torch.rand(3) if len(x) == SHAPES[0][0] else torch.zeros(3)
        return self.total + 0, noise


def compiled(executors):
    """The programs of several executors, which stand for those of one."""
    for executor, shape in zip(executors, SHAPES):
        executor.compile(torch.zeros(shape[0] * executor.options.replication_factor, shape[1]))
    return [executor._compiled_model("test") for executor in executors]


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_states_of_the_optimizer(kind):
    def make(net):
        return torch.optim.SGD(net.parameters(), 0.1, momentum=0.5) if kind == "momentum" \
            else torch.optim.Adam(net.parameters(), 0.1)

    net = Net()
    eager = copy.deepcopy(net)
    optimizer, reference = make(net), make(eager)
    other = Net()
    other.layer = net.layer
    executors = [poptorch.trainingModel(one, quiet_options(), optimizer) for one in (net, other)]
    programs = compiled(executors)
    link = OptimizerLink(net, optimizer)
    for program in programs:
        link.compiled(program.program, program.executable, can_run=True)
    assert link.recompile_reason(programs[0].program) is None
    last = programs[1]
    for index in (0, 0, 1, 0, 1, 1):
        executor, program = executors[index], programs[index]
        x = torch.rand(SHAPES[index])
        executor._weights.before_run(program, True)
        if program is not last:
            carry_over(last, program, link)
        link.before_run(program.call)
        executor._weights.note_run(program)
        loss = program.call.run([x])
        executor._weights.note_run(program, is_end=True)
        link.after_run()
        reference.zero_grad()
        expected = eager(x)
        expected.backward()
        reference.step()
        torch.testing.assert_close(loss, expected.detach())
        last = program
    link.forget(programs[0].program)
    link.select(programs[1].program)
    for state, expected in zip(optimizer.state.values(), reference.state.values()):
        torch.testing.assert_close(state, expected)
    link.forget()


def test_random_state_and_buffers_of_each_replica():
    net = Drops()
    opts = quiet_options(replicationFactor=2, broadcastBuffers=False, randomSeed=3)
    executors = [poptorch.inferenceModel(net, opts.clone()) for _ in SHAPES]
    alone = poptorch.inferenceModel(copy.deepcopy(net), opts.clone())
    programs = compiled(executors)
    inputs = [torch.arange(2.0 * rows * size).reshape(2 * rows, size) for rows, size in SHAPES]
    draws, last = [], None
    total = torch.zeros(2)
    for index in (0, 1, 1, 0):
        executor, program = executors[index], programs[index]
        if last not in (None, program):
            executor._weights.before_run(program, True)
            carry_over(last, program, None)
        found, noise = executor(inputs[index])
        total += inputs[index].reshape(2, -1).sum(1)
        torch.testing.assert_close(found, total)
        draws += [noise] if index == 0 else []
        last = program
    for noise in draws:  # the program that draws nothing keeps the counters
        assert torch.equal(noise, alone(inputs[0])[1])

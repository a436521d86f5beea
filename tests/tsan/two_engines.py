"""Two threads with executors of their own that compile, run and end at the same time.

Then both call one executor, with a timeout. Run by ``python -m tests.tsan``. Each thread must get
what it gets alone, bit for bit, in each form of the host: in turn, with workers for micro-batches,
for replicas and for stages of a pipeline, and with the tasks of the pipeline on one thread.
"""

import os
import sys
import threading

import torch
from torch import nn

import poptorch
from poptorch import _C

FORMS = ("inline", "micro", "replicas", "stages", "literal")
ROUNDS = 1  # of compiling, running and ending, in each form
RUNS = 20  # of a program in a round, and compilations of TEXT
KERNEL_THREADS = 2  # of each program
WAIT_S = 1200


# Compiled by both threads at the same time; capture is one at a time in a process.
TEXT = """
graph main {
  %s = state {path="s"} : f32[64,64]
  %l = loop %s {body=@steps, count=3} : f32[64,64]
  assign %l {path="s"}
  output
}

graph steps {
  %a = input {index=0} : f32[64,64]
  %x = stream_in {stream="x"} : f32[64,64]
  %p = matmul %a, %x : f32[64,64]
  %r = relu %p : f32[64,64]
  %q = aten %r {args=["%0"], overload="aten::erfinv"} : f32[64,64]
  %t = add %q, %r : f32[64,64]
  stream_out %t {stream="y"}
  output %t
}
"""


class Trained(nn.Module):
    """Convolutions, norms and dropout, with a loss; two stages of a pipeline."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Dropout(0.25), nn.Flatten())
        self.last = nn.Sequential(
            nn.Linear(16 * 16 * 16, 32), nn.GELU(), nn.Dropout(0.25), nn.Linear(32, 10))
        self.loss = nn.CrossEntropyLoss()

    def forward(self, x, target):
        with poptorch.Block("first", ipu_id=0):
            y = self.first(x)
        with poptorch.Block("last", ipu_id=1):
            y = self.last(y)
            return y, self.loss(y, target)


class Inferred(nn.Module):
    """Embeddings, a recurrent layer, attention, and ops that have no row; two stages."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(100, 64)
        self.recurrent = nn.LSTM(64, 64, batch_first=True)
        self.attention = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True)

    def forward(self, x):
        with poptorch.Block("first", ipu_id=0):
            y, _ = self.recurrent(self.words(x))
        with poptorch.Block("last", ipu_id=1):
            y = torch.special.erfinv(torch.tanh(self.attention(y)) * 0.5)
            values, _ = torch.sort(y, dim=-1)
            return values.softmax(-1), torch.cumsum(y, 1).half()


def options(training):
    """Of a program that loops."""
    made = poptorch.Options()
    made.showCompilationProgressBar(False)
    made.deviceIterations(2)
    made.setExecutionStrategy(poptorch.PipelinedExecution("first", "last"))
    made.replicationFactor(2)
    made.broadcastBuffers(False)
    made.randomSeed(3)
    if training:
        made.Training.gradientAccumulation(4)
    return made


def check_form(executor):
    """The program runs in the form that is looked at."""
    taken = executor._executable.host_form()
    assert taken["form"] == os.environ["POPTORCH_HOST"], taken


def train(wait, module, images, targets):
    """Results of a training executor, and the weights after it."""
    executor = poptorch.trainingModel(
        module, options(True), poptorch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9))
    executor.compile(images, targets)
    check_form(executor)
    wait()
    results = [executor(images, targets)[1].clone() for _ in range(RUNS)]
    executor.copyWeightsToHost()
    executor.destroy()
    wait()
    compile_texts()
    return [*results, *(p.detach().clone() for p in module.parameters())]


def infer(wait, module, words):
    """Results of an inference executor."""
    executor = poptorch.inferenceModel(module, options(False))
    executor.compile(words)
    check_form(executor)
    wait()
    results = [part.clone() for _ in range(RUNS) for part in executor(words)]
    executor.destroy()
    wait()
    compile_texts()
    return results


def compile_texts():
    """Compiles, and nothing else."""
    for _ in range(RUNS):
        _C.compile(_C.parse(TEXT), {"threads": KERNEL_THREADS})


def lives():
    """What the threads do, each with its own module and data, made in the same way."""
    torch.manual_seed(1)
    return [(train, Trained().train(), torch.randn(64, 3, 32, 32), torch.randint(10, (64,))),
            (infer, Inferred().eval(), torch.randint(100, (32, 12)))]


def results_of(chosen):
    """What each of these lives gives, in threads of their own at once."""
    found, barrier = {}, threading.Barrier(len(chosen))

    def live(number, life, module, *data):
        torch.set_num_threads(KERNEL_THREADS)
        barrier.wait(WAIT_S)
        found[number] = life(lambda: barrier.wait(WAIT_S), module, *data)

    threads = [threading.Thread(target=live, args=(number, *life))
               for number, life in chosen.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def calls_of_one_executor():
    """Whether two threads that call one executor get what one gets."""
    module = Inferred().eval()
    inputs = [torch.randint(100, (32, 12)) for _ in range(2)]
    executor = poptorch.inferenceModel(module, options(False).timeout(WAIT_S))
    expected = [executor(words) for words in inputs]
    right = [True, True]

    def call(number):
        torch.set_num_threads(KERNEL_THREADS)
        for _ in range(RUNS):
            found = executor(inputs[number])
            right[number] &= all(map(torch.equal, expected[number], found))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    executor.destroy()
    return all(right)


def main():
    """Exit status 1: a thread did not get what it gets alone."""
    alone = {}
    os.environ["POPTORCH_HOST"] = FORMS[0]
    for number in range(len(lives())):
        alone |= results_of({number: lives()[number]})
    for form in FORMS * ROUNDS:
        os.environ["POPTORCH_HOST"] = form
        together = results_of(dict(enumerate(lives())))
        if together.keys() != alone.keys():
            return 1
        for number, expected in alone.items():
            if not all(map(torch.equal, expected, together[number])):
                print(f"[tsan] thread {number} got other results than it gets alone ({form})")
                return 1
        if not calls_of_one_executor():
            print(f"[tsan] calls of one executor got other results than alone ({form})")
            return 1
    print("[tsan] the threads got what they get alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())

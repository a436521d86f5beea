"""A process that is forked while another thread compiles."""

from tests.helpers import run_python

SCRIPT = """
import os, signal, threading, torch, poptorch
begun, goes_on = threading.Event(), threading.Event()

class Slow(torch.nn.Module):
    def forward(self, x):
        begun.set()
        goes_on.wait(60)
        return x + 1

def run(net):
    opts = poptorch.Options().showCompilationProgressBar(False)
    return poptorch.inferenceModel(net, opts)(torch.ones(1)).item()

results = []
thread = threading.Thread(target=lambda: results.append(run(Slow())))
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    signal.alarm(30)  # which ends one that waits for ever
    os._exit(7 if run(torch.nn.ReLU()) == 1 else 1)
status = os.waitpid(child, 0)[1]
goes_on.set()
thread.join()
assert os.waitstatus_to_exitcode(status) == 7, status
assert results == [2]
"""


def test_a_fork_while_another_thread_compiles():
    run_python(SCRIPT)

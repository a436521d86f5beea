"""Processes and threads around a run: hash seeds, forked workers, thread counts."""

import json

import pytest

from tests.helpers import run_python

DETERMINISM = """
import hashlib, json, sys
import torch
from tests.networks import harness
from tests.networks.zoo import build
import poptorch

def found(name):
    network = build(name, 3)
    options = harness.options_for(network)
    parameters = list(network.module.parameters())
    model = poptorch.trainingModel(network.module, options, network.make_optimizer(parameters))
    digest = hashlib.sha256()
    for inputs in network.batches(3, 3):
        out, loss = model(*inputs)
        digest.update(loss.numpy().tobytes())
    model.copyWeightsToHost()
    for name, tensor in harness.state_of(network.module).items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    steps = ["translate", "rewrite", "place", "lower", "schedule", "plan"]
    texts = {step: hashlib.sha256(model.ir(step).encode()).hexdigest() for step in steps}
    return [digest.hexdigest(), texts]

print(json.dumps({name: found(name)
                  for name in ("digits_convnet", "bert_encoder", "buffers_in_place")}))
"""


@pytest.mark.sampled
def test_hash_seeds_change_nothing(seed):
    first, *others = (json.loads(run_python(DETERMINISM, PYTHONHASHSEED=one).splitlines()[-1])
                      for one in ("0", "1", str(seed)))
    assert others == [first, first]


FORK = """
import torch
import poptorch

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        x = torch.full((256, 256), float(index % 7))
        return (x @ x).mean().reshape(1), torch.tensor([float(index)])

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(1, 512), torch.nn.Linear(512, 1))
    def forward(self, x, y):
        out = self.layers(x)
        return out, torch.nn.functional.mse_loss(out, y)

torch.manual_seed(0)
options = poptorch.Options().showCompilationProgressBar(False)
optimizer = torch.optim.SGD
net = Net()
model = poptorch.trainingModel(net, options, optimizer(net.parameters(), lr=1e-9))
model(torch.zeros(16, 1), torch.zeros(16, 1))
for epoch in range(2):
    loader = poptorch.DataLoader(options, Data(), batch_size=16, num_workers=2,
                                 multiprocessing_context="fork")
    for x, y in loader:
        out, loss = model(x, y)
        assert torch.isfinite(loss)
print("done")
"""


@pytest.mark.sampled
def test_forked_workers_after_a_run():
    assert run_python(FORK, timeout_s=120).endswith("done\n")


THREADS = """
import glob
import torch
import poptorch

def run_times_ns():
    times = {}
    for path in glob.glob("/proc/self/task/*/schedstat"):
        times[path.split("/")[4]] = int(open(path).read().split()[0])
    return times

def busy_threads(model, x):
    before = run_times_ns()
    for _ in range(20):
        model(x)
    after = run_times_ns()
    spent = [after[t] - before.get(t, 0) for t in after]
    return sum(1 for ns in spent if ns > max(spent) * 0.1)

torch.set_num_threads(COUNT)
net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)])
model = poptorch.inferenceModel(net, poptorch.Options().showCompilationProgressBar(False))
x = torch.randn(512, 512)
model(x)
print(busy_threads(model, x))
"""


@pytest.mark.sampled
@pytest.mark.parametrize("count", [1, 2])
def test_number_of_threads_is_respected(count):
    code = THREADS.replace("COUNT", str(count))
    assert int(run_python(code)) == count

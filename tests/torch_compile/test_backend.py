"""The backend of torch.compile by its name, as an installed package registers it."""

import tomllib

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

from poptorch._torch_compile.backend import backend
from tests.helpers import ROOT, quiet_options, run_python
from tests.torch_compile.common import Net, batch, check_steps

BY_NAME = """
import torch, poptorch
net = torch.nn.Linear(3, 2)
options = poptorch.Options().showCompilationProgressBar(False)
programs = []
poptorch.registerPostCompileHook(lambda: programs.append(1))
model = torch.compile(net, backend="poptorch", options=options)
model(torch.ones(4, 3)).sum().backward()
print(len(programs), net.weight.grad.tolist())
"""


@pytest.mark.sampled
def test_by_name(tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    folder = tmp_path / "poptorch-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: poptorch\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("\n".join(lines))
    out = run_python(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{BY_NAME}")
    assert out.strip() == "2 [[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]"


def test_a_training_step_of_one_graph():
    net = Net()
    model = torch.compile(net, backend=backend, options=quiet_options(), fullgraph=True)
    check_steps(net, model, [batch(rows) for rows in (4, 4, 2)],
                lambda p: torch.optim.SGD(p, lr=0.01))


def test_options_as_a_dict():
    net = nn.Linear(2, 2)
    folder = {"show_compilation_progress_bar": False, "log_cycle_count": True}
    model = torch.compile(net, backend=backend, options=folder)
    torch.testing.assert_close(model(torch.ones(1, 2)), net(torch.ones(1, 2)))


@pytest.mark.parametrize(("arguments", "message"), [
    ({"options": {"trace": True}}, r"ValueError: .*unknown option 'trace'"),
    ({"options": {"randomSeed": 1}}, "unknown option 'randomSeed'. Did you mean random_seed?"),
    ({"options": {"device_iterations": 2}}, r"expected deviceIterations\(1\)"),
    ({"options": {"random_seed": 3}},
     r"randomSeed\(3\) is not supported: .* call torch.manual_seed\(3\)"),
    ({"options": [1]}, "options must be a poptorch.Options, got list"),
    ({"mode": "max-autotune"}, "mode='max-autotune' is not supported: .* Leave mode out"),
])
def test_other_arguments(arguments, message):
    model = torch.compile(nn.Linear(2, 2), backend=backend, **arguments)
    with pytest.raises(BackendCompilerFailed, match=message):
        model(torch.ones(1, 2))


def test_recurrent_layers_by_the_switch_of_torch():
    net, x = nn.LSTM(4, 4), torch.randn(3, 2, 4)
    model = torch.compile(net, backend=backend, options=quiet_options(), fullgraph=True)
    with torch._dynamo.config.patch(allow_rnn=True):
        torch.testing.assert_close(model(x), net(x))

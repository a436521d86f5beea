"""One more execution strategy: a class with a kind is all that options, files and messages need."""

import pytest
import torch
from torch import nn

import poptorch
from poptorch._annotations.stages import BlockPlace, Partition, Stage
from poptorch._annotations.strategy_rows import KINDS
from poptorch._base.checks import at_least
from poptorch.strategies import _Strategy, first_uses
from tests.helpers import check_equal_bits, quiet_options


class AlternatingExecution(_Strategy):
    """The blocks take turns on a number of IPUs."""

    _kind = "alternating"

    def __init__(self, ipus: int):
        self._ipus = at_least(1, ipus, "AlternatingExecution")

    def __repr__(self) -> str:
        return f"AlternatingExecution({self._ipus})"

    def _all_stages(self) -> list[Stage]:
        return []

    def _plain(self) -> dict:
        return {"kind": self._kind, "ipus": self._ipus}

    @classmethod
    def _from_plain(cls, values: dict) -> "AlternatingExecution":
        return cls(values["ipus"])

    def _least_steps(self, stages: int, training: bool) -> int:
        return self._ipus

    def _partition(self, uses, starts_outside: bool) -> Partition:
        places = [BlockPlace(use.user_id, number % self._ipus, number)
                  for number, use in enumerate(first_uses(uses))]
        # A kind of its own needs a row in csrc/place/strategies.def.
        return Partition("sharded", tuple(places), starts_outside=starts_outside)


REGISTERED = KINDS.pop("alternating")  # other tests do without it


@pytest.fixture(autouse=True)
def one_more(monkeypatch):
    monkeypatch.setitem(KINDS, "alternating", REGISTERED)
    monkeypatch.setattr(poptorch, "AlternatingExecution", AlternatingExecution, raising=False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        for number, part in enumerate(self.parts):
            with poptorch.Block(f"block {number}"):
                x = part(x)
        return x


def options(strategy=None, iterations=2):
    found = quiet_options(deviceIterations=iterations, autoRoundNumIPUs=True)
    return found if strategy is None else found.setExecutionStrategy(strategy)


def test_a_program_with_it(tmp_path, capsys):
    net, x = Net(), torch.randn(4, 3)
    model = poptorch.inferenceModel(net, options(AlternatingExecution(2)))
    expected = poptorch.inferenceModel(net, options(poptorch.ShardedExecution(
        *[poptorch.Stage(f"block {n}").ipu(0) for n in range(3)])))(x)
    check_equal_bits(model(x), expected)
    lines = [line for line in model.ir("place").splitlines() if " matmul " in line
             or " addmm " in line]
    assert ["ipu=1" in line for line in lines] == [False, True, False]
    print(model.partition_summary())
    assert "1    1  block 1" in capsys.readouterr().out
    again = poptorch.load(model.save(str(tmp_path / "net.poptorch")))
    assert again.options.execution_strategy == AlternatingExecution(2)
    check_equal_bits(again(x), expected)


def test_options_with_it(tmp_path):
    given = options(AlternatingExecution(3))
    again = poptorch.Options.fromDict(given.toDict())
    assert again.execution_strategy == AlternatingExecution(3) != AlternatingExecution(2)
    path = tmp_path / "options.cfg"
    path.write_text("setExecutionStrategy(poptorch.AlternatingExecution(5))\n")
    assert poptorch.Options().loadFromFile(path).execution_strategy == AlternatingExecution(5)


def test_messages_about_it():
    model = poptorch.inferenceModel(Net(), options(AlternatingExecution(4), iterations=3))
    with pytest.raises(poptorch.Error, match=r"\[AlternatingExecution\] poptorch.Options"
                                             r"\(\).deviceIterations must be greater than or equal "
                                             r"to the number of pipeline stages \(4\) when using "
                                             r"poptorch.AlternatingExecution, got 3\."):
        model(torch.randn(3, 3))
    other = type("Other", (poptorch.options._IExecutionStrategy,), {})
    with pytest.raises(poptorch.Error, match="Use one of poptorch's: ShardedExecution, .*"
                                             "ParallelPhasedExecution, AlternatingExecution"):
        poptorch.inferenceModel(Net(), options(other()))(torch.randn(2, 3))

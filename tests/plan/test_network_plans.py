"""The plan is what runs, on whole networks: its text decides where every value lies."""

import re

import pytest

from poptorch import _C
from poptorch._command.opt import read_module
from tests.helpers import check_equal_bits
from tests.networks import harness
from tests.networks.zoo import build
from tests.plan.test_planner import ADDRESS

NETWORKS = ["digits_convnet", "bert_encoder", "rnn_classifier", "autoencoder"]
STEPS = 2


@pytest.fixture
def edit(monkeypatch, tmp_path):
    """Makes compilation go through planned text that a function has edited."""
    compile_module = _C.compile

    def install(function, **options):
        def compile_edited(module, given, progress=None, placed=None):
            given = {**given, "dump_folder": str(tmp_path)}
            compile_module(module, given, progress, placed)
            constants = read_module(tmp_path / "7_plan.ir")
            text = function((tmp_path / "7_plan.ir").read_text())
            return _C.assemble_text(text, {**given, **options}, constants)

        monkeypatch.setattr(_C, "compile", compile_edited)

    return install


def run(network, seed):
    return harness.train(network, network.batches(STEPS, seed))


def moved(text):
    """The text with every address 4,096 bytes further on."""
    def move(match):
        numbers = re.sub(r"\d+", lambda n: str(int(n.group()) + 4096), match.group(2))
        return f"{match.group(1)}={numbers}"

    return ADDRESS.sub(move, text)


@pytest.mark.parametrize("name", NETWORKS)
def test_moved_addresses_give_equal_bits(name, seed, edit):
    network = build(name, seed)
    expected = run(network, seed)
    edit(moved)
    check_equal_bits(run(network, seed), expected)


def two_that_live(text):
    """Two op results, the first one read after the second is made; and the second's line number."""
    lines = text.splitlines()
    made = re.compile(r"  (%\S+) = \w+ .*?[{ ]addr=(\d+).* : f32\[[\d,]{3,}\](?:  //|$)")
    fixed = (" view ", " loop ", " input ", " state ", " constant ", "inplace", " stream_in ")
    values = [(i, made.match(line)) for i, line in enumerate(lines)]
    values = [(i, m) for i, m in values if m and not any(w in lines[i] for w in fixed)]
    for (_, a), (j, b) in zip(values, values[1:]):
        read = re.compile(rf" {re.escape(a.group(1))}[, ]")
        if a.group(2) != b.group(2) and any(read.search(line) for line in lines[j + 1:]):
            return a, j, b
    raise AssertionError("no two such values")


def shared(text):
    """The text with two live values at one address."""
    first, line, second = two_that_live(text)
    lines = text.splitlines()
    lines[line] = re.sub(r"([{ ])addr=\d+", rf"\1addr={first.group(2)}", lines[line])
    return "\n".join(lines), first.group(1), second.group(1)


def test_two_values_at_one_address(seed, edit):
    network = build("bert_encoder", seed)
    expected = run(network, seed)
    names = []

    def change(text):
        text, *names[:] = shared(text)
        return text

    edit(change)
    with pytest.raises(RuntimeError, match="share memory") as caught:
        run(network, seed)
    assert all(f"{name} at" in str(caught.value) for name in names)

    edit(change, check_plan=False)
    with pytest.raises(AssertionError, match="bits differ"):
        check_equal_bits(run(network, seed), expected)

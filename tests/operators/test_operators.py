"""``make operators`` judges operators; here it is judged itself, with operators of its own."""

import contextlib
import json
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

import poptorch
from tests.operators.__main__ import judged, main
from tests.operators.calls import Call, calls_of
from tests.operators.table import page, rows_of

X = torch.linspace(-2, 2, 12).view(3, 4)


def call(function, *positional, **named):
    return Call(function, (positional, named), True)


def _biased(x, by=0.0):
    """A result that poptorch gets other than eager does."""
    return x * 2 + by if poptorch.isRunningOnIpu() else x * 2


def _stretched(x):
    return x * 1.001 if poptorch.isRunningOnIpu() else x


def _seeded(x):
    torch.manual_seed(3)
    return torch.nn.functional.dropout(x)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("right", [
    call(torch.sum, X, dim=0), call(torch.where, X > 0, X, 2.0), call(torch.cat, [X, X[:1]], dim=0),
    call(torch.softmax, X, 1, dtype=torch.float64), call(torch.var_mean, X, [1]),
    call(_seeded, X), call(torch.nn.functional.embedding, torch.tensor([2, 0, 2]), X),
    call(torch.log, X)], ids=str)
def test_what_is_as_in_eager(right, trained, seed):
    assert judged(right, trained, seed) == ("right", "")


def test_differences_are_told(seed):
    kind, words = judged(call(_biased, X, by=1e-3), False, seed)
    assert kind == "wrong" and "result 0: error" in words
    assert judged(call(_biased, X, by=1e-3), True, seed)[0] == "right"  # the gradient is
    kind, words = judged(call(_stretched, X), True, seed)
    assert kind == "wrong" and "result 0: error" in words
    kind, words = judged(call(lambda x: x[:2] if poptorch.isRunningOnIpu() else x, X), False, seed)
    assert kind == "wrong" and "shape" in words


def test_uninitialized_memory_has_a_shape_alone(seed):
    numbers = call(lambda x: x + float(poptorch.isRunningOnIpu()), X)
    assert judged(numbers, False, seed, "empty_like") == ("right", "")
    assert judged(numbers, False, seed, "add")[0] == "wrong"


def test_refusals(seed):
    assert judged(call(torch.nonzero, X), False, seed)[0] == "refused"
    kind, words = judged(call(lambda x: x + x.data_ptr(), X), False, seed)
    assert kind == "wrong" and "the address of a tensor" in words
    assert judged(call(torch.mm, X, X), False, seed) == ("not valid", "")


def _info(function, name="double", dtypes=(torch.float32,)):
    samples = [SimpleNamespace(input=X + i, args=(), kwargs={}) for i in range(20)]
    return SimpleNamespace(
        op=function, name=name, formatted_name=name, supports_autograd=True,
        supported_dtypes=lambda device: dtypes, supported_backward_dtypes=lambda device: dtypes,
        sample_inputs=lambda *_, **__: samples)


def test_calls_are_drawn(seed):
    assert len(calls_of(_info(torch.neg), seed, 7)) == 7
    assert len(calls_of(_info(torch.neg), seed, 70)) == 20
    assert calls_of(_info(torch.neg, dtypes=(torch.int64,)), seed, 7) == []


def test_the_exit_status_and_the_summary(capsys):
    infos = [_info(torch.neg, "neg"), _info(_stretched, "stretched")]
    with mock.patch("tests.operators.__main__.torchs_samples",
                    lambda: contextlib.nullcontext(infos)):
        for names, status, found in (
                ([], 1, "2 operators: 4 calls as in eager, 0 refused, 4 wrong"),
                (["neg"], 0, "1 operators: 4 calls as in eager, 0 refused, 0 wrong")):
            with mock.patch("sys.argv", ["operators", *names, "--seed", "5", "--count", "2"]):
                assert main() == status
            out = capsys.readouterr().out
            assert out.endswith(f"{found}, 0 not valid in eager; seed 5\n")
            assert out.count("stretched, gradients of") == 2 * status
        with mock.patch("sys.argv", ["operators", "sinh"]), pytest.raises(SystemExit) as ended:
            main()
        assert "no operator's name has sinh in it" in str(ended.value)


def test_the_page_of_the_reference():
    def line(name, dtype, found, reason=(), kind="operator"):
        return json.dumps({"key": [kind, name, dtype], "found": found, "reason": list(reason)})

    right, refused = {"results": {"right": 2}}, {"results": {"right": 1, "refused": 1}}
    words = "refused: [unique] the shape depends on values. Keep it.\n  at net.py:3"
    rows = rows_of("\n".join([
        line("sum", "float32", {"results": {"wrong": 1}}), line("sum", "float16", right),
        line("sum", "float32", {**right, "gradients": {"right": 2}, "results of int32": {}}),
        line("unique", "float32", refused, [words]), line("none", "float32", {}),
        line("nn.Linear", "float32", {"gradients": {"wrong": 1}}, ["error 1"], "module")]))
    text = page(rows, 2)
    assert "| operators | `float32` | inference | 1 | 1 | 0 | 100.0% |" in text
    assert "| operators | `float32` | training | 1 | 0 | 0 | 100.0% |" in text
    assert "| modules | `float32` | training | 0 | 0 | 1 | 0.0% |" in text
    assert "| `unique` | `float32` | refused | – | the shape depends on values |" in text
    assert "| `nn.Linear` | `float32` | – | wrong | error 1 |" in text
    assert "## Operators that are right\n\n`sum`\n" in text
    assert text.endswith("Modules that are right\n")


def test_results_are_appended_once(tmp_path, capsys):
    path, infos = tmp_path / "results", [_info(torch.neg, "neg"), _info(_stretched, "stretched")]
    with mock.patch("tests.operators.__main__.torchs_samples",
                    lambda: contextlib.nullcontext(infos)):
        for names, count in (["neg"], 1), ([], 2), ([], 2):
            with mock.patch("sys.argv", ["operators", *names, "--count", "1", "--results",
                                         str(path)]):
                main()
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            assert len(lines) == count
    assert lines[0]["found"] == {"results": {"right": 1}, "gradients": {"right": 1}}
    assert lines[1]["found"]["results"] == {"wrong": 1} and "error" in lines[1]["reason"][0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits(dtype, seed):
    assert judged(call(torch.softmax, X, 1), False, seed, dtype=dtype) == ("right", "")
    assert judged(call(torch.exp, X + 11), False, seed, dtype=dtype) == ("right", "")
    assert judged(call(_biased, X, by=0.1), False, seed, dtype=dtype)[0] == "wrong"


def test_complex_results(seed):
    assert judged(call(torch.fft.fft, X), False, seed) == ("right", "")
    assert judged(call(torch.fft.fft, X), True, seed) == ("right", "")
    found = judged(call(lambda x: torch.complex(x, _biased(x, by=1.0)), X), False, seed)
    assert found[0] == "wrong" and "result 0" in found[1]


def test_modules(seed):
    linear = torch.nn.Linear(4, 2)
    assert judged(call(linear, X), False, seed) == ("right", "")
    assert judged(call(linear, X), True, seed) == ("right", "")

"""The pass runner and ``python -m poptorch``: names, limits, messages."""

import pytest
import torch

import poptorch
import poptorch.__main__ as tool
from poptorch import _C
from poptorch.errors import Error
from tests.helpers import quiet_options

TEXT = """graph net {
  %x = stream_in {stream="x"} : f32[2,3]
  %0 = reshape %x {size=[3, 2]} : f32[3,2]
  %1 = reshape %x {size=[3, 2]} : f32[3,2]
  stream_out %1 {stream="0"}
  output
}
"""


def test_passes_run_in_order_up_to_the_limit():
    module = _C.parse(TEXT)
    done = _C.run_passes(module, ["cse", "dce", "views"], limit=2)
    assert [(name, changed) for name, changed, _ in done] == [("cse", True), ("dce", False)]
    assert all(seconds >= 0 for *_, seconds in done)


def test_limit_zero_runs_nothing():
    module = _C.parse(TEXT)
    assert _C.run_passes(module, _C.pipeline(), limit=0) == []
    assert module.text() == TEXT


def test_the_pipeline_runs():
    module = _C.parse(TEXT)
    done = _C.run_passes(module, _C.pipeline())
    assert [name for name, *_ in done] == _C.pipeline()
    assert set(_C.pipeline()) == {name for name, _ in _C.passes()}
    assert module.text().count("view") == 1


def test_an_unknown_pass_lists_the_names():
    with pytest.raises(Error, match=r'there is no pass "cze". The passes are: simplify, fold, cse'):
        _C.run_passes(_C.parse(TEXT), ["cse", "cze"])


def test_a_broken_module_is_refused_before_the_first_pass():
    module = _C.parse(TEXT.replace("f32[3,2]", "f32[3,3]"))
    with pytest.raises(Error, match="%0 is declared"):
        _C.run_passes(module, ["dce"])


def test_opt_prints_the_result(tmp_path, capsys):
    path = tmp_path / "net.ir"
    path.write_text(TEXT)
    assert tool.main(["opt", "--passes", "cse,dce", "--verbose", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.out == TEXT.replace(TEXT.splitlines()[3] + "\n", "").replace("%1 {", "%0 {")
    assert shown.err.startswith("cse: ") and "dce: " in shown.err
    assert shown.err.endswith("(unchanged)\n")


def test_opt_finds_the_constants_beside_the_text(tmp_path, capsys):
    module = _C.Module()
    graph = module.add_graph("net")
    constant = graph.constant("f32", [20], bytes(80))
    graph.op("stream_out", [constant], {"stream": "0"})
    (tmp_path / "net.ir").write_text(module.text())
    assert tool.main(["opt", "--passes", "dce", str(tmp_path / "net.ir")]) == 1
    assert "net.ir has constants of more than 16 elements (line 2), and " in capsys.readouterr().err
    module.save_constants(str(tmp_path / "net.safetensors"))
    assert tool.main(["opt", "--passes", "dce", str(tmp_path / "net.ir")]) == 0
    assert capsys.readouterr().out == module.text()


def test_opt_names_a_file_that_is_missing(capsys):
    assert tool.main(["opt", "none.ir"]) == 1
    assert capsys.readouterr().err == "[opt] none.ir: No such file or directory. Check the path.\n"


def test_opt_reads_every_file_of_a_dump(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("POPTORCH_DUMP_IR", str(tmp_path))
    weight = torch.randn(20, 20)

    class Scaled(torch.nn.Module):
        def forward(self, x):
            return (x @ weight).relu() + x * 0

    poptorch.inferenceModel(Scaled(), quiet_options())(torch.randn(2, 20))
    files = sorted(tmp_path.glob("*.ir"))
    read, refused = 0, 0
    for path in files:
        status = tool.main(["opt", "--passes", "dce", str(path)])
        err = capsys.readouterr().err
        refused += status
        read += not status and "hash=" in path.read_text()
        assert not status or "has no text, as its pass changed nothing. Give the file" in err, err
    assert read > 5 and refused and refused + read < len(files) + 1


def test_opt_of_a_saved_program(tmp_path, capsys):
    model = poptorch.inferenceModel(torch.nn.Linear(3, 3), quiet_options())
    path = model.compileAndExport(str(tmp_path / "net.poptorch"), torch.ones(2, 3))
    assert tool.main(["opt", path]) == 1
    assert "net.poptorch is not IR text. Give a .ir file" in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit) as ended:
        tool.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"poptorch {poptorch.__version__}\n"


def test_opt_of_a_missing_file(capsys):
    assert tool.main(["opt", "--passes", "dce", "/nowhere.ir"]) == 1
    assert "/nowhere.ir" in capsys.readouterr().err


def test_ops_lists_rows(capsys):
    assert tool.main(["ops"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(_C.op_table())
    assert tool.main(["ops", "permute"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("permute(self){dims} -> out\n") and "ATen: aten::permute" in shown
    assert tool.main(["ops", "permut"]) == 1
    assert "Did you mean permute" in capsys.readouterr().err

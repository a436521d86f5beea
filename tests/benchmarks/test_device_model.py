"""The accuracy of the device model on a small file written by hand."""

from benchmarks import device_model

HEAD = "id,target,op,params,dtype,cycles,total_mem_bytes,max_tile_mem_bytes\n"
ROWS = [
    "a,GC200 model,gemm,--m 600 --k 64 --n 10000,,20000,93000000,229900",
    "b,GC200 model,fc,--input-size 64 --output-size 128 --batch-size 128,,14000,,",
    'c,GC200 model,conv,"--field {7,7} --kernel-size 3 --padding 1 --input-channels 16 '
    '--output-channels 16 --batch-size 4",,12000,,',
    "d,Bow,index_select rows,num_inputs=64 num_features=16 num_outputs=64 "
    "availableMemoryProportion=0.1,,1284,,",
    "e,Bow,cholesky,--a-rank 16,,100,,",
    "f,Bow,STREAM Triad,naive,,,,",
]


def _run(tmp_path, capsys, rows):
    path = tmp_path / "ops.csv"
    path.write_text(HEAD + "\n".join(rows) + "\n")
    results = tmp_path / "results.csv"
    results.write_text("id,model,task\nx,BERT,training\n")
    status = device_model.main(["--ops", str(path), "--results", str(results)])
    return status, capsys.readouterr().out.splitlines()


def test_every_row_is_handled_or_named(tmp_path, capsys):
    status, lines = _run(tmp_path, capsys, ROWS)
    assert status == 0
    assert lines[-1].startswith("device model: 4 rows, cycles ")
    assert lines[-1].endswith("3 rows not built; 0 failed")
    assert "not built: 1 rows, no program for 'cholesky'" in lines
    assert "not built: 1 rows, no cycles in the file" in lines
    assert "not built: 1 results of BERT: needs the timeline of a whole program" in lines


def test_a_row_that_fails_is_an_error(tmp_path, capsys):
    status, lines = _run(tmp_path, capsys, ["a,GC200 model,gemm,--m 600,,20000,,"])
    assert status == 1
    assert any(line.startswith("failed: a: ") for line in lines)

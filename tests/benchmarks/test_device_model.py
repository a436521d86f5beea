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


RESULTS = [
    "id,model,task,dtype,ipu_generation,ipus,replicas,pipeline_stages,micro_batch,grad_accum,"
    "device_iterations,seq_or_image,throughput,unit,source,notes",
    "p,dense matmul 512x512 by 512x256,op loop,16.16,Bow (text),1,1,1,,,,512x512x256,40,TFLOP/s,,",
    "q,nanoGPT 10.67M,training,32.32,GC200,1,1,1,1,2,1,32,450,seq/s,,AMP 0.2",
    "r,Swin-Tiny,inference,16.16,C600,1,1,1,1,1,1,224,450,images/s,,",
    "s,BERT-Base,inference,16.16,GC200 or Bow,1,1,1,1,1,1,224,450,seq/s,,",
]


def _run(tmp_path, capsys, rows):
    path = tmp_path / "ops.csv"
    path.write_text(HEAD + "\n".join(rows) + "\n")
    results = tmp_path / "results.csv"
    results.write_text("\n".join(RESULTS) + "\n")
    status = device_model.main(["--ops", str(path), "--results", str(results)])
    return status, capsys.readouterr().out.splitlines()


def test_every_row_is_handled_or_named(tmp_path, capsys):
    status, lines = _run(tmp_path, capsys, ROWS)
    assert status == 0
    assert lines[-1].startswith("device model: 4 rows, cycles ")
    assert "results 2 rows " in lines[-1]
    assert lines[-1].endswith("4 rows not built; 0 failed")
    assert "not built: 1 rows, no program for 'cholesky'" in lines
    assert "not built: 1 rows, no cycles in the file" in lines
    assert "not built: 1 results, Swin-Tiny: the network Swin-Tiny is not defined" in lines
    assert "not built: 1 results, BERT-Base: the machine is not stated" in lines
    ratios = [line for line in lines if " of " in line and line.startswith(("p ", "q "))]
    assert len(ratios) == 2 and "TFLOP/s" in ratios[0] and "seq/s" in ratios[1]


def test_a_row_that_fails_is_an_error(tmp_path, capsys):
    status, lines = _run(tmp_path, capsys, ["a,GC200 model,gemm,--m 600,,20000,,"])
    assert status == 1
    assert any(line.startswith("failed: a: ") for line in lines)

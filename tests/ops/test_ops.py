"""Every row of the op table against PyTorch on the CPU, from the samples of its family."""

import importlib
import zlib
from pathlib import Path

import pytest

from poptorch import _C
from poptorch.errors import Error
from tests.helpers import Cases
from tests.ops.properties import checks_of
from tests.ops.sample import ROWS, to_attrs, to_host
from tests.ops.subject import Subject

FAMILIES = [importlib.import_module(f"tests.ops.samples.{path.stem}")
            for path in sorted((Path(__file__).parent / "samples").glob("*.py"))]
SAMPLES = [sample for family in FAMILIES for sample in family.SAMPLES]
BADS = [bad for family in FAMILIES for bad in family.BADS]

WITHOUT_SAMPLES = {
    "constant": "data, not computation", "state": "data, not computation",
    "input": "data, not computation", "assign": "the engine binds states",
    "stream_in": "the engine streams", "stream_out": "the engine streams",
    "loop": "the engine loops", "view": "an alias, made and tested by the pass",
    **dict.fromkeys(("all_gather", "all_reduce", "reduce_scatter", "shard"),
                    "the engine runs it for all replicas, tests/run/test_replicas.py"),
    "strategy": "the partition, not computation",
    "tensor_location": "the partition, not computation", "ipu_copy": "an alias, tested with place",
    "remote_store": "an alias, tested with place", "remote_load": "an alias, tested with place",
    "stash": "an alias, tested with tasks", "task": "its body computes",
    "print_tensor": "its text matters, tests/public_ops/test_printing.py",
    "host_call": "a function of the user's, tests/public_ops/test_host.py",
    "aten": "tests/kernels/test_aten_opaque.py has its own cases",
    "custom": "tests/custom_ops has libraries to call",
    "float16_partials_matmul": "of f16 alone: tests/translate/test_float16_partials.py tests it",
}
ROWS_SAMPLED = {row: [s for s in SAMPLES if s.op == row] for row in ROWS}


def subject_of(sample, seed):
    """The sample with operands that depend on the seed and on no other sample."""
    return Subject(sample, seed + zlib.crc32(sample.id.encode()))


@pytest.mark.parametrize("row", [row for row, samples in ROWS_SAMPLED.items() if samples])
def test_row(row, seed, sampled):
    with Cases() as cases:
        for number, sample in sampled(enumerate(ROWS_SAMPLED[row])):
            for name, detail, check in checks_of(subject_of(sample, seed)):
                with cases.case(f"{row} {number} ({sample.id}):", name, detail):
                    check()


def test_bad_inputs():
    with Cases() as cases:
        for bad in BADS:
            with cases.case(bad.id):
                with pytest.raises(Error) as caught:
                    _C.evaluate(bad.op, [to_host(x) for x in bad.inputs()], to_attrs(bad.attrs))
                message = str(caught.value)
                assert bad.words in message
                assert message.startswith("["), message
                assert message.endswith("."), message


def test_rows_have_samples():
    assert {row for row in ROWS if not ROWS_SAMPLED[row]} == set(WITHOUT_SAMPLES)

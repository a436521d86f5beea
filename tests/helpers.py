"""What many tests share: the numeric rule, golden files, and child processes.

The numeric rule says "same program, same numbers" twice over:

* in float64 a tensor may differ from PyTorch's by 1e-9 of its norm;
* in float32 PyTorch's own error is the measure: with ``e`` the error of eager float32 against
  eager float64, ours against eager float64 is at most ``4 e + 2e-6``.

One run is one draw of ``e``, and a lucky one where few elements make the error: an Adam divides a
gradient near zero by itself. What trains some steps takes the largest of several runs, some of
them from weights that are moved by a rounding (``nudged``).

Errors are Frobenius norms of whole tensors, never relative errors of single elements. A tensor
near zero is measured against 1e-3 times the root of its size.
"""

import math
import os
import re
import subprocess
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as pytree

import poptorch
from poptorch.testing._comparison import relative_error

ROOT = Path(__file__).resolve().parent.parent
WIDE_TOLERANCE = 1e-9
CASE_WORDS = 500  # of each failure in a test of many cases
GOLDEN_SEPARATOR = "// ----\n"


class RunningTotal(torch.nn.Module):
    """Adds up what it is called with, in a buffer that runs change."""

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x):
        self.total += x.sum()
        return self.total.clone()


class Applied(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def flatten(tree):
    """The tensors of a nested structure, by readable path."""
    leaves = pytree.tree_flatten_with_path(tree)[0]
    return {
        pytree.keystr(path): leaf.detach() for path, leaf in leaves if torch.is_tensor(leaf)
    }


def to_dtype(tree, dtype):
    """A copy of a structure whose floating-point tensors have ``dtype``."""

    def convert(leaf):
        if not torch.is_tensor(leaf):
            return leaf
        return leaf.detach().clone().to(dtype if leaf.is_floating_point() else leaf.dtype)

    return pytree.tree_map(convert, tree)


def _same_kind(name, ours, reference):
    assert ours.shape == reference.shape, (
        f"{name}: shape {tuple(ours.shape)}, expected {tuple(reference.shape)}"
    )
    assert ours.is_floating_point() == reference.is_floating_point(), (
        f"{name}: {ours.dtype}, expected {reference.dtype}"
    )


def _judge(rows):
    """Fails with all the rows (name, error, limit) whose error is over the limit."""
    bad = [row for row in rows if not row[1] <= row[2]]
    if bad:
        lines = [f"  {name}: error {error:.2e}, limit {limit:.2e}" for name, error, limit in bad]
        raise AssertionError(f"{len(bad)} of {len(rows)} tensors differ:\n" + "\n".join(lines))


def _check(ours, reference, limit_of):
    """Compares two flat dictionaries; what is not floating point must be equal."""
    assert list(ours) == list(reference), f"tensors {list(ours)}, expected {list(reference)}"
    rows = []
    for name, expected in reference.items():
        _same_kind(name, ours[name], expected)
        if expected.is_floating_point():
            rows.append((name, relative_error(ours[name], expected), limit_of(name)))
        else:
            equal = torch.equal(ours[name].to(expected.dtype), expected)
            rows.append((name, 0.0 if equal else math.inf, 0.0))
    _judge(rows)


def check_wide(ours, reference):
    """The float64 rule, for two structures of tensors."""
    _check(flatten(ours), flatten(reference), lambda name: WIDE_TOLERANCE)


def eager_errors(eager32, reference):
    """``e`` for each tensor: the largest error of several eager float32 runs against float64."""
    runs = [flatten(run) for run in eager32]
    return {
        name: max(relative_error(run[name], expected) for run in runs)
        for name, expected in flatten(reference).items()
    }


def check_narrow(ours, eager32, reference):
    """The float32 rule: ``eager32`` is a list of eager results, ``reference`` eager float64."""
    errors = eager_errors(eager32, reference)
    _check(flatten(ours), flatten(reference), lambda name: 4 * errors[name] + 2e-6)


def check_op_sample(ours, eager32, reference, name="result", rounding=1e-6):
    """The rule for samples of one op: largest absolute errors, exact where not floating point.

    Args:
        ours: what the kernel gave in float32.
        eager32: what PyTorch gave in float32.
        reference: what PyTorch gave in float64 from the same (float32) values.
        name: what a failure calls the tensor.
        rounding: the error that is allowed in any case, relative to the largest element.
    """
    _same_kind(name, ours, eager32)
    if not reference.is_floating_point():
        assert torch.equal(ours, eager32.to(ours.dtype)), f"{name}: {ours}, expected {eager32}"
        return
    if reference.numel() == 0:
        return
    finite = torch.isfinite(reference)
    unequal = ours.double()[~finite].nan_to_num() != reference.double()[~finite].nan_to_num()
    assert not unequal.any(), f"{name}: infinities or NaNs differ: {ours}, expected {reference}"

    def largest(values):
        return values[finite].abs().max().item() if finite.any() else 0.0

    error = largest(ours.double() - reference)
    limit = 4 * largest(eager32.double() - reference) + rounding * largest(reference)
    _judge([(name, error, limit)])


def check_equal_bits(ours, reference):
    """Two structures hold the same bits."""
    ours, reference = flatten(ours), flatten(reference)
    assert list(ours) == list(reference)
    for name, expected in reference.items():
        assert ours[name].dtype == expected.dtype, name
        assert ours[name].shape == expected.shape, name
        if expected.numel() > 0:
            bits = [x.contiguous().reshape(-1).view(torch.uint8) for x in (ours[name], expected)]
            assert torch.equal(*bits), f"{name}: bits differ"


def check_golden(path, actual, update):
    """Compares text with a golden file, or rewrites the file when ``update`` is set."""
    path = Path(path)
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(actual)
        return
    assert path.exists(), f"{path} is missing; pytest --update writes it"
    assert actual == path.read_text(), f"{path.name} differs; pytest --update rewrites it"


_STRUCTURE = re.compile(r"(graph|loop|output|strategy|tensor_location|\})\b|\}| *$|//")


def in_parts(text):
    """IR text that names the part of some ops: the other ops are of the forward pass."""
    lines = []
    for line in text.split("\n"):
        code = line.strip().partition(" = ")
        op = code[2] or code[0]
        if not _STRUCTURE.match(op) and "part=" not in line:
            head, brace, rest = line.partition("{")
            if not brace:
                head, colon, rest = line.partition(" : ")
                head, rest = f"{head} ", f"}}{colon}{rest}"
            comma = "" if rest.startswith("}") else ", "
            line = f'{head}{{part="forward"{comma}{rest}'
        lines.append(line)
    return "\n".join(lines)


def read_case(path):
    """A golden case ``// RUN: <words>``, input, ``// ----``, expected: (words, input, expected)."""
    head, _, rest = Path(path).read_text().partition("\n")
    assert head.startswith("// RUN:"), f"{path}: the first line must be `// RUN: <words>`"
    source, _, expected = rest.partition(GOLDEN_SEPARATOR)
    return head.removeprefix("// RUN:").strip(), source, expected


def check_case(path, actual, update):
    """Compares ``actual`` with what follows ``// ----`` in a golden case, or rewrites that part."""
    head, _, rest = Path(path).read_text().partition("\n")
    source = rest.partition(GOLDEN_SEPARATOR)[0]
    check_golden(path, f"{head}\n{source}{GOLDEN_SEPARATOR}{actual}", update)


class Cases:
    """Many cases in one test: all of them run, and a failure of the test names those that fail.

        with Cases() as cases:
            for n in numbers:
                with cases.case("square", n):
                    assert n * n >= 0

    Attributes:
        tried: names of all cases, as tuples.
    """

    def __init__(self):
        self.tried = []
        self._failed = []

    @contextmanager
    def case(self, *name):
        """Runs the body; what it raises is kept, and the next case runs."""
        self.tried.append(name)
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            self._failed.append((" ".join(map(str, name)), error))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if not self._failed:
            return
        count = f"{len(self._failed)} of {len(self.tried)} cases failed"
        report = "\n".join([count, *(self._line(*failed) for failed in self._failed)])
        if error is not None:
            error.add_note(report)
        else:
            raise AssertionError(report) from self._failed[0][1]

    @staticmethod
    def _line(name, error):
        frame = traceback.extract_tb(error.__traceback__)[-1]
        words = f"{type(error).__name__}: {error}".replace("\n", "\n      ")
        return f"  {name} ({Path(frame.filename).name}:{frame.lineno})\n      {words[:CASE_WORDS]}"


def quiet_options(**settings) -> poptorch.Options:
    """Options without a progress bar; setters by name, groups with ``__`` for the dot.

    The value of a setter is its argument, or the tuple of its arguments.
    """
    options = poptorch.Options().showCompilationProgressBar(False)
    for name, value in settings.items():
        target = options
        *groups, method = name.split("__")
        for group in groups:
            target = getattr(target, group)
        getattr(target, method)(*(value if isinstance(value, tuple) else (value,)))
    return options


def run_python(code, *, timeout_s=600, **environment):
    """Runs Python code in a child process from the root of the checkout; returns its stdout."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, f"exit status {done.returncode}:\n{done.stderr[-4000:]}"
    return done.stdout

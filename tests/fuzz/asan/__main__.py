"""Damaged files under AddressSanitizer: ``python -m tests.fuzz.asan``, or ``make fuzz-files``.

Builds ``build/asan/load_files`` (the runtime without Python and torch) and gives it files with
random changes: of bytes, of members with checksums that fit again, of the addresses of a plan.
Each file must load and run, or be refused with an error. A report of AddressSanitizer, a signal, an
internal error or a hang ends the run with exit status 1; the file is kept in ``build/asan``.
"""

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import hypothesis
from hypothesis import strategies as st

import poptorch
from tests.fuzz.files import damage, file_models
from tests.helpers import ROOT

FOLDER = ROOT / "build" / "asan"
TIMEOUT_S = 120  # only a hang takes that long
READ = {"manifest.json", "plan.ir", "constants.safetensors", "weights.safetensors",
        "state.safetensors", "rng.json", "runtime.json"}
# What a process with AddressSanitizer does in place of std::bad_alloc.
TOO_LARGE = re.compile(r"allocation-size-too-big|out-of-memory|exceeds maximum supported size")


class Loader:
    """The process that loads files; started again after its end."""

    def __init__(self):
        self._process = None

    def ask(self, path: Path, program: str) -> str:
        """One line of what came of a file; an AssertionError if the process broke."""
        if self._process is None:
            self._start()
        self._process.stdin.write(f"{path}\n{program}\n")
        self._process.stdin.flush()
        try:
            line = self._lines.get(timeout=TIMEOUT_S)
        except queue.Empty:
            self._process.kill()
            line = ""
        if line:
            return line.rstrip("\n")
        status, process, self._process = self._process.wait(), self._process, None
        process.stdin.close()
        self._errors.seek(0)
        words = self._errors.read()
        if TOO_LARGE.search(words):
            return "error: AddressSanitizer refused the size of an allocation"
        raise AssertionError(f"exit status {status}\n{words[-6000:]}")

    def _start(self):
        self._errors = tempfile.TemporaryFile("w+")
        options = "max_allocation_size_mb=2048:detect_leaks=0:allocator_may_return_null=0"
        self._process = subprocess.Popen(
            [FOLDER / "load_files"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True, errors="replace",
            env={**os.environ, "ASAN_OPTIONS": options})
        self._lines = queue.Queue()
        threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()

    @staticmethod
    def _read(process, lines):
        for line in process.stdout:
            lines.put(line)
        lines.put("")


@st.composite
def changed(draw, data: bytes):
    """The bytes of a file with changes in what the runtime reads, and what was done."""
    kind = draw(st.sampled_from(["member"] * 8 + ["address", "address", "bomb", "bytes", "sizes"]))
    if kind == "bytes":
        return damage.damaged_bytes(draw, data), kind
    if kind == "sizes":
        return damage.hidden_sizes(draw, data), kind
    members = damage.unpacked(data)
    names = [name for name in sorted(members) if name.rpartition("/")[2] in READ]
    if kind == "address":
        name = draw(st.sampled_from([name for name in names if name.endswith("plan.ir")]))
        members[name] = damage.moved(draw, members[name].decode()).encode()
    else:
        name = draw(st.sampled_from(names))
        change = damage.bomb if kind == "bomb" else damage.damaged_member
        members[name] = change(draw, name, members[name])
    return damage.packed(members, [], False), f"{kind} of {name}"


def saved(folder: Path) -> list[tuple[bytes, str]]:
    """Files of compiled models with the name of a program in them."""
    found = []
    for name in file_models.MAKERS:
        model = file_models.make(name)
        path = model.compileAndExport(folder / name, *file_models.arguments(name))
        found.append((Path(path).read_bytes(), ""))
        bundle = poptorch.save_bundle({"one": model}, folder / f"{name}-bundle")
        found.append((Path(bundle).read_bytes(), "one"))
    return found


def search(files: list[tuple[bytes, str]], count: int, seed: int) -> Counter:
    """Asks about so many changed files; how often each kind of answer came."""
    loader, answers, path = Loader(), Counter(), FOLDER / "changed.poptorch"
    for data, program in files:
        path.write_bytes(data)
        assert "internal" not in loader.ask(path, program)

    @hypothesis.seed(seed)
    @hypothesis.settings(max_examples=count, database=None, deadline=None,
                         phases=[hypothesis.Phase.generate],
                         suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(st.data())
    def check(draws):
        data, program = draws.draw(st.sampled_from(files))
        data, what = draws.draw(changed(data))
        path.write_bytes(data)
        try:
            answer = loader.ask(path, program)
            assert "internal error" not in answer.lower() and "report this" not in answer, answer
        except AssertionError:
            shutil.copy(path, FOLDER / "found.poptorch")
            print(f"[fuzz] {what}: see {FOLDER / 'found.poptorch'}", file=sys.stderr)
            raise
        answers["loaded" if answer == "loaded" else
                "too large" if "AddressSanitizer" in answer else "refused"] += 1

    check()
    return answers


def main() -> int:
    """Builds, changes files, and says what came of them."""
    parser = argparse.ArgumentParser("python -m tests.fuzz.asan", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=100_000, help="number of files")
    parser.add_argument("--seed", type=int, default=0, help="of the changes")
    arguments = parser.parse_args()
    subprocess.run([sys.executable, "setup.py", "-q", "build_asan"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory() as folder:
        answers = search(saved(Path(folder)), arguments.count, arguments.seed)
    print(f"[fuzz] {answers.total()} files, no report:", dict(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())

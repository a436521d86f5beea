"""Damaged files under AddressSanitizer: ``python -m tests.fuzz.asan``, or ``make fuzz-files``.

Builds ``build/asan/load_files`` (the runtime and ``poptorch-run`` without Python and torch) and
gives it files with random changes: of bytes, of members with checksums that fit again, of the
addresses of a plan, and of the arrays and tensors that a command takes with a program. Each must
be used, or be refused with an error. A report of AddressSanitizer, a signal, an internal error or
a hang ends the run with exit status 1; the files are kept in ``build/asan/found``.
"""

import argparse
import dataclasses
import functools
import os
import random
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy

import poptorch
from tests.fuzz.files import damage, file_models
from tests.helpers import ROOT

FOLDER = ROOT / "build" / "asan"
MEMORY = Path("/dev/shm")  # files that are written anew all the time take long on a disk
TIMEOUT_S = 120  # only a hang takes that long
PROGRESS = 10_000
READ = {"manifest.json", "plan.ir", "constants.safetensors", "weights.safetensors",
        "state.safetensors", "rng.json", "runtime.json"}
GOOD = re.compile(r"done|error: \[(?!internal)[^\]]+\] (?!.*report this).*")
# What a process with AddressSanitizer does in place of std::bad_alloc.
TOO_LARGE = re.compile(r"allocation-size-too-big|out-of-memory|exceeds maximum supported size")


class Loader:
    """The process that loads files; started again after its end."""

    def __init__(self):
        self._process = None

    def ask(self, words: list[str]) -> str:
        """One line of what came of a command; an AssertionError if the process broke."""
        if self._process is None:
            self._start()
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        if select.select([self._process.stdout], [], [], TIMEOUT_S)[0]:
            if line := self._process.stdout.readline():
                return line.rstrip("\n")
        else:
            self._process.kill()
        status, process, self._process = self._process.wait(), self._process, None
        process.stdin.close()
        process.stdout.close()
        with self._errors:
            self._errors.seek(0)
            report = self._errors.read()
        if TOO_LARGE.search(report):
            return "error: [memory] AddressSanitizer refused the size of an allocation."
        raise AssertionError(f"exit status {status}\n{report[-6000:]}")

    def _start(self):
        self._errors = tempfile.TemporaryFile("w+")
        # Long contexts and quarantines take a third of the time.
        options = "max_allocation_size_mb=2048:detect_leaks=0:allocator_may_return_null=0:" \
                  "malloc_context_size=4:quarantine_size_mb=32"
        self._process = subprocess.Popen(
            [FOLDER / "load_files"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True, errors="replace",
            env={**os.environ, "ASAN_OPTIONS": options})


@dataclasses.dataclass
class Subject:
    """A program in a file, and all files that commands take with it.

    Attributes:
        folder: where the files are.
        program: its name in a bundle; "" for a file of one program.
        is_training: whether it can be trained.
        files: the bytes of ``model``, of ``array0`` and so on, and of ``weights`` and ``state``.
    """

    folder: Path
    program: str
    is_training: bool
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)

    def add(self, name: str, path) -> None:
        """Takes in a file."""
        self.files[name] = Path(path).read_bytes()
        (self.folder / name).write_bytes(self.files[name])

    @property
    def commands(self) -> list[list]:
        """The words of each command that takes the program."""
        model, out = self.folder / "model", self.folder / "out"
        arrays = [self.folder / name for name in self.files if name.startswith("array")]
        tensors = [word for name in ("weights", "state") if name in self.files
                   for word in (f"--{name}", self.folder / name)]
        name = ["--program", self.program] if self.program else []
        train = ["train", model, "--data", *arrays, "--steps", "1", "--threads", "1", *name,
                 *tensors, "--out", out / "weights", "--out-state", out / "state"]
        return [["model", model, self.program], ["inspect", model, "--json", *name],
                [model, *arrays, "--outdir", out, "--threads", "1", *name],
                *([train] if self.is_training else [])]


def saved(folder: Path, loader: Loader) -> list[Subject]:
    """The programs of compiled models, each alone and in a bundle."""
    subjects = []
    for name in file_models.NATIVE:
        model, arguments = file_models.make(name), file_models.arguments(name)
        alone = model.compileAndExport(folder / "alone", *arguments)
        bundle = poptorch.save_bundle({"one": model}, folder / "bundle")
        for path, program in ((alone, ""), (bundle, "one")):
            subject = Subject(folder / f"{name}{program}", program, name != "reader")
            (subject.folder / "out").mkdir(parents=True)
            subject.add("model", path)
            for number, tensor in enumerate(arguments):
                numpy.save(folder / "array.npy", tensor.numpy())
                subject.add(f"array{number}", folder / "array.npy")
            for words in subject.commands:
                assert (answer := loader.ask(words)) == "done", answer
            if subject.is_training:  # what one step led to
                subject.add("weights", subject.folder / "out" / "weights")
                subject.add("state", subject.folder / "out" / "state")
            subjects.append(subject)
    return subjects


@functools.cache
def _unpacked(data: bytes) -> dict[str, bytes]:
    return {name: member for name, member in damage.unpacked(data).items()
            if name.rpartition("/")[2] in READ}


def changed_program(draw: random.Random, good: bytes) -> tuple[bytes, str]:
    """A file of a program with changes in what the runtime reads, and what was done."""
    # A bomb takes a hundred times as long as others.
    kind = draw.choice(["member"] * 20 + ["address"] * 5 + ["bytes"] * 2 + ["sizes"] * 2 + ["bomb"])
    if kind == "bytes":
        return damage.damaged_bytes(draw, good), kind
    if kind == "sizes":
        return damage.hidden_sizes(draw, good), kind
    members = dict(_unpacked(good))
    names = sorted(members)
    if kind == "address":
        name = draw.choice([name for name in names if name.endswith("plan.ir")])
        members[name] = damage.moved(draw, members[name].decode()).encode()
    else:
        name = draw.choice(names)
        change = damage.bomb if kind == "bomb" else damage.damaged_member
        members[name] = change(draw, name, members[name])
    return damage.packed(members, [], False), f"{kind} of {name}"


def changed(draw: random.Random, subject: Subject, words: list) -> tuple[str, bytes, str]:
    """Changes one of the files of a command: its name, its bytes, and what was done."""
    names = [name for name in subject.files if subject.folder / name in words]
    name = draw.choice(["model", *names])
    good = subject.files[name]
    if name == "model":
        return name, *changed_program(draw, good)
    if name.startswith("array"):
        return name, damage.damaged_array(draw, good), name
    change = draw.choice([damage.damaged_tensors] * 4 + [damage.damaged_bytes])
    return name, change(draw, good), name


def search(subjects: list[Subject], loader: Loader, count: int, seed: int) -> Counter:
    """Changes so many files; how often each kind of answer came."""
    answers, begin = Counter(), time.monotonic()
    for number in range(1, count + 1):
        draw = random.Random(f"{seed} {number}")
        subject = draw.choice(subjects)
        words = draw.choice(subject.commands)
        name, data, what = changed(draw, subject, words)
        (subject.folder / name).write_bytes(data)
        try:
            answer = loader.ask(words)
            assert GOOD.fullmatch(answer), answer
        except AssertionError:
            shutil.copytree(subject.folder, FOLDER / "found", dirs_exist_ok=True)
            print(f"[fuzz] file {number}, {what}: see {FOLDER / 'found'}\n"
                  f"{' '.join(map(str, words))}", file=sys.stderr)
            raise
        (subject.folder / name).write_bytes(subject.files[name])
        answers["used" if answer == "done" else
                "too large" if "AddressSanitizer" in answer else "refused"] += 1
        if number % PROGRESS == 0:
            print(f"[fuzz] {number} files, {number / (time.monotonic() - begin):.0f} a second:",
                  dict(answers), flush=True)
    return answers


def main() -> int:
    """Builds, changes files, and says what came of them."""
    parser = argparse.ArgumentParser("python -m tests.fuzz.asan", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=100_000, help="number of files")
    parser.add_argument("--seed", type=int, default=0, help="of the changes")
    arguments = parser.parse_args()
    subprocess.run([sys.executable, "setup.py", "-q", "build_asan"], cwd=ROOT, check=True)
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        loader = Loader()
        subjects = saved(Path(folder), loader)
        answers = search(subjects, loader, arguments.count, arguments.seed)
    print(f"[fuzz] {answers.total()} files, no report:", dict(answers))
    return 0


if __name__ == "__main__":
    sys.exit(main())

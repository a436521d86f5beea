"""A process that loads files and runs them, so that a crash or a hang ends it and not the tests.

``python -m tests.fuzz.files.file_runner`` answers each line of JSON, a :class:`Task`, by one line:
the hash of the result or the message of the error, and the memory that it took.
"""

import dataclasses
import hashlib
import json
import os
import resource
import select
import subprocess
import sys

import torch

import poptorch
from tests.fuzz.files import file_models
from tests.helpers import ROOT, flatten


@dataclasses.dataclass
class Task:
    """What is to be done.

    Attributes:
        path: of the file.
        model: its name in ``file_models``.
        with_module: whether ``poptorch.load`` reads it, or ``loadExecutable``.
    """

    path: str
    model: str
    with_module: bool


@dataclasses.dataclass
class Answer:
    """What came of it.

    Attributes:
        result: hash of the call's results; None if there was an error.
        error: class and message; None where there was none.
        is_loaded: whether the error, if any, came from the run.
        peak_bytes: the most memory that the process ever had.
    """

    result: str | None
    error: list[str] | None
    is_loaded: bool
    peak_bytes: int


def result_hash(result) -> str:
    """A hash of the bits of all tensors of a result, and of its structure."""
    found = hashlib.sha256()
    for path, tensor in flatten(result).items():
        data = tensor.detach().contiguous()
        found.update(f"{path} {data.dtype} {tuple(data.shape)}".encode())
        found.update(data.flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def answer(task: Task) -> Answer:
    """Loads the file of a task and calls the model."""
    result = error = model = None
    try:
        if task.with_module:
            model = poptorch.load(task.path)
        else:
            wrapper = file_models.make(task.model)
            wrapper.loadExecutable(task.path)
            model = wrapper
        result = result_hash(model(*file_models.arguments(task.model)))
    except Exception as caught:
        kind = "poptorch.Error" if isinstance(caught, poptorch.Error) else type(caught).__name__
        error = [kind, str(caught)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Answer(result, error, model is not None, peak)


class Runner:
    """The parent's side: starts the process when it is needed, and again when it has ended."""

    def __init__(self):
        self._process = None

    def ask(self, task: Task, timeout_s: float) -> Answer:
        """Has a task done.

        Raises:
            AssertionError: The process died or did not answer in time.
        """
        if self._process is None:
            self._start()
        line = json.dumps(dataclasses.asdict(task)).encode() + b"\n"
        self._process.stdin.write(line)
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        reply = self._process.stdout.readline() if ready else b""
        if reply.endswith(b"\n"):
            return Answer(**json.loads(reply))
        if not ready:
            self.stop()
            raise AssertionError(f"no answer in {timeout_s} s")
        status = self._process.wait()
        self._process = None
        raise AssertionError(f"the process ended with status {status}")

    def _start(self) -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fuzz.files.file_runner"], cwd=ROOT, env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def stop(self) -> None:
        """Ends the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def main() -> None:
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what is printed is no reply
    for line in sys.stdin:
        reply = answer(Task(**json.loads(line)))
        replies.write(json.dumps(dataclasses.asdict(reply)) + "\n")
        replies.flush()


if __name__ == "__main__":
    main()

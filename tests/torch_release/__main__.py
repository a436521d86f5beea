"""Tests poptorch with another release of torch: ``make torch TORCH=2.14.1``, about 7 minutes.

``python -m tests.torch_release 2.14.1`` makes an environment with this torch in
``build/torch/2.14.1``, builds the extension for it beside the others in ``poptorch/lib``, checks
that the private names that poptorch uses exist and do what they did, exchanges files with the
environment of this Python, and runs one in 24 of the default tests, others each day. ``make torch
TORCH_ARGS=--python=python3.13`` does so with another Python. The exit status is 1 when a step
fails.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PARTS = 24
NAMES = ["tests/base/torch_private", "tests/base/test_extension_check.py"]


def needs(version: str) -> list[str]:
    """What an environment for the tests has, with this release of torch."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, extras = file["project"], file["project"]["optional-dependencies"]
    wanted = {*file["build-system"]["requires"], *project["dependencies"], *extras["test"],
              *extras["examples"]}
    return [f"torch=={version}", *sorted(need for need in wanted if not need.startswith("torch"))]


def make_environment(folder: Path, version: str, base: str = sys.executable) -> Path:
    """The Python of the environment, which is made with ``base`` where it is not complete."""
    python, done = folder / "bin" / "python", folder / "installed"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([base, "-m", "venv", folder], check=True)
        # Constraints that pip is configured with may be for an older torch.
        environment = {**os.environ, "PIP_CONSTRAINT": os.devnull}
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-compile", *needs(version)],
                       check=True, env=environment)
        done.touch()
    return python


def main(arguments: list[str]) -> int:
    """Does all steps, and prints how long each took."""
    today = int(time.time()) // 86400 % PARTS
    parser = argparse.ArgumentParser("python -m tests.torch_release", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="the release of torch, as pip names it")
    parser.add_argument("--python", default="", help="another Python than this one: python3.13")
    parser.add_argument("--part", type=int, default=today, choices=range(PARTS), metavar="0..23",
                        help=f"which of {PARTS} parts of the tests to run; today {today}")
    parsed = parser.parse_args(arguments)
    begin = time.monotonic()
    name = "-".join(filter(None, (parsed.version, Path(parsed.python).name)))
    python = make_environment(ROOT / "build" / "torch" / name, parsed.version,
                              parsed.python or sys.executable)
    print(f"[torch] environment: {time.monotonic() - begin:.0f} s", flush=True)
    tests = [python, "-m", "pytest", "-q", "-n", "auto", "--maxprocesses=4", "--dist=worksteal"]
    steps = {
        "build": [python, "setup.py", "-q", "build_ext", "--inplace"],
        # As in an ordinary environment: with the package's entry points.
        "install": [python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps",
                    "-e", "."],
        "names": [python, "-m", "pytest", "-q", *NAMES],
        "files": [sys.executable, "-m", "pytest", "-q", "-n0", "tests/versions"],
        f"tests, part {parsed.part} of {PARTS}": [*tests, f"--part={parsed.part}/{PARTS}"],
    }
    failed = 0
    for name, command in steps.items():
        begin = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, check=False,
                              env={**os.environ, "OMP_WAIT_POLICY": "passive",
                                   "POPTORCH_TEST_PYTHONS": str(python)})
        state = "failed" if done.returncode else "done"
        failed += done.returncode != 0
        print(f"[torch] {name}: {state} in {time.monotonic() - begin:.0f} s", flush=True)
        if failed and name in ("build", "install"):
            break
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

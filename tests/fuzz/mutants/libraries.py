"""The packages that are tried: the test build of the extension and the Python files.

All lie in ``build/mutants``: ``lib`` holds the package with all mistakes of the C++ part, of which
``POPTORCH_MUTANT`` activates one; ``edited/NAME`` the same with one mistake in a Python file.
What histories have to find is tried with the extension that is shipped, and ``shipped`` has none.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.fuzz.mutants.edits import EDITS, Edit
from tests.package_links import ROOT, link_shared_files

FOLDER = ROOT / "build" / "mutants"
LIST = ROOT / "csrc" / "support" / "mutants.def"

_ROW = re.compile(r'^MISTAKE\((\w+), "([^"]+)"\)$', flags=re.MULTILINE)
_IGNORED = re.compile(r'^IGNORED\((\w+), "([^"]+)",\n +"([^"]+)"\)$', flags=re.MULTILINE)


def mistakes() -> dict[str, str]:
    """The mistakes of the C++ part: name and what goes wrong."""
    text = LIST.read_text()
    return dict(_ROW.findall(text)) | {name: doc for name, doc, _ in _IGNORED.findall(text)}


def tests() -> dict[str, str]:
    """The tests that see the settings that are ignored: by the name of the mutant."""
    return {name: test for name, _, test in _IGNORED.findall(LIST.read_text())}


def all_mutants() -> dict[str, str]:
    """Name and meaning of all mutants."""
    return mistakes() | {edit.name: edit.doc for edit in EDITS}


def judge_of(mutant: str) -> str:
    """What has to find a mutant, see :class:`Edit`."""
    judges = tests() | {edit.name: edit.judge for edit in EDITS}
    return judges.get(mutant, "programs")


def is_shipped(judge: str) -> bool:
    """Whether a judge looks for edits of the Python part alone."""
    return judge in ("weights", "groups", "optimizers")


def build(chosen: list[str] | None = None) -> None:
    """Builds the extension, if one of the mutants needs it, and lays out all packages again.

    Args:
        chosen: names of mutants; None: all.
    """
    shutil.rmtree(FOLDER / "edited", ignore_errors=True)
    _lay_out(FOLDER / "shipped", ROOT / "poptorch")
    is_built = chosen is None or not all(is_shipped(judge_of(name)) for name in chosen)
    if is_built:
        subprocess.run([sys.executable, "setup.py", "-q", "build_mutants"], cwd=ROOT, check=True)
        _lay_out(FOLDER / "lib", FOLDER / "lib" / "poptorch")
    for edit in EDITS:
        if is_built or is_shipped(edit.judge):
            folder = FOLDER / "edited" / edit.name
            _lay_out(folder, ROOT / "poptorch" if is_shipped(edit.judge)
                     else FOLDER / "lib" / "poptorch")
            _apply(edit, folder)


def _lay_out(folder: Path, built: Path) -> None:
    package, extension = folder / "poptorch", next(built.glob("lib/*/_C*.so"))
    link_shared_files(package)
    link = package / extension.relative_to(built)
    if not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(extension)


def _apply(edit: Edit, folder: Path) -> None:
    file = folder / "poptorch" / edit.file
    text = file.read_text()
    if text.count(edit.old) != 1:
        raise SystemExit(f"[mutants] {edit.old!r} stands {text.count(edit.old)} times in "
                         f"poptorch/{edit.file}, it must be once. Correct {edit.name} in "
                         f"tests/fuzz/mutants/edits.py.")
    file.unlink()  # a link
    file.write_text(text.replace(edit.old, edit.new))


def folder_of(mutant: str, judge: str = "programs") -> Path:
    """The folder from which a mutant, or none (""), is imported."""
    edited = FOLDER / "edited" / mutant
    if mutant in {edit.name for edit in EDITS}:
        return edited
    return FOLDER / ("shipped" if is_shipped(judge) else "lib")


def environment_of(mutant: str, judge: str = "programs") -> dict[str, str]:
    """Environment variables with which Python imports it."""
    active = mutant if mutant in mistakes() else ""
    return {**os.environ, "POPTORCH_MUTANT": active,
            "PYTHONPATH": os.pathsep.join([str(folder_of(mutant, judge)), str(ROOT)])}

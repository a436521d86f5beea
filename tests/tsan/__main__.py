"""Two executors in two threads under ThreadSanitizer: ``python -m tests.tsan``, or ``make tsan``.

Builds the extension with ThreadSanitizer in ``build/tsan/lib``, with links to the Python files,
and runs ``tests/tsan/two_engines.py`` there. Python itself, torch, and kernels that keep nothing
between calls are built without it: what they do is not looked at, but their locks and threads are
known. The exit status is 1 when there is a report that ``suppressions.txt`` does not name, or when
the script fails.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from tests.package_links import ROOT, link_shared_files

LIB = ROOT / "build" / "tsan" / "lib"
HERE = Path(__file__).resolve().parent
REPORTED = 66  # the exit status of a process with reports


def main() -> int:
    """Builds, runs, and says what was found."""
    argparse.ArgumentParser(
        "python -m tests.tsan", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    subprocess.run([sys.executable, "setup.py", "-q", "build_tsan"], cwd=ROOT, check=True)
    link_shared_files(LIB / "poptorch")
    found = subprocess.run([sys.executable, HERE / "two_engines.py"], cwd=ROOT,
                           env=_environment(), check=False)
    if found.returncode == 0:
        print("[tsan] no reports")
        return 0
    words = "there are reports" if found.returncode == REPORTED else "the script failed"
    print(f"[tsan] {words}, see above")
    return 1


def _environment() -> dict[str, str]:
    compiler = os.environ.get("CXX", "g++").split()
    asked = subprocess.run([*compiler, "-print-file-name=libtsan.so"], check=True, text=True,
                           capture_output=True)
    options = [f"suppressions={HERE / 'suppressions.txt'}", f"exitcode={REPORTED}",
               "halt_on_error=0", "history_size=4", "second_deadlock_stack=1"]
    return {**os.environ, "LD_PRELOAD": asked.stdout.strip(), "TSAN_OPTIONS": " ".join(options),
            "PYTHONPATH": os.pathsep.join([str(LIB), str(ROOT)]),
            # Steps are read from their text again: names are made in both threads at once.
            "POPTORCH_RELOAD_IR": "1"}


if __name__ == "__main__":
    sys.exit(main())

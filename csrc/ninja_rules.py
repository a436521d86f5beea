"""The compiler, ninja and the rules of ninja files, for setup.py."""

import os
import shutil
import sys


def find_ninja():
    """Path of ninja: in the folder of this Python, else on PATH."""
    folder = os.path.dirname(sys.executable)
    found = shutil.which("ninja", path=os.pathsep.join([folder, os.environ.get("PATH", "")]))
    if found is None:
        raise SystemExit("[setup] ninja was not found. Run `pip install ninja`.")
    return found


def find_compiler():
    """The C++ compiler: CXX, else g++."""
    cxx = os.environ.get("CXX", "g++")
    if shutil.which(cxx.split()[-1]) is None:
        words = "was not found. Install a C++20 compiler (g++ 12 or later), or set CXX to one."
        raise SystemExit(f"[setup] the compiler {cxx!r} {words}")
    return cxx


def rules():
    """The rules of a ninja file: how files are compiled and linked."""
    cxx = find_compiler()
    launcher = ""
    if shutil.which("ccache") and "ccache" not in cxx:
        # ccache asks for the first where a header is precompiled; with the second it does not read
        # 70 MB of headers again for each source.
        launcher = "CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_INODECACHE=1 ccache "
    return [
        "rule compile",
        f"  command = {launcher}{cxx} $flags -MMD -MF $out.d -c $in -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $in",
        # The text is in the same folder, for a compiler that rejects what a different one compiled.
        # -MD: other headers of the system or of torch must be compiled again.
        "rule precompile",
        f"  command = cp -p $in $text && {launcher}{cxx} $flags -MD -MF $out.d -x c++-header $text "
        "-o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = compile $in",
        "rule link",
        f"  command = {cxx} @$out.rsp -o $out $flags",
        "  rspfile = $out.rsp",
        "  rspfile_content = $in",
        "  description = link $out",
    ]

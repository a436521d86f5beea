"""What each source of csrc is part of, and what it needs; for setup.py."""

import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

AVX512 = "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512".split()
INSTRUCTION_SETS = {
    "_avx2.cpp": "-mavx2 -mfma -mf16c".split(),
    "_avx512.cpp": AVX512,
    "_avx512bf16.cpp": [*AVX512, "-mavx512bf16"],
    # GCC 12 warns of its own headers.
    "_amx.cpp": [*AVX512, "-mamx-tile", "-mamx-bf16", "-Wno-uninitialized",
                 "-Wno-maybe-uninitialized"],
}
# What computes, what each call of a program passes through, and what reads a program of a file.
HOT = ("csrc/kernels/", "csrc/run/", "csrc/support/", "csrc/ir/")


def sources():
    """All C++ sources relative to the root, sorted; those of one instruction set come last.

    The linker keeps the first copy of an inline function that several objects hold, and that must
    be one that runs on any processor.
    """
    found = [str(p.relative_to(ROOT)) for p in (ROOT / "csrc").glob("**/*.cpp")]
    return sorted(found, key=lambda path: (path.endswith(tuple(INSTRUCTION_SETS)), path))


def is_core(source):
    """Whether a source belongs to the part that knows neither Python nor torch."""
    return not source.startswith(("csrc/kernels/", "csrc/python/"))


def is_program(source):
    """Whether a source belongs to a program, not to a library."""
    return source.startswith("csrc/program/")


def needs_torch(source):
    """Whether a source may include torch's headers."""
    return reaches("#include <(ATen|c10|torch)/", source)


def needs_python(source):
    """Whether a source may include Python's headers."""
    return source.startswith("csrc/python/")


def is_for_torch(source):
    """Whether a source belongs to what is linked for each release of torch."""
    return needs_python(source) or source.startswith("csrc/kernels/aten/")


def takes_long(source):
    """How early a source is to be compiled: first what reads torch's headers of Python objects."""
    return needs_torch(source), reaches("#include <torch/csrc/", source)


@functools.cache
def reaches(pattern, source):
    """Whether a source, or what it includes, has text that fits the pattern."""
    text = (ROOT / source).read_text()
    # A header may be included by way of a macro.
    named = re.findall(r'^#\s*(?:include|define \w+)\s+"([^"]+)"', text, flags=re.MULTILINE)
    included = [f"csrc/{name}" for name in named if (ROOT / "csrc" / name).is_file()]
    return bool(re.search(pattern, text)) or any(reaches(pattern, name) for name in included)


def knows_mutants(source):
    """Whether a source is compiled differently for the test build."""
    return reaches("MUTANT", source)


def needs_x86(source):
    """Whether a source takes intrinsics of x86 on every processor: under no condition."""
    always = r"(?m)^(?!#\s*if).*\n#include <immintrin\.h>"
    return source.endswith(tuple(INSTRUCTION_SETS)) or reaches(always, source)


@functools.cache
def has_shared_state(source):
    """Whether a kernel's source keeps anything from call to call, or calls what may."""
    text = (ROOT / source).read_text()
    return needs_torch(source) or re.search(r"thread_local|std::(mutex|atomic)", text) is not None


def reads_files(source):
    """Whether a source reads files of compiled models, or checks the plan in them."""
    return source.startswith(
        ("csrc/program/", "csrc/runtime/", "csrc/ir/", "csrc/plan/", "csrc/assemble/", "tests/"))


def precompiled_header(source):
    """The header, compiled at a source's own level, that it is given; None: there is none.

    g++ crashes on one of another level.
    """
    if source.endswith(tuple(INSTRUCTION_SETS)):
        return None
    if reaches("#include <pybind11/", source):
        # Not for others: it adds 100 KB of code to each object.
        return "csrc/python/precompiled.h"
    if source.startswith("csrc/kernels/"):
        return "csrc/kernels/precompiled.h"
    return "csrc/support/precompiled.h" if source.startswith(HOT) else "csrc/ir/precompiled.h"

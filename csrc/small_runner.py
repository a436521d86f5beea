"""Runners without torch that have only what some programs need; for setup.py.

docs/internals/runtime.md explains how they are built.
"""

import re
import subprocess
from pathlib import Path

# By the instruction set of the kernels: floats of a vector, and the level that has them in
# csrc/kernels/simd/each_isa.h.
LEVELS = {"base": (4, "base"), "avx2": (8, "avx2"), "avx512": (16, "avx512"),
          "amx": (16, "avx512")}
# The library's own would print the exception's type, for which it brings a demangler of 50 KB.
QUIET_END = """#include <cstdlib>
namespace __gnu_cxx { void __verbose_terminate_handler() { std::abort(); } }
"""
SMALL = "-ffunction-sections -fdata-sections -fno-pic -fno-pie -DPOPTORCH_CHOSEN".split()


def flags_of_level(cpu, is_hot, has_vectors):
    """Compiler flags of a source of the objects that such runners are linked from.

    Constants of vectors hold addresses of several functions, and would keep all of them. Kernels
    that are not written on vectors are compiled without: the bits are the same.
    """
    width, table = LEVELS[cpu]
    size = [] if has_vectors else ["-fno-tree-slp-vectorize"] if is_hot else ["-Os"]
    return [*size, *SMALL, f"-DPOPTORCH_ONLY_ISA={cpu}", f"-DPOPTORCH_ONLY_WIDTH={width}",
            f"-DPOPTORCH_ONLY_TABLE={table}"]


def native_level():
    """The key of ``LEVELS`` that is the best one of this machine (csrc/support/cpu/isa.cpp)."""
    flags = set(re.search(r"flags\s*:(.*)|$", Path("/proc/cpuinfo").read_text())[0].split())
    needs = {"avx2": {"avx2", "fma", "f16c"},
             "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
             "amx": {"amx_tile", "amx_bf16"}}
    level = "base"
    for name, needed in needs.items():
        if not needed <= flags:
            break
        level = name
    return level


def registered_names(objects):
    """The names in AT_LOAD of object files, in the order of the sources."""
    symbols = subprocess.run(["nm", "-p", "--defined-only", *objects], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    return re.findall(r" T poptorch\.(\S+)$", symbols, flags=re.MULTILINE)


def link(names, objects, folder, compiler, flags):
    """Links ``poptorch-run`` in a folder: what AT_LOAD registers by these names, and what it needs.

    ``compiler``: its words; ``flags``: what comes last. The path of the file that is linked.
    """
    folder.mkdir(parents=True, exist_ok=True)
    calls = folder / "at_load.cpp"
    calls.write_text(QUIET_END + "".join(
        f'void load_{i}() __asm__("poptorch.{name}");\n'
        f"static const bool is_loaded_{i} = (load_{i}(), true);\n"
        for i, name in enumerate(names)))
    archive = folder / "objects.a"
    archive.unlink(missing_ok=True)
    subprocess.run(["ar", "crsT", archive, *objects], check=True)
    main = next(path for path in objects if path.match("program/main.cpp.o"))
    subprocess.run([*compiler, "-fopenmp", "-no-pie", "-Wl,--gc-sections",
                    "-Wl,-z,noseparate-code", "-Wl,--build-id=none", calls, main, archive, *flags,
                    f"-Wl,-Map={folder / 'link.map'}", "-o", folder / "poptorch-run"], check=True)
    return folder / "poptorch-run"

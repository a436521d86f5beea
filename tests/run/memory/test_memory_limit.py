"""How much memory the process may have: the machine's, or what its control group leaves."""

import os

import pytest

from poptorch import _C
from poptorch.errors import Error

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
NO_LIMIT = "9223372036854771712"  # what version 1 says

CASES = {
    "no groups": ({}, MACHINE),
    "version 2": ({"proc/self/cgroup": "0::/a/b", "a/b/memory.max": 700 * MIB}, 700 * MIB),
    "version 2, none": ({"proc/self/cgroup": "0::/a", "a/memory.max": "max"}, MACHINE),
    "version 2, of an outer group": (
        {"proc/self/cgroup": "0::/a/b/c", "a/b/c/memory.max": 900 * MIB, "a/b/memory.max": "max",
         "a/memory.max": 300 * MIB}, 300 * MIB),
    "version 2, in a container": (
        {"proc/self/cgroup": "0::/outside/name", "memory.max": 64 * MIB}, 64 * MIB),
    "version 2, top group": ({"proc/self/cgroup": "0::/", "memory.max": 64 * MIB}, 64 * MIB),
    "version 2, all of the file system is outside": (
        {"proc/self/cgroup": "0::/../../x", "memory.max": 64 * MIB}, 64 * MIB),
    "version 1": (
        {"proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/",
         "memory/a/b/memory.limit_in_bytes": 512 * MIB,
         "memory/memory.limit_in_bytes": NO_LIMIT}, 512 * MIB),
    "version 1, several controllers": (
        {"proc/self/cgroup": "4:hugetlb,memory:/a",
         "memory/a/memory.limit_in_bytes": 512 * MIB}, 512 * MIB),
    "version 1, none": (
        {"proc/self/cgroup": "4:memory:/a", "memory/a/memory.limit_in_bytes": NO_LIMIT}, MACHINE),
    "version 1, in a container": (
        {"proc/self/cgroup": "4:memory:/outside",
         "memory/memory.limit_in_bytes": 512 * MIB}, 512 * MIB),
    "both": (
        {"proc/self/cgroup": "4:memory:/a\n0::/b", "memory/a/memory.limit_in_bytes": 512 * MIB,
         "unified/b/memory.max": 256 * MIB}, 256 * MIB),
    "more than there is": ({"proc/self/cgroup": "0::/a", "a/memory.max": 1 << 60}, MACHINE),
    "damaged": ({"proc/self/cgroup": "0\n\n::\n4:memory\n0::", "memory.max": "-5"}, MACHINE),
}


@pytest.mark.parametrize("name", CASES)
def test_limits(name, tmp_path):
    files, limit = CASES[name]
    for path, text in files.items():
        path = tmp_path / (path if path.startswith("proc") else f"sys/fs/cgroup/{path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert _C.memory_limit(str(tmp_path)) == limit


def test_of_this_process():
    assert 0 < _C.memory_limit() <= MACHINE


def program(elements, replicas):
    text = (f"graph main {{\n  %x = full {{dtype=dtype:u8, fill_value=0.0, size=[{elements}]}} : "
            f"u8[{elements}]\n  %0 = slice %x {{end=1}} : u8[1]\n"
            f"  stream_out %0 {{stream=\"y\"}}\n  output\n}}\n")
    return _C.compile(_C.parse(text), {"replicas": replicas, "pass_limit": 0})


@pytest.mark.parametrize(("part", "replicas"), [(1.1, 1), (0.4, 3)])
def test_programs_that_do_not_fit_are_refused(part, replicas):
    with pytest.raises(Error, match=rf"\[run\] the memory of {replicas} replicas needs \d+ bytes "
                                    rf"for each, this process may have {_C.memory_limit()} bytes"):
        program(int(_C.memory_limit() * part), replicas)

"""What figures depend on: the machine and the version."""

import os
import platform
import subprocess
from pathlib import Path

import torch

from poptorch.version import __version__

UNITS = {"amx_bf16": "AMX", "avx512_bf16": "AVX-512 BF16", "avx512_vnni": "AVX-512 VNNI"}


def _cpuinfo(key):
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.split("\t")[0].strip() == key:
                return line.partition(":")[2].strip()
    return ""


def machine():
    """Processor, instruction sets and cores, as one line."""
    flags = set(_cpuinfo("flags").split())
    units = [name for flag, name in UNITS.items() if flag in flags]
    facts = [_cpuinfo("model name") or platform.machine()]
    facts += [f"model {_cpuinfo('model')}"] if _cpuinfo("model") else []
    facts += [torch.backends.cpu.get_cpu_capability(), *units]
    facts += [f"{os.cpu_count()} cores", f"{torch.get_num_threads()} threads"]
    return ", ".join(facts)


def version():
    """That of the package, with the commit where there is one."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    folder = Path(__file__).parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:
        return __version__
    return f"{__version__} {done.stdout.strip()}".strip()


def origin():
    """What each row records of its origin."""
    return {"machine": machine(), "version": version(), "torch": torch.__version__}

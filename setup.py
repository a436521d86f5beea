"""Builds poptorch: the Python package, the extension ``poptorch._C`` and ``poptorch/lib``.

:func:`products` lists the files that are linked, csrc/README.md describes them.

Sources are found by glob, so this file is not edited to add one. What is compiled how:

* files whose name ends in ``_avx2.cpp``, ``_avx512.cpp``, ``_avx512bf16.cpp`` or ``_amx.cpp`` get
  the flags of that instruction set; everything else is built for any x86-64, so a wheel runs on any
  such machine;
* only sources that include torch's headers are given them. torch changes these in each minor
  release, so what includes them is compiled for each, everything else once. The extension for
  torch 2.13 is ``poptorch/lib/torch2_13/_C*.so``; the package takes the one that fits;
* the standard library, with pybind11 for ``csrc/python`` and the IR for what compiles programs, is
  read from headers compiled once, the four ``precompiled.h``: reading them took a third of a
  build. Sources name what they include all the same, and the builds below, but for objects of the
  ordinary one, go without.

Switches, all environment variables: ``POPTORCH_TORCH`` (folders that hold a package ``torch``, with
``:`` between them, to build for; default: that of this Python), ``DEBUG=1`` (no optimization,
assertions, debug symbols),
``MAX_JOBS=n`` (compiler processes), ``CXX`` (the compiler). ``ccache`` is used when it is on PATH.
``python setup.py build_objects`` compiles, for ``build_ext``, the sources that need no torch,
``python setup.py build_core`` compiles all of csrc but kernels and python,
``python setup.py build_runner`` links a poptorch-run without torch that needs no other file, with
``--program FILE --cpu avx2`` one that has only what the program in FILE needs,
``python setup.py build_mutants`` the test build of csrc/support/mutant.h into build/mutants,
``python setup.py build_tsan`` that of ``make tsan``, with ThreadSanitizer, into build/tsan,
``python setup.py build_asan`` the loader of ``make fuzz-files``, with AddressSanitizer,
``python setup.py build_aarch64`` compiles for 64-bit ARM what needs neither torch nor x86.
"""

import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Command, Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "csrc"))

import small_runner  # noqa: E402
from ninja_rules import find_compiler, find_ninja, rules  # noqa: E402
from source_kinds import (  # noqa: E402
    HOT,
    INSTRUCTION_SETS,
    has_shared_state,
    is_core,
    is_for_torch,
    is_program,
    knows_mutants,
    needs_python,
    needs_torch,
    needs_x86,
    precompiled_header,
    reaches,
    reads_files,
    sources,
    takes_long,
)

DEBUG = os.environ.get("DEBUG") == "1"
# Not setuptools' build_temp: an editable install has a new, empty one each time.
OBJECTS = ROOT / "build" / f"temp.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"

COMMON = (
    "-std=c++20 -fPIC -fopenmp -fvisibility=hidden -fvisibility-inlines-hidden -ffp-contract=fast "
    "-fno-math-errno -fno-trapping-math -Wall -Wno-psabi"
).split()
OPTIMIZE = ["-O0", "-g", "-D_GLIBCXX_ASSERTIONS"] if DEBUG else ["-g0", "-DNDEBUG"]
# Libraries show their functions to each other; kernels those with POPTORCH_SHOWN. Calls within one
# do not go through tables of addresses: neither the compiler nor the linker (-Bsymbolic) lets
# another library replace them.
SHOWN = ["-fvisibility=default", "-fno-semantic-interposition"]
LIB = "poptorch/lib"
TSAN = "-O1 -g1 -fsanitize=thread -Wno-tsan".split()
TSAN_LINK = ["-fsanitize=thread", "-Wl,--wrap=GOMP_parallel"]
ASAN = "-O1 -g1 -fsanitize=address -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS".split()
LOADER = "tests/fuzz/asan/load_files.cpp"


def test_flags(source, build):
    """What a test build, such as "tsan", adds to the flags; None: it takes the same object."""
    if build == "mutants":
        return ["-DPOPTORCH_MUTANTS"] if knows_mutants(source) else None
    if build.startswith("runner_"):
        cpu = build.removeprefix("runner_")
        has_vectors = source.endswith(tuple(INSTRUCTION_SETS)) or reaches("each_isa.h", source)
        is_hot = source.startswith("csrc/kernels/")
        return small_runner.flags_of_level(cpu, is_hot, has_vectors)
    if build == "asan":
        return ASAN if reads_files(source) else None
    # Kernels that only compute write what they are given, and take most of the time of a build.
    computes = source.startswith("csrc/kernels/") and not has_shared_state(source)
    return None if computes or source.endswith(tuple(INSTRUCTION_SETS)) else TSAN


@functools.cache
def torches():
    """The torch packages to build for, by name: ``{"torch2_13": folder}``. None is imported."""
    named = os.environ.get("POPTORCH_TORCH")
    found = importlib.util.find_spec("torch")
    folders = [Path(folder) / "torch" for folder in named.split(os.pathsep)] if named \
        else [Path(found.origin).parent] if found else []
    return {name_of(folder): folder.resolve() for folder in folders}


def name_of(torch):
    """``torch2_13`` for the folder of any torch 2.13."""
    release = re.search(r"__version__ = '(\d+)\.(\d+)", (torch / "version.py").read_text())
    return "torch{}_{}".format(*release.groups())


def python_flags():
    """Include flags of pybind11 and Python."""
    # Here, so that the core is built and metadata are read where pybind11 is absent.
    import pybind11

    return system_flags([pybind11.get_include(), sysconfig.get_paths()["include"]])


def torch_flags(torch):
    """Include flags of a torch package, which has a pybind11 of its own: they come last."""
    return system_flags([torch / "include", torch / "include/torch/csrc/api/include"])


def system_flags(paths):
    """Include flags of headers that are not ours."""
    return [flag for path in paths for flag in ("-isystem", str(path))]


def link_flags(*libraries, search=(), shared=True):
    """Flags of the linker; ``search``: folders in which a file looks for ``libraries`` it needs."""
    return [*(["-shared", "-Wl,-Bsymbolic"] if shared else []), "-fopenmp", "-Wl,-O1",
            *(["-s"] if not DEBUG else []), "-Wl,--as-needed", *libraries,
            # ninja's sign, then the shell's
            *(f"'-Wl,-rpath,{path.replace('$', '$$')}'" for path in search)]


def torch_libraries(torch):
    """What the extension and the calls of torch's operators link."""
    return [f"-L{torch / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"]


def products(torch, inplace):
    """What ninja links: (file in ``poptorch``, whether a source is part of it, flags).

    A file finds the others by its own place: beside it, or in the folder of packages of the
    environment that has it in ``bin``. With ``inplace`` torch, and the checkout, are where they
    are now.
    """
    here = [str(ROOT / LIB)] if inplace else []
    torch_here = [str(torch / "lib")] if inplace else []
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    bin_folders = [f"$ORIGIN/../lib/{python}/{name}/poptorch/lib"
                   for name in ("site-packages", "dist-packages")]
    core, folder = "lib/libpoptorch.so", f"lib/{name_of(torch)}"
    aten = f"{folder}/libpoptorch_aten.so"
    return [
        (core, lambda s: not is_for_torch(s) and not is_program(s),
         link_flags("-Wl,-soname,libpoptorch.so", search=["$ORIGIN"])),
        (aten, lambda s: s.startswith("csrc/kernels/aten/"),
         link_flags("-Wl,-soname,libpoptorch_aten.so", core, *torch_libraries(torch),
                    search=["$ORIGIN/..", "$ORIGIN/../../../torch/lib", *torch_here])),
        (f"{folder}/_C{sysconfig.get_config_var('EXT_SUFFIX')}", needs_python,
         link_flags(aten, core, *torch_libraries(torch), search=["$ORIGIN", "$ORIGIN/.."])),
        ("lib/poptorch-run", is_program,
         link_flags(core, search=["$ORIGIN", *here, *bin_folders], shared=False)),
    ]


def level_of(source):
    """How much the compiler optimizes: least what only compiles programs, half of all code."""
    return "-O3" if source.startswith(HOT) else "-O1"


def flags_of(source, torch):
    """Compiler flags of one source, which sees the headers of this torch package."""
    flags = [*COMMON, *OPTIMIZE, "-Icsrc"]
    if not DEBUG:
        flags.append(level_of(source))
    if reaches("#include [<\"]poptorch/", source):
        flags.append("-Ipoptorch/include")
    for suffix, extra in INSTRUCTION_SETS.items():
        if source.endswith(suffix):
            flags += extra
    if not source.startswith(("csrc/python/", "csrc/kernels/")):
        flags += SHOWN
    if needs_python(source):
        flags += python_flags()
    return flags + (torch_flags(torch) if needs_torch(source) else [])


def write_ninja(folder, chosen, torch=None, links=(), build=None):
    """Writes a ninja file into ``folder``: one object of each source chosen, and what is linked.

    ``torch`` is the folder of the package that they are for. ``links`` are as :func:`products` has
    them. With a ``build`` it is that of this test build, which shares objects with the ordinary
    one. Precompiled headers are for what lies in ``OBJECTS``.
    """
    # ``builddir`` is where ninja keeps its own records.
    lines = ["ninja_required_version = 1.8", f"builddir = {folder}", *rules()]
    objects, headers = {}, set()
    # ninja begins with what stands first: with what takes longest, or one core waits in the end.
    for source in sorted(chosen, key=takes_long, reverse=True):
        flags, place = flags_of(source, torch), folder
        extra = test_flags(source, build) if build else None
        needed = ""
        if extra is not None:
            flags, place = [*flags, *extra], folder / build
        elif folder == OBJECTS and (header := precompiled_header(source)):
            # Relative, so that ccache takes the same objects in any checkout.
            text = os.path.relpath(folder / header, ROOT)
            flags += ["-include", text, "-Winvalid-pch", "-fpch-preprocess"]
            needed = f" | {text}.gch"
            headers.add((header, text))
        if needs_torch(source):
            place /= name_of(torch)
        objects[source] = f"{place / source}.o"
        lines += [f"build {objects[source]}: compile {source}{needed}"]
        lines += [f"  flags = {' '.join(flags)}"]
    for header, text in sorted(headers):
        lines += [f"build {text}.gch: precompile {header}", f"  text = {text}"]
        lines += [f"  flags = {' '.join(flags_of(header, None))}"]
    for name, has, flags in links:
        # One product names another by its place in the folder.
        known = {other: str(folder / other) for other, _, _ in links}
        needed = " ".join(known[flag] for flag in flags if flag in known)
        linked = " ".join(objects[source] for source in chosen if has(source))
        lines += [f"build {folder / (build or '') / name}: link {linked} | {needed}",
                  f"  flags = {' '.join(known.get(flag, flag) for flag in flags)}"]
    whole = [folder / (build or "") / name for name, _, _ in links] or objects.values()
    lines.append(f"build all: phony {' '.join(map(str, whole))}")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{build or (name_of(torch) if torch else 'build')}.ninja"
    path.write_text("\n".join(lines) + "\n")
    return path


def run_ninja(path):
    """Builds the target ``all`` of a ninja file, from the root of the repository."""
    jobs = os.environ.get("MAX_JOBS")
    command = [find_ninja(), "-f", str(path), *(["-j", jobs] if jobs else []), "all"]
    environment = {"NINJA_STATUS": "[%f/%t files, %e s] ", **os.environ}
    environment.pop("MAKEFLAGS", None)  # with it ninja asks make for jobs, by a pipe it cannot see
    subprocess.run(command, cwd=ROOT, check=True, env=environment, stdout=sys.stderr.fileno())


def torch_of(ext):
    """The folder of the torch package that an extension is for."""
    torch = torches().get(ext.name.split(".")[-2])
    if torch is None:
        raise SystemExit("[setup] torch was not found. Run `pip install torch`, or set "
                         "POPTORCH_TORCH to a folder that holds the package torch.")
    return torch


def build_files(targets, links, torch=None, build=None, chosen=None):
    """Compiles and links in ``OBJECTS``, then replaces the files in the folders ``targets``.

    ``chosen``: the sources that are needed; None: all.
    """
    folder = OBJECTS / build if build else OBJECTS
    run_ninja(write_ninja(OBJECTS, chosen or sources(), torch, links, build))
    for path, name in ((target / name, name) for target in targets for name, _, _ in links):
        # A copy replaces the file, so a process that has the old one mapped is not disturbed.
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        shutil.copy(folder / name, path)


class BuildWithNinja(build_ext):
    """``build_ext`` that hands the extension, and the libraries, to ninja."""

    def finalize_options(self):
        super().finalize_options()
        self.stays = self.inplace or self.editable_mode  # `run` changes the former

    def build_extension(self, ext):
        built = Path(self.get_ext_fullpath(ext.name)).resolve().parents[2]
        targets = [built, ROOT / "poptorch"] if self.stays else [built]
        torch = torch_of(ext)
        build_files(targets, products(torch, self.stays), torch)


class BuildMutants(BuildWithNinja):
    """Builds the extension with the mistakes of csrc/support/mutants.def, none of them active.

    All of it is one file: another copy of the libraries may be in the process.
    """

    description = "build the extension of `make mutants`"
    variant = "mutants"

    def build_extension(self, ext):
        torch = torch_of(ext)
        flags = link_flags(*torch_libraries(torch))
        if self.variant == "tsan":  # its reports name functions
            flags = [flag for flag in flags if flag != "-s"] + TSAN_LINK
        whole = (self.get_ext_filename(ext.name).removeprefix("poptorch/"),
                 lambda s: not is_program(s), flags)
        build_files([ROOT / "build" / self.variant / "lib/poptorch"], [whole], torch, self.variant)


class BuildTsan(BuildMutants):
    """Builds the extension with ThreadSanitizer."""

    description = "build the extension of `make tsan`"
    variant = "tsan"


class BuildCore(Command):
    """Compiles all of ``csrc`` but ``kernels`` and ``python``, with no torch to be seen."""

    description = "compile the sources that need neither torch nor Python"
    user_options = []
    folder = ROOT / "build" / "core"

    def initialize_options(self):
        """Nothing to set up."""

    def finalize_options(self):
        """Nothing to check."""

    def run(self):
        run_ninja(write_ninja(self.folder, self.chosen()))

    def chosen(self):
        """What is compiled."""
        return [source for source in sources() if is_core(source)]


class BuildObjects(BuildCore):
    """Compiles what ``build_ext`` takes and needs no torch, which is installed meanwhile."""

    description = "compile the sources that need no torch, for build_ext"
    folder = OBJECTS

    def chosen(self):
        return [source for source in sources() if not needs_torch(source)]


class BuildRunner(BuildCore):
    """Links ``build/runner/poptorch-run``: one file, which needs the system's C library alone."""

    description = "link a poptorch-run without torch that needs no other file"
    folder = OBJECTS

    user_options = [("program=", None, "files of the only programs that it is to run"),
                    ("cpu=", None, "with program: its instruction set, native or one of "
                                   + ", ".join(small_runner.LEVELS))]
    flags = ["-O1", "-s", "-static-libstdc++", "-static-libgcc", "-Wl,-Bstatic", "-lgomp",
             "-Wl,-Bdynamic", "-ldl"]

    def initialize_options(self):
        self.program, self.cpu = None, "native"

    def run(self):
        chosen = [source for source in sources() if not is_for_torch(source)]
        if self.program is not None:
            self.link_small(chosen, self.program.split())
            return
        link = ("runner/poptorch-run", chosen.__contains__, self.flags)
        build_files([ROOT / "build"], [link], chosen=chosen)

    def link_small(self, chosen, programs):
        """Links ``build/runner/small/poptorch-run``, with what the programs look up.

        ``build/runner/<cpu>/poptorch-run``, which has everything, says what that is.
        """
        cpu = small_runner.native_level() if self.cpu == "native" else self.cpu
        if cpu not in small_runner.LEVELS:
            known = ", ".join(small_runner.LEVELS)
            raise SystemExit(f"[setup] CPU is {cpu}. Give native or one of {known}.")
        run_ninja(write_ninja(OBJECTS, chosen, build=f"runner_{cpu}"))
        objects = [OBJECTS / f"runner_{cpu}" / f"{source}.o" for source in chosen]
        names = small_runner.registered_names(objects)
        folder, flags = ROOT / "build" / "runner", self.flags
        compiler = find_compiler().split()
        whole = small_runner.link(names, objects, folder / cpu, compiler, flags)
        said = subprocess.run([whole, "needs", *programs], text=True, stdout=subprocess.PIPE)
        if said.returncode != 0:  # it has said why
            raise SystemExit(said.returncode)
        needs = set(said.stdout.split())
        chosen_names = [name for name in names if name in needs]
        small_runner.link(chosen_names, objects, folder / "small", compiler, flags)


class BuildAsan(BuildCore):
    """Links ``build/asan/load_files``, without torch, with AddressSanitizer in what reads files."""

    description = "build the program of `make fuzz-files`"
    folder = OBJECTS

    def run(self):
        chosen = [source for source in sources() if not is_for_torch(source)
                  and source != "csrc/program/main.cpp"]
        flags = ["-fsanitize=address", "-fopenmp", "-ldl"]
        link = ("load_files", lambda source: True, flags)
        build_files([ROOT / "build" / "asan"], [link], build="asan", chosen=[*chosen, LOADER])


class BuildAarch64(BuildCore):
    """Compiles the core and the kernels without x86 intrinsics with ``CXX``, a cross compiler."""

    description = "compile for 64-bit ARM the sources that need neither torch nor Python"
    folder = ROOT / "build" / "aarch64"

    def chosen(self):
        without_torch = [source for source in sources() if not is_for_torch(source)]
        skipped = [source for source in without_torch if needs_x86(source)]
        print(f"[setup] skipping {len(skipped)} files of x86:", *skipped, file=sys.stderr)
        return [source for source in without_torch if source not in skipped]


setup(
    packages=find_packages(include=["popart", "poptorch", "poptorch.*"]),
    py_modules=["pytest_poptorch"],
    # Without torch, whose absence is an error when they are built, metadata are read all the same.
    ext_modules=[Extension(f"poptorch.lib.{name}._C", sources=sources())
                 for name in torches() or ["no_torch"]],
    cmdclass={"build_ext": BuildWithNinja, "build_objects": BuildObjects, "build_core": BuildCore,
              "build_aarch64": BuildAarch64, "build_mutants": BuildMutants,
              "build_runner": BuildRunner, "build_tsan": BuildTsan, "build_asan": BuildAsan},
    # ``bin`` of the environment. It is made by the time that this is read.
    data_files=[("bin", [str((OBJECTS / "lib/poptorch-run").relative_to(ROOT))])],
    package_data={"poptorch": ["*.pyi", "py.typed", "include/poptorch/*.h",
                               "cmake/*.cmake"],
                  "poptorch._reports.page": ["*.css", "*.html", "*.js"]},
    zip_safe=False,
)

"""Makes a program that fails smaller, as long as it still fails in the same way."""

import re
import time

import torch

from tests.fuzz.programs.draw import REFUSALS, pruned, with_possible_setting
from tests.fuzz.programs.judge import Invalid
from tests.fuzz.programs.program import (
    DTYPE_NAMES,
    NATURAL,
    Program,
    Setting,
    Source,
    made_module,
    namespace,
    reads_of,
    renamed,
    targets_of,
)
from tests.fuzz.programs.search import judged

_NUMBER = re.compile(r"(?<![\w.])(\d+)(?![\w.])")


def shrunk(program: Program, kind: str, seconds: float = 60.0, words: str = "") -> Program:
    """The smallest program found that has a finding of the same kind.

    Args:
        program: one with a finding.
        kind: of the finding.
        seconds: to spend.
        words: how the finding's message starts; empty if any will do.
    """
    end = time.monotonic() + seconds

    def fails(candidate: Program) -> bool:
        try:
            finding = judged(candidate)
        except (Invalid, *REFUSALS):
            return False
        return finding is not None and finding.kind == kind and finding.words.startswith(words)

    changed = True
    while changed:
        changed = False
        for step in (_settings, _without_results, _without_lines, _with_inputs, _sources, _sizes):
            for candidate in step(program):
                if time.monotonic() > end:
                    return program
                try:
                    candidate = with_possible_setting(pruned(candidate))
                except REFUSALS:
                    continue
                if candidate != program and fails(candidate):
                    program, changed = candidate, True
                    break
    return program


def _settings(program: Program):
    """One field of the setting at its default."""
    plain, now = vars(Setting()), vars(program.setting)
    if program.setting != Setting():
        yield program.but(setting=Setting())
    for name, value in plain.items():
        if now[name] != value:
            yield program.but(setting=Setting(**{**now, name: value}))
    if now["calls"] > 1:
        yield program.but(setting=Setting(**{**now, "calls": 1}))
    for name in now["off"]:
        off = tuple(other for other in now["off"] if other != name)
        yield program.but(setting=Setting(**{**now, "off": off}))


def _without_results(program: Program):
    """Fewer outputs and terms of the loss."""
    if program.loss:
        setting = Setting(**{**vars(program.setting), "accumulation": 1})
        yield program.but(loss="", setting=setting)
        yield program.but(outputs=program.outputs[:1])
        terms = program.loss.split(" + ")
        for i in range(len(terms) if len(terms) > 1 else 0):
            yield program.but(loss=" + ".join(terms[:i] + terms[i + 1:]))
    for i in range(len(program.outputs) if len(program.outputs) > 1 else 0):
        yield program.but(outputs=program.outputs[:i] + program.outputs[i + 1:])


def _is_read_after(program: Program, number: int) -> bool:
    later = [*program.lines[number + 1:], *program.outputs, program.loss]
    read = {name for text in later for name in reads_of(text)}
    return any(name in read for name in targets_of(program.lines[number]))


def _without_lines(program: Program):
    """One line less, where nothing reads its results."""
    for number in reversed(range(len(program.lines))):
        if not _is_read_after(program, number):
            yield program.but(lines=program.lines[:number] + program.lines[number + 1:])


def values_of(program: Program) -> dict:
    """The value of each name in eager, for sizes and dtypes."""
    env = namespace(NATURAL)
    for source in program.sources:
        env[source.name] = source.tensor(NATURAL, program.seed)
    for name, text in program.modules:
        env[name] = made_module(text, NATURAL, program.seed)
    for line in program.lines:
        exec(line, env)
    return env


def _with_inputs(program: Program):
    """The results of a line come from outside, or are another tensor."""
    try:
        env = values_of(program)
    except REFUSALS:
        return
    for number in reversed(range(len(program.lines))):
        targets = targets_of(program.lines[number])
        rest = program.lines[:number] + program.lines[number + 1:]
        for kind in "xw" if targets else "":
            sources, names = list(program.sources), {}
            for target in targets:
                x = env[target]
                if kind == "w" and not x.is_floating_point():
                    break
                count = sum(source.name[0] == kind for source in sources)
                names[target] = f"{kind}{count}"
                sources.append(Source(names[target], tuple(x.shape), DTYPE_NAMES[x.dtype],
                                      "normal" if x.is_floating_point() else "few"))
            else:
                yield _renamed(program.but(sources=tuple(sources), lines=rest), names)
        for target in targets:
            x = env[target]
            for other in reads_of(program.lines[number]):
                y = env.get(other)
                if isinstance(y, torch.Tensor) and (y.shape, y.dtype) == (x.shape, x.dtype):
                    yield _renamed(program.but(lines=rest), {target: other})


def _renamed(program: Program, names: dict) -> Program:
    return program.but(lines=tuple(renamed(line, names) for line in program.lines),
                       outputs=tuple(names.get(name, name) for name in program.outputs),
                       loss=renamed(program.loss, names))


def _sources(program: Program):
    """Plainer inputs."""
    for i, source in enumerate(program.sources):
        def put(changed, i=i):
            return program.but(sources=(*program.sources[:i], changed, *program.sources[i + 1:]))

        fields = vars(source)
        if source.layout != "plain":
            yield put(Source(**{**fields, "layout": "plain"}))
        if source.fill not in ("normal", "few") and not source.fill.startswith("index"):
            yield put(Source(**{**fields, "fill": "normal"}))
        if source.dtype in ("F64", "F16", "BF16"):
            yield put(Source(**{**fields, "dtype": "F32"}))


def _sizes(program: Program):
    """A smaller number wherever a number stands."""
    text = " ".join([*program.lines, program.loss, *(str(row[1]) for row in program.modules)])
    numbers = {int(n) for n in _NUMBER.findall(text)}
    numbers |= {size for source in program.sources for size in source.sizes}
    for number in sorted(numbers, reverse=True):
        for smaller in (1, 2, 3, number // 2, number - 1):
            if 0 < smaller < number:
                yield _with_number(program, number, smaller)


def _with_number(program: Program, number: int, other: int) -> Program:
    def put(text):
        return _NUMBER.sub(
            lambda found: str(other) if int(found[1]) == number else found[1], text)

    sources = tuple(Source(s.name, tuple(other if n == number else n for n in s.sizes), s.dtype,
                           s.fill, s.layout) for s in program.sources)
    return program.but(sources=sources, lines=tuple(map(put, program.lines)),
                       modules=tuple((name, put(made)) for name, made in program.modules),
                       loss=put(program.loss))

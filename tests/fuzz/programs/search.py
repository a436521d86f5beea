"""Draws programs one after the other and judges them."""

import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import torch

from tests.fuzz.programs.draw import draw
from tests.fuzz.programs.judge import Finding, Invalid, judge
from tests.fuzz.programs.program import Program


@dataclass
class Tally:
    """What came of the programs of a search.

    Attributes:
        judged: programs compared.
        invalid: programs that eager itself refuses, by reason.
        refused: programs that poptorch refuses, by message.
        example: the seed of one of them, by message.
        found: ``(seed, program, finding)`` of what is wrong.
    """

    judged: int = 0
    invalid: Counter = field(default_factory=Counter)
    refused: Counter = field(default_factory=Counter)
    example: dict = field(default_factory=dict)
    found: list = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Adds what another search came to."""
        self.judged += other.judged
        self.invalid += other.invalid
        self.refused += other.refused
        self.example |= other.example
        self.found += other.found

    def __str__(self) -> str:
        refused = sum(self.refused.values())
        lines = [f"{self.judged} programs judged, {len(self.found)} wrong, {refused} refused "
                 f"({100 * refused / max(1, self.judged):.2f} %), "
                 f"{sum(self.invalid.values())} not valid in eager"]
        lines += [f"  refused {n} x, seed {self.example[words]}: {words}"
                  for words, n in self.refused.most_common(30)]
        return "\n".join(lines)


def judged(program: Program, note=None) -> Finding | None:
    """What is wrong with a program, from a known state of torch's generator.

    Args:
        program: what to run.
        note: called with True before poptorch runs the program, and with False after that.

    Raises:
        Invalid: The program cannot be judged.
    """
    torch.manual_seed(program.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return judge(program, note)


def search(seeds, seconds: float = float("inf"), note=None) -> Tally:
    """Judges the programs of some seeds.

    Args:
        seeds: an iterable of seeds.
        seconds: ends the search.
        note: called with each seed before its program is drawn, and with the seed and whether
            poptorch runs it as that changes.
    """
    tally, begin = Tally(), time.monotonic()
    for seed in seeds:
        if time.monotonic() - begin > seconds:
            break
        if note is not None:
            note(seed)
        program = draw(seed)
        if program is None:
            continue
        try:
            finding = judged(program, partial(note, seed) if note is not None else None)
        except Invalid as error:
            tally.invalid[str(error).split("\n")[0][:60]] += 1
            continue
        tally.judged += 1
        if finding is None:
            continue
        if finding.kind == "refused":
            words = finding.words.split("\n")[0][:150]
            tally.refused[words] += 1
            tally.example[words] = seed
        else:
            tally.found.append((seed, program, finding))
    return tally


def shown(seed: int, program: Program, finding: Finding) -> str:
    """A finding as text."""
    text = f"seed {seed}: {finding.kind}\n{finding.words}\n{program}"
    if finding.kind == "broken" and finding.error is not None:
        frames = traceback.format_exception(finding.error)
        text += "\n" + "".join(frames)[-1500:]
    return text

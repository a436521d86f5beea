"""Draws how a program is compiled and run: one setting for each program."""

import random

from poptorch import _C
from tests.fuzz.programs.program import Setting

# Adam has a large eps: the update by a gradient that is all roundings would be chance.
OPTIMIZERS = (
    "optim.SGD(params, 0.125, weight_decay=0.25)",
    "optim.SGD(params, 0.125, momentum=0.5)",
    "optim.SGD(params, 0.125, momentum=0.5, dampening=0.25, weight_decay=0.125)",
    "optim.SGD(params, 0.125, momentum=0.5, nesterov=True, maximize=True)",
    "optim.Adam(params, 0.0625, eps=0.125, weight_decay=0.25)",
    "optim.Adam(params, 0.0625, eps=0.125, amsgrad=True, maximize=True)",
    "optim.AdamW(params, 0.0625, eps=0.125, weight_decay=0.25)",
    "optim.RMSprop(params, 0.0625, eps=0.125, momentum=0.5, weight_decay=0.25)",
    "optim.Adagrad(params, 0.0625, eps=0.125, lr_decay=0.25, maximize=True)",
    "optim.NAdam(params, 0.0625, eps=0.125, decoupled_weight_decay=True, weight_decay=0.25)",
    "optim.ASGD(params, 0.0625, lambd=0.125, t0=1)",
)
ALGORITHMS = tuple(f"{family}:{name}" for family, name, _ in _C.algorithms())
SWITCHES = tuple(name for name, _ in (*_C.passes(), *_C.switches()))


def draw_setting(rng: random.Random, training: bool) -> Setting:
    """A random setting; about half of them leave all optimizations on."""
    kind = rng.random()
    off: tuple[str, ...] = ()
    if kind < 0.08:
        off = SWITCHES
    elif kind < 0.30:
        off = tuple(sorted(rng.sample(SWITCHES, rng.randint(1, 3))))
    elif kind < 0.40:
        off = tuple(name for name in SWITCHES if rng.random() < 0.5)
    steps: dict = {"iterations": 1, "accumulation": 1, "replicas": 1}
    if rng.random() < 0.3:
        steps["iterations"] = rng.choice((1, 2, 3))
        steps["accumulation"] = rng.choice((1, 2, 3)) if training else 1
        steps["replicas"] = rng.choice((1, 1, 2))
    if training and rng.random() < 0.3:
        steps["optimizer"] = rng.choice(OPTIMIZERS)
    if rng.random() < 0.25:  # the first of a family that applies
        steps["algorithms"] = tuple(rng.sample(ALGORITHMS, rng.randint(1, 4)))
    return Setting(off=off, isa=rng.choice(("", "", "", "base", "avx2")),
                   threads=rng.choice((1, 1, 1, 2, 3)), poison=rng.random() < 0.3,
                   reload_ir=rng.random() < 0.15, wide=rng.random() < 0.15,
                   calls=rng.choice((1, 2, 2)), **steps)

"""Samples of the reduction family."""

import torch

from tests.ops.sample import Bad, Sample, bools, integers, numbers, randn, uniform

INFINITY, NAN = float("inf"), float("nan")
ONE_TYPE = ("f32",)
# Sizes and reduced dimensions: inner, outer, around, all; long ones are cut into groups.
CASES = (
    ((5,), None), ((4, 6), [1]), ((4, 6), [-1, 0]), ((3, 5, 7), [1]), ((3, 5, 7), [0, 2]),
    ((2, 3, 4, 5), [0, 2, 3]), ((2, 3, 4, 5), [1, 3]), ((), None), ((3, 1, 4), [1]),
    ((16, 49), [1]), ((16, 33, 17), [0]), ((2, 8, 1000), [0, 2]),
)
SOME = (CASES[2], CASES[5], CASES[6])
LARGE = (((300_000,), None), ((70_000, 3), [0]), ((3, 70_000), [1]), ((5000, 40), [0]),
         ((40, 2500), [1]), ((8, 64, 28, 28), [0, 2, 3]), ((4, 128, 768), [0, 1]))


def over_dims(op, function, values=randn, cases=CASES, large=(), attrs=None, **how):
    """Samples of a reduction over any dimensions; ``function(x, dims, keepdim)``."""
    for number, (sizes, dim) in enumerate((*cases, *large)):
        keep = dim is not None and number % 2 == 1

        def reference(x, dim=dim, keep=keep):
            return function(x, list(range(x.dim())) if dim is None else dim, keep)

        dtypes = {"dtypes": ("f32", "f64")} if sizes != (2, 3, 4, 5) else {}
        dtypes = {"dtypes": ONE_TYPE} if number >= len(cases) else dtypes
        yield Sample(op, lambda sizes=sizes: [values(*sizes)],
                     {"dim": dim, "keepdim": keep, **(attrs or {})}, reference,
                     note=f"{name_of(values)}{list(sizes)}", **how | dtypes)


def name_of(values):
    return values.__name__.strip("<>")


def small_integers(*sizes):
    return integers(-5, 6, *sizes)


def long_integers(*sizes):
    return integers(-9, 9, *sizes, dtype=torch.int64)


def near_one(*sizes):
    return uniform(0.9, 1.1, *sizes)


def spiked(value):
    """Normal variates with one place in eleven replaced."""
    def values(*sizes):
        x = randn(*sizes)
        return torch.where(torch.rand(sizes) < 0.09, value, x)
    return values


def all_true(*sizes):
    return torch.rand(sizes) < 0.9


def to_i32(function):
    """Integer sums are i32 where torch makes int64."""
    return lambda x, dims, keep: function(x, dims, keep).to(torch.int32)


def product(x, dims, keep):
    for dim in sorted((d % x.dim() for d in dims), reverse=True) if x.dim() else ():
        x = x.prod(dim, keep)
    return x


def sums():
    yield from over_dims("sum", torch.sum, large=LARGE)
    yield from over_dims("sum", torch.sum, spiked(INFINITY), SOME)
    yield from over_dims("sum", torch.sum, spiked(NAN), SOME)
    yield from over_dims("sum", to_i32(torch.sum), small_integers, large=LARGE[:3])
    yield from over_dims("sum", to_i32(torch.sum), bools, large=LARGE[:3])
    yield from over_dims("sum", torch.sum, long_integers, SOME)
    yield from over_dims("mean", torch.mean, large=LARGE[-3:])
    yield from over_dims("mean", torch.mean, lambda *s: randn(*s) + 100, SOME)
    yield from over_dims("prod", product, near_one)
    yield from over_dims("prod", to_i32(product), lambda *s: integers(1, 3, *s), SOME)
    for op, sizes in (("sum", (0, 3)), ("sum", (2, 0)), ("prod", (0, 3)), ("mean", (0, 3))):
        yield Sample(op, lambda s=sizes: [randn(*s)], {"dim": [0]},
                     lambda x, op=op: getattr(torch, op)(x, 0), note=f"{list(sizes)}")
    yield Sample("sum", lambda: [integers(0, 9, 4, 5)], {"dtype": torch.int64},
                 lambda x: x.sum(), note="to i64")
    yield Sample("sum", lambda: [integers(0, 9, 4, 5)], {"dtype": torch.float32},
                 lambda x: x.to(torch.float64).sum(), dtypes=("f32", "f64"), note="to float")
    yield Sample("sum", lambda: [randn(4, 5) * 3], {"dtype": torch.int32, "dim": [1]},
                 lambda x: x.to(torch.int32).sum(1).to(torch.int32), note="to i32")


def extremes():
    for op, function in (("amax", torch.amax), ("amin", torch.amin)):
        yield from over_dims(op, function, large=LARGE[:4])
        yield from over_dims(op, function, spiked(NAN), large=LARGE[:3])
        yield from over_dims(op, function, spiked(-INFINITY), SOME)
        yield from over_dims(op, function, small_integers, SOME, LARGE[1:3])
        yield from over_dims(op, function, lambda *s: integers(0, 99, *s, dtype=torch.uint8), SOME)
        yield from over_dims(op, function, bools, SOME)
        yield Sample(op, lambda: [randn(0, 3)], {"dim": [1]}, note="empty")


def truths():
    for op, values in (("any", lambda *s: ~all_true(*s)), ("all", all_true)):
        yield from over_dims(op, truth(op), values, large=LARGE[:2])
        yield from over_dims(op, truth(op), lambda *s: integers(-1, 2, *s), SOME)
        yield from over_dims(op, truth(op), spiked(NAN), SOME)
        yield Sample(op, lambda: [randn(0, 3)], {"dim": [0]},
                     lambda x, op=op: getattr(torch, op)(x, 0), note="empty")


def truth(op):
    def function(x, dims, keep):
        return getattr(torch, op)(x, dims, keep) if x.dim() else x != 0
    return function


def variances():
    cases = [case for case in CASES if case not in (((), None), ((3, 1, 4), [1]))]
    for correction in (None, 0, 2):
        given = 1 if correction is None else correction
        yield from over_dims(
            "var", lambda x, d, k, c=given: torch.var(x, d, correction=c, keepdim=k),
            lambda *s: randn(*s) * 2 + 3, cases if correction is None else SOME,
            LARGE if correction is None else (), {"correction": correction})
    yield Sample("var", lambda: [randn(40, 50) + 1000], {"dim": [1], "correction": 1},
                 lambda x: x.var(1), dtypes=("f32", "f64"), note="large mean")
    for scale, note in ((1.0, "root"), (1e30, "root of no float")):
        yield Sample("var", lambda s=scale: [randn(40, 50) * s],
                     {"dim": [1], "correction": 1, "root": True}, lambda x: x.std(1),
                     dtypes=("f32", "f64"), note=note)


def log_sums():
    yield from over_dims("logsumexp", torch.logsumexp, lambda *s: randn(*s) * 5, large=LARGE)
    yield from over_dims("logsumexp", torch.logsumexp, lambda *s: randn(*s) * 1e3, SOME)
    yield from over_dims("logsumexp", torch.logsumexp, spiked(-INFINITY), SOME)
    yield from over_dims("logsumexp", torch.logsumexp, spiked(INFINITY), SOME)
    yield from over_dims("logsumexp", torch.logsumexp, spiked(NAN), SOME)
    yield Sample("logsumexp", lambda: [torch.full((3, 4), -INFINITY)], {"dim": [1]}, note="-inf")
    yield Sample("logsumexp", lambda: [randn(0, 3)], {"dim": [0]}, note="empty")


def few(*sizes):
    return integers(-3, 4, *sizes).float()


def positions():
    kinds = (few, spiked(NAN), spiked(INFINITY), small_integers)
    cases = (((3, 5, 7), 1), ((4, 6), -1), ((), 0), ((300, 3), 0), ((3, 300), 1),
             ((2, 40, 500), 1), ((200, 400), 1), ((4, 0), 0))
    for number, values in enumerate(kinds):
        for sizes, dim in cases if number < 2 else cases[:2]:
            for keep, (op, function) in enumerate((("max_dim", torch.max), ("min_dim", torch.min))):
                yield Sample(op, lambda s=sizes, v=values: [v(*s)],
                             {"dim": dim, "keepdim": bool(keep)},
                             lambda x, f=function, d=dim, k=bool(keep): f(x, d, k),
                             dtypes=("f32", "f16"), note=f"{list(sizes)}{number}")
        for sizes, dim in (cases[number], ((50, 60), None)):
            for op in ("argmax", "argmin"):
                yield Sample(op, lambda s=sizes, v=values: [v(*s)], {"dim": dim},
                             lambda x, op=op, d=dim: getattr(torch, op)(x, d),
                             note=f"{list(sizes)}{number}")
    for op in ("argmax", "argmin"):
        yield Sample(op, lambda: [randn(4, 5)], {"dim": 1, "keepdim": True})
        yield Sample(op, lambda: [randn(4, 5)], {"dim": 1, "index_dtype": torch.int64},
                     lambda x, op=op: getattr(torch, op)(x, 1), note="i64")


def running():
    for op, values in (("cumsum", randn), ("cumprod", near_one)):
        for sizes, dim in (((4, 6), -1), ((3, 5, 7), 1), ((), 0), ((0, 3), 1), ((9, 2000), 1),
                           ((2000, 9), 0), ((30, 40, 50), 1)):
            yield Sample(op, lambda s=sizes, v=values: [v(*s)], {"dim": dim},
                         dtypes=("f32", "f64", "f16"), note=f"{list(sizes)}")
            if sizes != (3, 5, 7):
                continue
            yield Sample(op, lambda s=sizes: [integers(1, 3, *s)], {"dim": dim},
                         lambda x, op=op, d=dim: getattr(torch, op)(x, d).to(torch.int32),
                         note=f"integers{list(sizes)}")
        yield Sample(op, lambda: [bools(5, 6)], {"dim": 1},
                     lambda x, op=op: getattr(torch, op)(x, 1), note="bools")
        yield Sample(op, lambda: [integers(1, 3, 5, 6)], {"dim": 1, "dtype": torch.float32},
                     lambda x, op=op: getattr(torch, op)(x.double(), 1), dtypes=("f32", "f64"),
                     note="to float")


SAMPLES = [*sums(), *extremes(), *truths(), *variances(), *log_sums(), *positions(), *running()]

BADS = [
    *(Bad(op, lambda: [randn(3, 4)], {"dim": [2]}, "dimension 2 is out of range")
      for op in ("sum", "mean", "prod", "amax", "amin", "any", "all", "var")),
    *(Bad(op, lambda: [randn(3, 4)], {"dim": [1, -1]}, "dimension 1 is named twice")
      for op in ("sum", "amax", "var")),
    *(Bad(op, lambda: [randn(3, 0)], {"dim": [1]}, "dimension 1 of f32[3,0] has no entries")
      for op in ("amax", "amin")),
    *(Bad(op, lambda: [randn(0)], {"dim": 0}, "dimension 0 of f32[0] has no entries")
      for op in ("argmax", "argmin", "max_dim", "min_dim")),
    Bad("mean", lambda: [integers(0, 5, 3)], {}, "the result would be i32 for i32[3]"),
    *(Bad(op, lambda: [integers(0, 5, 3)], {}, "it must be a float")
      for op in ("var", "logsumexp")),
    Bad("sum", lambda: [randn(3)], {"dtype": torch.int8}, "cannot make a result of i8"),
    Bad("argmax", lambda: [randn(3)], {"index_dtype": torch.int8}, "positions are i32 or i64"),
    Bad("max_dim", lambda: [randn(3)], {"dim": 1}, "dimension 1 is out of range"),
    Bad("cumsum", lambda: [numbers(1.0)], {"dim": 3}, "dimension 3 is out of range"),
    Bad("cumprod", lambda: [randn(3)], {"dim": 0, "dtype": torch.bool}, "cannot make a result of"),
]

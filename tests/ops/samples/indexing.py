"""Samples of the indexing family. Positions are int32, as everywhere in a narrowed program."""

import itertools

import torch

from tests.ops.sample import Bad, Sample, bools, integers, numbers, randn, uniform
from tests.public_ops import point_searches

aten = torch.ops.aten
NAN = float("nan")
FEW = ("f32", "f64")
WHOLE = (torch.uint8, torch.int64)
# Sizes of the tensor, of the index, and the dimension.
CASES = (((6,), (9,), 0), ((4, 6), (4, 3), 1), ((4, 6), (2, 6), 0), ((4, 6), (7, 5), -2),
         ((3, 5, 7), (2, 9, 6), 1), ((3, 5, 7), (3, 5, 20), 2), ((), (), 0), ((5, 4), (0, 4), 0),
         ((97, 100), (500, 100), 0), ((500, 97), (500, 200), 1), ((4, 3, 600), (4, 50, 600), 1))


def places(size, *sizes, dtype=torch.int32, low=0):
    return integers(low, max(size, 1), *sizes, dtype=dtype)


def extent(sizes, dim):
    return sizes[dim] if sizes else 1


def gathers():
    for sizes, index, dim in CASES:
        def inputs(make=randn, dtype=torch.int32, sizes=sizes, index=index, dim=dim):
            return [make(*sizes), places(extent(sizes, dim), *index, dtype=dtype)]

        def reference(x, i, dim=dim):
            return torch.gather(x, dim, i.long())

        yield Sample("gather", inputs, {"dim": dim}, reference, note=f"{sizes}{index}")
        if sizes == (3, 5, 7):
            yield Sample("gather", lambda f=inputs: f(bools), {"dim": dim}, reference,
                         note=f"bool{sizes}{index}")
            yield Sample("gather", lambda f=inputs: f(dtype=torch.int64), {"dim": dim}, reference,
                         note=f"i64{sizes}{index}")


def scatters():
    for sizes, index, dim in CASES:
        def inputs(make=randn, dtype=torch.int32, sizes=sizes, index=index, dim=dim):
            i = places(extent(sizes, dim), *index, dtype=dtype)
            return [make(*sizes), i, make(*(n + 1 for n in index))]

        def reference(x, i, src, dim=dim):
            return torch.scatter_add(x, dim, i.long(), src)

        yield Sample("scatter_add", inputs, {"dim": dim}, reference, note=f"{sizes}{index}")
        for dtype in WHOLE if sizes == (3, 5, 7) else ():
            yield Sample("scatter_add",
                         lambda f=inputs, t=dtype: f(lambda *s: integers(0, 3, *s, dtype=t)),
                         {"dim": dim}, reference, note=f"{dtype}{sizes}{index}")
        if sizes == (3, 5, 7):
            yield Sample("scatter_add", lambda f=inputs: f(dtype=torch.int64), {"dim": dim},
                         reference, note=f"i64{sizes}{index}")
        # Without repeated positions, whose order torch leaves open.
        def once(make=randn, sizes=sizes, dim=dim):
            order = torch.rand(sizes).argsort(dim).to(torch.int32) if sizes else torch.zeros(
                (), dtype=torch.int32)
            return [make(*sizes), order, make(*sizes)]

        for make in (randn, bools) if len(sizes) == 2 else (randn,):
            yield Sample("scatter", lambda f=once, m=make: f(m), {"dim": dim},
                         lambda x, i, src, d=dim: torch.scatter(x, d, i.long(), src),
                         note=f"{make.__name__}{sizes}")
    yield Sample("scatter", lambda: [randn(3), numbers(1, 1, 1, dtype=torch.int32),
                                     numbers(4.0, 5.0, 6.0)], {"dim": 0},
                 lambda x, i, src: torch.stack([x[0], src[2], x[2]]), note="the last one stays")


def reductions():
    for sizes, index, dim in CASES:
        for reduce in ("sum", "prod", "mean", "amax", "amin"):
            for include in (True, False):
                def inputs(make=randn, dtype=torch.int32, sizes=sizes, index=index, dim=dim):
                    i = places(extent(sizes, dim), *index, dtype=dtype)
                    return [make(*sizes), i, make(*(n + 1 for n in index))]

                def reference(x, i, src, dim=dim, reduce=reduce, include=include):
                    return torch.scatter_reduce(x, dim, i.long(), src, reduce,
                                                include_self=include)

                attrs = {"dim": dim, "reduce": reduce, "include_self": include}
                make = (lambda *s: uniform(0.5, 1.5, *s)) if reduce == "prod" else randn
                yield Sample("scatter_reduce", lambda f=inputs, m=make: f(m), attrs, reference,
                             note=f"{sizes}{index}")
                if sizes != (3, 5, 7):
                    continue
                for low, kind in ((-2, torch.int32), (0, torch.uint8)):
                    def whole(*sizes, low=low, kind=kind):
                        return integers(low, 3, *sizes, dtype=kind)

                    yield Sample("scatter_reduce", lambda f=inputs, m=whole: f(m, torch.int64),
                                 attrs, reference, note=f"{kind}{sizes}{index}")
                if reduce in ("amax", "amin"):
                    yield Sample("scatter_reduce", lambda f=inputs: f(with_nans), attrs, reference,
                                 note=f"nan{sizes}{index}")


def with_nans(*sizes):
    return torch.where(torch.rand(sizes) < 0.2, NAN, randn(*sizes))


def selections():
    for sizes, count, dim in (((6,), 4, 0), ((4, 6), 9, 1), ((4, 6), 3, 0), ((3, 5, 7), 6, -2),
                              ((3, 5), 0, 0), ((), 1, 0), ((50, 768), 100, 0), ((64, 90), 300, 1)):
        def inputs(make=randn, dtype=torch.int32, sizes=sizes, count=count, dim=dim):
            return [make(*sizes), places(extent(sizes, dim), count, dtype=dtype)]

        def reference(x, i, dim=dim):
            return torch.index_select(x, dim, i.long())

        for make in (randn, bools, integers_of(torch.int16)) if len(sizes) == 2 else (randn,):
            yield Sample("index_select", lambda f=inputs, m=make: f(m), {"dim": dim}, reference,
                         note=f"{make.__name__}{sizes}")
        if sizes:
            yield from additions(sizes, count, dim)
    yield Sample("index_select", lambda: [randn(4, 5), places(4, dtype=torch.int64)], {"dim": 0},
                 lambda x, i: torch.index_select(x, 0, i.reshape(1)), note="one position")


def integers_of(dtype):
    def values(*sizes):
        return integers(0, 9, *sizes, dtype=dtype)
    values.__name__ = str(dtype)
    return values


def additions(sizes, count, dim):
    def inputs(make=randn, dtype=torch.int32):
        part = list(sizes)
        part[dim] = count
        return [make(*sizes), places(sizes[dim], count, dtype=dtype), make(*part)]

    def reference(x, i, source, alpha):
        return torch.index_add(x, dim, i.long(), source, alpha=alpha)

    for alpha, dtype in ((1, torch.int32), (2.5, torch.int64)):
        yield Sample("index_add", lambda: inputs(dtype=dtype), {"dim": dim, "alpha": alpha},
                     lambda x, i, s, a=alpha: reference(x, i, s, a), note=f"{sizes}")
    yield Sample("index_add", lambda: inputs(integers_of(torch.int32)), {"dim": dim},
                 lambda x, i, s: reference(x, i, s, 1), note=f"integers{sizes}")


# Index sizes for each dimension of a [6, 5, 4, 7] tensor, None for a whole dimension.
ADVANCED = (((3,),), ((2, 3),), ((4,), (4,)), ((4, 1), (3,)), (None, (3,)), (None, (2, 2), (2,)),
            ((3,), None, (3,)), (None, (4,), None, (4,)), ((2,), (2,), (2,), (2,)),
            (None, None, None, (9,)), ((0,),), ((1,), None, None, (5, 2)), (None, (300,)))
TENSOR = (6, 5, 4, 7)


def advanced():
    for case in ADVANCED:
        def indices(case=case, dtype=torch.int32):
            return [None if s is None else places(n, *s, dtype=dtype, low=-n)
                    for n, s in zip(TENSOR, case)]

        def reference(x, *given):
            return aten.index(x, [None if i is None else i.long() for i in given])

        yield Sample("index", lambda f=indices: [randn(*TENSOR), *f()], {}, reference,
                     note=f"{case}")
        if len(case) == 3:
            yield Sample("index", lambda f=indices: [bools(*TENSOR), *f(dtype=torch.int64)], {},
                         reference, note=f"bool{case}")
        yield from puts(case, indices)
    yield Sample("index", lambda: [randn(2000), places(2000, 50, 400)], {},
                 lambda x, i: x[i.long()], note="many")


def puts(case, indices):
    part = aten.index(torch.zeros(TENSOR), [i if i is None else i.long() for i in indices()]).shape

    def reference(x, values, *given, accumulate=True):
        return aten.index_put(x, [None if i is None else i.long() for i in given], values,
                              accumulate)

    for sizes in (part, part[-1:], ()) if len(case) == 2 else (part,):
        yield Sample("index_put", lambda s=sizes: [randn(*TENSOR), randn(*s), *indices()],
                     {"accumulate": True}, reference, note=f"{case}{tuple(sizes)}")
    if len(case) == 3:
        yield Sample("index_put",
                     lambda: [integers(0, 9, *TENSOR), integers(0, 9, *part), *indices()],
                     {"accumulate": True}, reference, note=f"integers{case}")
        yield Sample("index_put", lambda: [randn(*TENSOR), randn(), *indices(dtype=torch.int64)],
                     {}, lambda *a: reference(*a, accumulate=False), note=f"one value{case}")
    if case == ((3,),):
        yield Sample("index_put", lambda: [bools(9, 4), bools(9, 4),
                                           torch.randperm(9).to(torch.int32)], {},
                     lambda *a: reference(*a, accumulate=False), note="each once")


def masks():
    def reference(x, values, *given):
        return aten.index_put(x, list(given), values)

    for before, mask in ((0, (6, 5, 4, 7)), (0, (6,)), (0, (6, 5)), (1, (5,)), (1, (5, 4, 7))):
        yield Sample("index_put", lambda b=before, m=mask: [randn(*TENSOR), randn(), *[None] * b,
                                                            bools(*m)], {}, reference,
                     note=f"mask{before}{mask}")
    yield Sample("index_put", lambda: [randn(4), randn(2, 3)[0, :2], numbers(
        True, False, False, True, dtype=torch.bool)], {}, reference, note="mask, a value each")
    yield Sample("index_put", lambda: [randn(4, 3), randn(2, 3), numbers(
        True, False, False, True, dtype=torch.bool)], {}, reference, note="mask, a row each")
    yield Sample("index_put", lambda: [randn(4, 3), randn(), bools(4, 3)], {"accumulate": True},
                 lambda x, v, m: torch.where(m, x + v, x), note="mask, added")


def is_sorted(x, results, dim, descending):
    """The values are torch's, and stand where the positions say."""
    values, where = results
    wide = torch.sort(x, dim=dim, descending=descending, stable=True)
    kept = values.shape[dim] if x.dim() else 1
    expected = wide.values.narrow(dim, 0, kept) if x.dim() else wide.values
    torch.testing.assert_close(values, expected, rtol=0, atol=0, equal_nan=True)
    first = wide.indices.narrow(dim, 0, kept) if x.dim() else wide.indices
    assert torch.equal(where.long(), first), "positions differ, or equal values changed their order"


def sorting():
    kinds = (lambda *s: integers(-3, 4, *s).float(), integers_of(torch.uint8),
             lambda *s: torch.where(bools(*s), NAN, randn(*s)), randn)
    cases = (((4, 6), -1), ((3, 5, 7), 1), ((), 0), ((0, 4), 1), ((40, 300), 1), ((1, 5000), 1))
    for number, (make, (sizes, dim)) in enumerate(itertools.product(kinds, cases)):
        size, flag = extent(sizes, dim), number % 3 == 0
        note = f"{list(sizes)}{number}"
        yield Sample("sort", lambda s=sizes, m=make: [m(*s)], {"dim": dim, "descending": flag},
                     check=lambda i, r, d=dim, f=flag: is_sorted(i[0], r, d, f),
                     dtypes=FEW, note=note)
        for k in (1, size // 2 + 1) if sizes else (1,):
            yield Sample("topk", lambda s=sizes, m=make: [m(*s)],
                         {"k": k, "dim": dim, "largest": not flag},
                         check=lambda i, r, d=dim, f=not flag: is_sorted(i[0], r, d, f),
                         dtypes=FEW, note=note)
    yield Sample("sort", lambda: [randn(5)], {"index_dtype": torch.int64},
                 lambda x: torch.sort(x), note="i64")


def counts():
    for size, dtype in ((0, torch.int32), (1, torch.int64), (9, torch.int32), (5000, torch.int64)):
        yield Sample("bincount", lambda n=size, t=dtype: [places(7, n, dtype=t), None],
                     {"minlength": 7, "index_dtype": dtype},
                     lambda x, w, t=dtype: torch.bincount(x, minlength=7).to(t), note=f"{size}")
        yield Sample("bincount", lambda n=size, t=dtype: [places(7, n, dtype=t), randn(n)],
                     {"minlength": 7},
                     lambda x, w: torch.bincount(x, w, 7).to(w.dtype), dtypes=FEW,
                     note=f"weights{size}")


def dynamic():
    """Parts from a start on; of size, step, and the sizes of the tensor."""
    for sizes, dim, size, step in (((8,), 0, 4, 1), ((8,), 0, 5, 2), ((3, 5, 7), 1, 3, 2),
                                   ((3, 5, 7), -1, 7, 1), ((3, 5, 7), 0, 1, 1), ((0, 4), 1, 2, 1),
                                   ((97, 300), 0, 90, 4), ((97, 300), 1, 200, 1)):
        attrs, n = {"dim": dim, "size": size, "step": step}, sizes[dim]
        own = list(sizes)
        own[dim] = (size - 1) // step + 1

        def start(dtype=torch.int32, n=n, size=size):
            low = int(torch.randint(0, n - size + 1, ()))
            return numbers(low - n if low < n - size else low, dtype=dtype)

        def taken(x, at, dim=dim, size=size, step=step):
            at = int(at) % x.shape[dim]
            return x.narrow(dim, at, size).movedim(dim, 0)[::step].movedim(0, dim).clone()

        def put(x, src, at, dim=dim, size=size, step=step):
            out, at = x.clone(), int(at) % x.shape[dim]
            out.narrow(dim, at, size).movedim(dim, 0)[::step] = src.movedim(dim, 0)
            return out

        for make in (randn, bools):
            note = f"{make.__name__}{sizes}"
            yield Sample("dynamic_slice", lambda m=make, s=start, z=sizes: [m(*z), s()], attrs,
                         taken, note=note)
            yield Sample("dynamic_update", lambda m=make, s=start, z=sizes, o=tuple(own):
                         [m(*z), m(*o), s(torch.int64)], attrs, put, note=note)


def one(*values, dtype=torch.int32):
    return numbers(*values, dtype=dtype)


def searches():
    """Among points; coordinates of few values make equal distances."""
    def few(*sizes):
        return integers(-2, 3, *sizes).float()

    for make, (n, m, width) in itertools.product((randn, few), ((60, 30, 3), (500, 300, 2),
                                                                (0, 2, 3), (1, 1, 1), (3, 2, 0))):
        note = f"{make.__name__}({n}, {m}, {width})"
        for dtype in WHOLE[1:] + (torch.int32,):
            attrs = {"index_dtype": dtype}
            yield Sample("nearest", lambda k=make, n=n, m=m, w=width: [k(n, w), k(m, w), None,
                                                                       None], attrs,
                         lambda *given, t=dtype: point_searches.nearest(*given).to(t), note=note)
        yield Sample("nearest", lambda k=make, n=n, m=m, w=width: [
            k(n, w), k(m, w), places(min(m, 3), n), torch.arange(m, dtype=torch.int32) % 3], {},
            lambda *given: point_searches.nearest(*given).int(), note=f"batches{note}")
        ptr, counts = [0, n // 2, n // 2, n], [n // 3, 0, min(5, n - n // 2)]
        for starts in (lambda: None, lambda: one(counts[0] // 2, 0, 0)):
            yield Sample("fps", lambda k=make, n=n, w=width, s=starts: [k(n, w), s()],
                         {"ptr": ptr, "counts": counts},
                         lambda src, starts, p=ptr, c=counts:
                         point_searches.fps(src, p, c, starts).int(), note=note)


SAMPLES = [*counts(), *dynamic(), *searches(), *gathers(), *scatters(), *reductions(),
           *selections(), *advanced(), *masks(), *sorting()]

BADS = [
    Bad("bincount", lambda: [one(0, 3), None], {"minlength": 3},
        "the number 3 (entry 1) is out of range: minlength is 3, so 0 to 2 can be counted"),
    Bad("bincount", lambda: [one(0, -1), randn(2)], {"minlength": 3}, "the number -1 (entry 1)"),
    Bad("bincount", lambda: [one(0, 1).reshape(1, 2), None], {"minlength": 3}, "of a vector"),
    Bad("bincount", lambda: [one(0, 1), None], {"minlength": 0}, "minlength of at least 1"),
    Bad("bincount", lambda: [one(0, 1), randn(3)], {"minlength": 2}, "weights are f32[3]"),
    Bad("dynamic_slice", lambda: [randn(4, 5), one(3)], {"dim": 1, "size": 3},
        "start 3 with size 3 is out of range: dimension 1 has 5 entries, so 0 to 2"),
    Bad("dynamic_slice", lambda: [randn(4), one(-1)], {"dim": 0, "size": 2}, "start -1 with"),
    Bad("dynamic_slice", lambda: [randn(4), one(-5)], {"dim": 0, "size": 2}, "(or -4 to -2,"),
    Bad("dynamic_slice", lambda: [randn(4), one(0, 1)], {"dim": 0, "size": 2}, "one number"),
    Bad("dynamic_slice", lambda: [randn(4), randn(1)], {"dim": 0, "size": 2}, "i32 or i64"),
    Bad("dynamic_slice", lambda: [randn(4), one(0)], {"dim": 0, "size": 5}, "size is 5, step is 1"),
    Bad("dynamic_slice", lambda: [randn(), one(0)], {"dim": 0, "size": 1}, "size is 1"),
    Bad("dynamic_update", lambda: [randn(4), randn(2), one(3)], {"dim": 0, "size": 2},
        "[dynamic_update] start 3"),
    Bad("dynamic_update", lambda: [randn(4), randn(3), one(0)], {"dim": 0, "size": 2},
        "src is f32[3], the sizes [2] are needed"),
    Bad("dynamic_update", lambda: [randn(4), one(3), one(0)], {"dim": 0, "size": 1},
        "src is i32[1]"),
    Bad("gather", lambda: [randn(4, 5), one(0, 5).reshape(1, 2)], {"dim": 1},
        "index 5 (entry 1 of the index) is out of range: dimension 1 has 5 entries"),
    Bad("gather", lambda: [randn(4), one(0, -1)], {"dim": 0}, "index -1 (entry 1"),
    Bad("gather", lambda: [randn(4, 5), one(0)], {"dim": 1}, "does not fit into self f32[4,5]"),
    Bad("gather", lambda: [randn(4), randn(2)], {"dim": 0}, "positions are i32 or i64"),
    Bad("gather", lambda: [randn(4), one(0)], {"dim": 1}, "dimension 1 is out of range"),
    Bad("scatter", lambda: [randn(4), one(4), randn(1)], {"dim": 0}, "so 0 to 3 are allowed"),
    Bad("scatter", lambda: [randn(4), one(0, 1), randn(1)], {"dim": 0}, "does not fit into src"),
    Bad("scatter", lambda: [randn(4), one(0), one(1)], {"dim": 0}, "src is i32[1]"),
    Bad("scatter_add", lambda: [randn(4), one(7, dtype=torch.int64), randn(1)], {"dim": 0},
        "index 7 (entry 0"),
    Bad("scatter_reduce", lambda: [randn(4), one(0, 4), randn(2)], {"dim": 0, "reduce": "mean"},
        "[scatter_reduce] index 4 (entry 1"),
    Bad("scatter_reduce", lambda: [randn(4), one(0), randn(1)], {"dim": 0, "reduce": "max"},
        'reduce is "max". Use "sum"'),
    Bad("index_select", lambda: [randn(4, 5), one(2, 9)], {"dim": 0}, "index 9 (entry 1"),
    Bad("index_select", lambda: [randn(4), one(1, 2).reshape(1, 2)], {"dim": 0},
        "it must be a vector"),
    Bad("index_add", lambda: [randn(4), one(4), randn(1)], {"dim": 0}, "index 4 (entry 0"),
    Bad("index_add", lambda: [randn(4), one(1), randn(2)], {"dim": 0}, "the sizes [1] are needed"),
    Bad("index", lambda: [randn(4), one(-5)], {}, "so -4 to 3 are allowed"),
    Bad("index", lambda: [randn(4, 5), None, one(5)], {}, "dimension 1 has 5 entries"),
    Bad("index", lambda: [randn(4), bools(4)], {}, "only known at run time"),
    Bad("index", lambda: [randn(4), one(0), one(0)], {}, "f32[4] has 1 dimensions"),
    Bad("index", lambda: [randn(4, 5), one(0, 1), one(0, 1, 2)], {}, "do not broadcast"),
    Bad("index_put", lambda: [randn(4), randn(), one(4)], {}, "index 4 (entry 0"),
    Bad("index_put", lambda: [randn(4), randn(3), one(0, 1)], {}, "values are f32[3]"),
    Bad("index_put", lambda: [randn(4), one(3), one(0)], {}, "values is i32[1]"),
    Bad("index_put", lambda: [randn(4), randn(), bools(5)], {}, "the mask bool[5] does not fit"),
    Bad("index_put", lambda: [randn(2, 2), randn(3), torch.ones(2, 2, dtype=torch.bool)], {},
        "the mask selects 4 places of 1 entries, there are 3 values"),
    Bad("index_put", lambda: [randn(2, 2), randn(), bools(2), one(0)], {}, "cannot be combined"),
    Bad("nearest", lambda: [randn(2, 3), randn(1, 3), one(0, 7), one(0)],
        words="point 1 of x belongs to example 7, but y has no point of it"),
    Bad("nearest", lambda: [randn(2, 3), randn(1, 2), None, None], words="x is f32[2,3], y is"),
    Bad("nearest", lambda: [randn(2, 3), randn(0, 3), None, None], words="at least one in y"),
    Bad("nearest", lambda: [randn(2), randn(1), None, None], words="with a point in each row"),
    Bad("nearest", lambda: [randn(2, 3), randn(1, 3), one(0), one(0)], words="the batch i32[1]"),
    Bad("nearest", lambda: [randn(2, 3), randn(1, 3), one(0, 0), None], words="only one batch"),
    Bad("fps", lambda: [randn(3, 2), one(3)], {"ptr": [0, 3], "counts": [1]},
        "the start 3 of example 0 is out of range: it has 3 points"),
    Bad("fps", lambda: [randn(3, 2), one(0, 0)], {"ptr": [0, 3], "counts": [1]}, "Give one for"),
    Bad("fps", lambda: [randn(3, 2), None], {"ptr": [0, 2], "counts": [1]}, "ptr is [0, 2]"),
    Bad("fps", lambda: [randn(3, 2), None], {"ptr": [0, 3], "counts": [4]}, "counts are [4]"),
    Bad("topk", lambda: [randn(3, 4)], {"k": 5}, "k is 5, dimension 1 of f32[3,4] has 4 entries"),
    Bad("sort", lambda: [randn(3)], {"dim": 2}, "dimension 2 is out of range"),
]

"""Property: what ``views`` says about strides and offsets is what the chain of shape ops means."""

import re

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poptorch import _C


@st.composite
def reshapes(draw, sizes):
    """New sizes with the same number of elements: dimensions are split, merged, and ones added."""
    flat = []
    for size in sizes:
        divisors = [d for d in range(1, size + 1) if size % d == 0] or [1]
        first = draw(st.sampled_from(divisors))
        flat += [first, size // first] if size else [0]
    out = []
    for size in flat:
        if out and draw(st.booleans()):
            out[-1] *= size
        else:
            out.append(size)
    if draw(st.booleans()):
        out.insert(draw(st.integers(0, len(out))), 1)
    return out


@st.composite
def steps(draw, x):
    """One op: name, attributes, and the same thing in torch."""
    kind = draw(st.sampled_from(["permute", "reshape", "slice", "expand", "diagonal"]))
    rank = x.dim()
    if kind == "permute":
        dims = draw(st.permutations(range(rank)))
        return kind, {"dims": list(dims)}, x.permute(dims)
    if kind == "reshape":
        sizes = draw(reshapes(list(x.shape)))
        return kind, {"size": sizes}, x.reshape(sizes)
    if kind == "slice" and rank > 0:
        dim = draw(st.integers(0, rank - 1))
        start = draw(st.integers(0, x.shape[dim]))
        end = draw(st.integers(start, x.shape[dim]))
        step = draw(st.integers(1, 3))
        attrs = {"dim": dim, "start": start, "end": end, "step": step}
        return kind, attrs, torch.ops.aten.slice(x, dim, start, end, step)
    if kind == "diagonal" and rank > 1:
        dim1, dim2 = draw(st.permutations(range(rank)))[:2]
        offset = draw(st.integers(-1, 1))
        attrs = {"dim1": dim1, "dim2": dim2, "offset": offset}
        return kind, attrs, x.diagonal(offset, dim1, dim2)
    sizes = [draw(st.integers(1, 3)) if size == 1 else size for size in x.shape]
    sizes = [2] * draw(st.integers(0, 1)) + sizes
    return "expand", {"size": sizes}, x.expand(sizes)


@st.composite
def chains(draw):
    sizes = draw(st.lists(st.integers(0, 4), max_size=4))
    x = torch.arange(int(np.prod(sizes)), dtype=torch.float32).reshape(sizes)
    chain, result = [], x
    for _ in range(draw(st.integers(1, 5))):
        name, attrs, result = draw(steps(result))
        chain.append((name, attrs))
        if result.numel() > 4096:
            break
    return x, chain, result


def run_views(module, x):
    """Computes the values of a module of views and copies with numpy; the last one."""
    values = {"x": x.numpy().reshape(-1)}
    pattern = re.compile(
        r"%(\S+) = (view|contiguous) %(\S+)(?: \{offset=(\d+)\})? "
        r": f32\[([\d,]*)\](?:\(([\d,]+)\))?"
    )
    strides_of = {}
    result = None
    for name, op, operand, offset, sizes, strides in pattern.findall(module.text()):
        sizes = [int(size) for size in sizes.split(",") if size]
        if strides:
            strides = [int(stride) for stride in strides.split(",")]
        else:
            strides = [int(np.prod(sizes[d + 1 :])) for d in range(len(sizes))]
        if op == "contiguous":
            memory, start, from_strides = strides_of[operand]
            values[name] = window(memory, start, sizes, from_strides).reshape(-1).copy()
            strides_of[name] = (values[name], 0, strides)
        else:
            strides_of[name] = (values[operand], int(offset or 0), strides)
        memory, start, from_strides = strides_of[name]
        result = window(memory, start, sizes, from_strides)
    return result


def window(memory, start, sizes, strides):
    if 0 in sizes:
        return np.zeros(sizes, np.float32)
    strides = [4 * stride for stride in strides]
    return np.lib.stride_tricks.as_strided(memory[start:], sizes, strides, writeable=False)


@settings(max_examples=300, deadline=None)
@given(chains())
def test_views_are_the_chain(case):
    x, chain, expected = case
    module = _C.Module()
    graph = module.add_graph("net")
    (value,) = graph.op(
        "stream_in", [], {"stream": "x"}, types=[("f32", list(x.shape))], names=["x"]
    )
    for name, attrs in chain:
        (value,) = graph.op(name, [value], attrs)
    graph.op("stream_out", [value], {"stream": "0"})
    _C.run_passes(module, ["views"])
    text = module.text()
    assert not re.search(r"= (reshape|permute|slice|expand|diagonal) ", text)
    result = run_views(module, x)
    assert np.array_equal(result, expected.numpy()), text

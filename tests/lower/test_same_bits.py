"""Property: random programs give the same bits with no pass, and after every pass of all."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poptorch import _C

UNARY = ["relu", "neg", "tanh", "abs", "clone", "contiguous"]
BINARY = ["add", "sub", "mul", "maximum"]
SIZES = [[2, 3], [3, 2], [6], [2, 1], [1, 3], []]


class Program:
    """A random module: `main` loops over `step`, which may loop over `inner`."""

    def __init__(self, draw):
        self.draw = draw
        self.module = _C.Module()
        self.outputs = 0
        main = self.module.add_graph("main")
        main.op("loop", [], {"body": _C.GraphRef("step"), "count": 2})
        self.fill(self.module.add_graph("step"), depth=1)

    def pick(self, items):
        return self.draw(st.sampled_from(items))

    def fill(self, graph, depth, values=()):
        """Adds sources, random ops, effects."""
        values = list(values)
        for path in ("a", "b"):
            values += graph.op("state", [], {"path": path}, types=[("f32", [2, 3])])
        stream = {"stream": f"x.{graph.name}"}
        values += graph.op("stream_in", [], stream, types=[("f32", [2, 3])])
        rng = graph.op("state", [], {"path": "rng"}, types=[("i32", [4])])
        ones = np.full(6, self.pick([0.0, -0.0, 1.0, 0.5]), np.float32)
        values.append(graph.constant("f32", [2, 3], ones))
        values.append(graph.constant("f32", [], ones[:1]))
        for _ in range(self.draw(st.integers(1, 12))):
            values += self.step(graph, values, rng[0])
        if depth:
            values += self.loop(graph, values)
        self.effects(graph, values)
        return values

    def step(self, graph, values, rng):
        """One random op on random values."""
        kind = self.pick(["unary", "binary", "shape", "cast", "dropout", "amax"])
        x = self.pick(values)
        if kind == "unary":
            return graph.op(self.pick(UNARY), [x])
        if kind == "binary":
            y = self.pick([v for v in values if v.sizes == x.sizes or not v.sizes])
            attrs = {"alpha": self.pick([1.0, -1.0, 2.0])}
            op = self.pick(BINARY)
            return graph.op(op, [x, y], attrs if op in ("add", "sub") else {})
        if kind == "cast":
            wide = graph.op("cast", [x], {"dtype": _C.DType(self.pick(["f32", "f64", "f16"]))})
            return graph.op("cast", wide, {"dtype": _C.DType("f32")})
        if kind == "dropout":
            return graph.op("dropout", [x, rng], {"p": 0.5, "salt": self.pick([1, 2])})
        if kind == "amax":  # a sum would depend on the strides of its operand
            return graph.op("amax", [x])
        return self.shape(graph, x)

    def shape(self, graph, x):
        """One random op of data movement."""
        rank = len(x.sizes)
        kind = self.pick(["reshape", "permute", "expand", "slice"])
        if kind == "permute":
            return graph.op(kind, [x], {"dims": self.draw(st.permutations(range(rank)))})
        if kind == "slice" and rank:
            return graph.op(kind, [x], {"dim": rank - 1, "end": self.pick([1, 9])})
        if kind == "expand":
            return graph.op(kind, [x], {"size": [3 if s == 1 else s for s in x.sizes]})
        count = int(np.prod(x.sizes))
        fitting = [sizes for sizes in SIZES if int(np.prod(sizes)) == count]
        return graph.op("reshape", [x], {"size": self.pick([*fitting, [count], list(x.sizes)])})

    def loop(self, graph, values):
        """A loop over a random body that carries up to three values."""
        carried = [self.pick(values) for _ in range(self.draw(st.integers(0, 3)))]
        body = self.module.add_graph("inner")
        inputs = [
            body.op("input", [], {"index": i}, types=[("f32", v.sizes)])[0]
            for i, v in enumerate(carried)
        ]
        made = self.fill(body, 0, inputs)
        body.outputs = [self.pick([m for m in made if m.sizes == v.sizes]) for v in carried]
        return graph.op("loop", carried, {"body": _C.GraphRef("inner"), "count": 2})

    def effects(self, graph, values):
        """States get new values, and the host sees some."""
        whole = [v for v in values if v.sizes == [2, 3]]
        for path in ("a", "b"):
            if self.draw(st.booleans()):
                graph.op("assign", [self.pick(whole)], {"path": path})
        for _ in range(self.draw(st.integers(1, 2))):
            graph.op("stream_out", [self.pick(values)], {"stream": f"y{self.outputs}"})
            self.outputs += 1


def run(text, constants, limit, names):
    """Bytes of all outputs and states after two calls."""
    options = {"pass_limit": limit, "poison": True, "keep_text": False, "threads": 1}
    executable = _C.compile(_C.parse(text, constants), options)
    hosts = {}
    for stream in executable.streams():
        size = executable.host_slices(stream.name) * int(np.prod(stream.sizes))
        values = np.linspace(-2, 2, size) if stream.is_input else np.zeros(size)
        hosts[stream.name] = values.astype(np.float32)
    for state in executable.states():
        dtype = np.int32 if state.dtype == "i32" else np.float32
        values = np.arange(int(np.prod(state.sizes)), dtype=dtype) - dtype(2)
        executable.write_state(state.path, values.ctypes.data, values.nbytes)
    pointers = [hosts[stream.name].ctypes.data for stream in executable.streams()]
    for _ in range(2):
        executable.run(pointers, 1)
    found = {name: hosts[name].tobytes() for name in hosts if name.startswith("y")}
    for state in executable.states():
        if state.path in names:
            values = np.zeros(state.bytes, np.uint8)
            executable.read_state(state.path, values.ctypes.data, values.nbytes)
            found[state.path] = values.tobytes()
    return found


def assigned(text):
    """Paths of the states that the program changes: the others may vanish."""
    return {path for path in ("a", "b") if f'{{path="{path}"}}\n' in text}


@pytest.mark.sampled
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_passes_keep_every_bit(data):
    module = Program(data.draw).module
    module.verify()
    text, names = module.text(), assigned(module.text())
    expected = run(text, module, 0, names)
    for limit in range(1, len(_C.pipeline()) + 1):
        assert run(text, module, limit, names) == expected, (limit, text)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(st.data())
def test_the_pipeline_keeps_every_bit(data):
    module = Program(data.draw).module
    text, names = module.text(), assigned(module.text())
    assert run(text, module, -1, names) == run(text, module, 0, names), text

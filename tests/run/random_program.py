"""Random programs of nested loops, with what they must compute.

A program is drawn from a ``random.Random``: two or three graphs inside each other, with states that
are read and assigned in any of them, values that loops carry (changed, unchanged, swapped), views,
results in place, streams in and out. It prints as IR text, and ``run`` gives its outputs by the
meaning of the IR alone: pure values, no memory.
"""

import torch

SIZE = 4
OPAQUE = '{args=["%0"], overload="aten::negative"}'


def _scatter(x, source):
    out = x.clone()
    out[1] = source[2]
    return out


# name -> (operands, text of the op on these operands, meaning)
OPS = {
    "add": (2, lambda a: f"add {a[0]}, {a[1]}", torch.add),
    "sub": (2, lambda a: f"sub {a[0]}, {a[1]}", torch.sub),
    "maximum": (2, lambda a: f"maximum {a[0]}, {a[1]}", torch.maximum),
    "relu": (1, lambda a: f"relu {a[0]}", torch.relu),
    "opaque": (1, lambda a: f"aten {a[0]} {OPAQUE}", torch.neg),
    "flip": (1, lambda a: f"flip {a[0]} {{dims=[1]}}", lambda x: x.flip(1)),
    "transpose": (1, lambda a: f"permute {a[0]} {{dims=[1, 0]}}", lambda x: x.t()),
    "roll": (1, lambda a: f"roll {a[0]} {{dims=[0], shifts=[1]}}", lambda x: x.roll(1, 0)),
    "tril": (1, lambda a: f"tril {a[0]}", torch.tril),
}


class Graph:
    """One graph: lines of text, and the same as closures over a dictionary of values."""

    def __init__(self, program, name, depth):
        self.program, self.name, self.depth = program, name, depth
        self.lines, self.actions, self.values = [], [], []
        self.outputs, self.assigned = [], {}

    def define(self, text, action):
        value = f"%v{len(self.lines)}"
        self.lines.append(f"{value} = {text} : f32[{SIZE},{SIZE}]")
        self.actions.append(lambda env, v=value, act=action: env.__setitem__(v, act(env)))
        self.values.append(value)
        return value

    def source(self, rng):
        """A value from outside: a state, a stream or a constant."""
        kind = rng.choice(["state", "state", "stream", "constant"])
        if kind == "state":
            path = rng.choice(self.program.paths)
            return self.define(f'state {{path="{path}"}}', lambda env: env["entry"][path])
        if kind == "stream":
            name = f"in.{len(self.program.inputs)}"
            self.program.inputs[name] = self.depth
            return self.define(f'stream_in {{stream="{name}"}}', lambda env: env["read"](name))
        items = [float(rng.randint(-2, 2)) for _ in range(SIZE * SIZE)]
        return self.define(f"constant {{data={items}}}",
                           lambda env: torch.tensor(items).reshape(SIZE, SIZE))

    def operation(self, rng):
        """An op on earlier values, late ones more often."""
        if rng.random() < 0.2:
            return self._scattered(rng)
        count, text, meaning = OPS[rng.choice(sorted(OPS))]
        operands = [self.pick(rng) for _ in range(count)]
        return self.define(text(operands), lambda env: meaning(*(env[a] for a in operands)))

    def _scattered(self, rng):
        """A row of one value written into another value: its kernel works in place if it may."""
        into, source = self.pick(rng), self.pick(rng)
        row = f"%r{len(self.lines)}"
        self.lines.append(f"{row} = slice {source} {{dim=0, end=3, start=2}} : f32[1,{SIZE}]")
        self.actions.append(lambda env: None)
        return self.define(f"slice_scatter {into}, {row} {{dim=0, end=2, start=1}}",
                           lambda env: _scatter(env[into], env[source]))

    def pick(self, rng):
        """An earlier value; every third time one of the last three."""
        return rng.choice(self.values[-3:] if rng.random() < 0.6 else self.values)

    def send(self, value):
        """Streams a value out."""
        name = f"out.{len(self.program.outputs)}"
        self.program.outputs[name] = self.depth
        self.lines.append(f'stream_out {value} {{stream="{name}"}}')
        self.actions.append(lambda env: env["write"](name, env[value]))

    def assign(self, path, value):
        """Binds a value to a state at the end."""
        self.assigned[path] = value
        self.lines.append(f'assign {value} {{path="{path}"}}')
        self.actions.append(lambda env: None)

    def loop(self, rng):
        """A loop over a new graph that carries up to three values."""
        carried = [self.pick(rng) for _ in range(rng.randint(0, 3))]
        count = rng.randint(1, 3)
        body = self.program.draw_body(rng, self.depth + [count], len(carried))
        results = [f"%l{len(self.lines)}.{i}" for i in range(len(carried))]
        types = ", ".join(f"f32[{SIZE},{SIZE}]" for _ in carried)
        head = f"{', '.join(results)} = " if results else ""
        tail = f" : {types}" if results else ""
        self.lines.append(f"{head}loop {', '.join(carried)} {{body=@{body.name}, count={count}}}"
                          f"{tail}")

        def action(env):
            values = [env[c] for c in carried]
            for i in range(count):
                values = body.evaluate(env, values, env["index"] + [i])
            env.update(zip(results, values))

        self.actions.append(action)
        self.values += results

    def evaluate(self, outer, inputs, index):
        """Runs the graph once; returns its outputs and binds its assigned states."""
        states = outer["states"]
        env = {"states": states, "entry": dict(states), "index": index, "inputs": inputs,
               "read": lambda name: outer["host"](name, index),
               "write": lambda name, value: outer["sent"][name].append(value),
               "host": outer["host"], "sent": outer["sent"]}
        for action in self.actions:
            action(env)
        states.update({path: env[value] for path, value in self.assigned.items()})
        return [env[value] for value in self.outputs]

    def text(self):
        """The graph as IR text."""
        output = f"  output {', '.join(self.outputs)}".rstrip()
        return "\n".join([f"graph {self.name} {{", *(f"  {line}" for line in self.lines), output,
                          "}"])


class Program:
    """A whole random program: ``main``, which loops over ``iteration``, and what is inside."""

    def __init__(self, rng, ops=12):
        self.ops = ops
        self.paths = [f"s{i}" for i in range(rng.randint(1, 3))]
        self.inputs, self.outputs, self.graphs = {}, {}, []
        self.count = rng.randint(1, 3)
        self.iteration = self.draw_body(rng, [self.count], 0, "iteration")

    def draw_body(self, rng, depth, carried, name=None):
        """Draws a graph that takes so many carried values."""
        graph = Graph(self, name or f"body{len(self.graphs)}", depth)
        self.graphs.append(graph)
        for i in range(carried):
            if rng.random() < 0.9:
                graph.define(f"input {{index={i}}}", lambda env, i=i: env["inputs"][i])
        inputs = list(graph.values)
        for _ in range(rng.randint(1, 3)):
            graph.source(rng)
        for _ in range(rng.randint(3, self.ops)):
            if rng.random() < 0.12 and len(depth) < 3:
                graph.loop(rng)
            elif rng.random() < 0.15:
                graph.source(rng)
            else:
                graph.operation(rng)
        for _ in range(rng.randint(1, 3)):
            graph.send(graph.pick(rng))
        for path in self.paths:
            if rng.random() < 0.5:
                graph.assign(path, rng.choice(graph.values))
        graph.outputs = [rng.choice(inputs) if inputs and rng.random() < 0.4
                         else rng.choice(graph.values) for _ in range(carried)]
        return graph

    def text(self):
        """The module as IR text."""
        main = (f"graph main {{\n  loop {{body=@iteration, count={self.count}}}\n  output\n}}")
        return "\n\n".join([main, *(graph.text() for graph in self.graphs)]) + "\n"

    def run(self, states, host):
        """Evaluates the program.

        Args:
            states: by path; updated.
            host: by input stream, all slices along dimension 0.

        Returns:
            By output stream, what was sent, stacked.
        """
        sent = {name: [] for name in self.outputs}

        def read(name, index):
            slice_number = 0
            for i, count in zip(index, self.inputs[name]):
                slice_number = slice_number * count + i
            return host[name][slice_number]

        outer = {"states": states, "host": read, "sent": sent}
        for i in range(self.count):
            self.iteration.evaluate(outer, [], [i])
        return {name: torch.stack(values) for name, values in sent.items()}

    def data(self):
        """Random input tensors and states; small whole numbers, so that sums are exact."""
        def draw(*sizes):
            return torch.randint(-2, 3, (*sizes, SIZE, SIZE)).float()

        host = {name: draw(torch.Size(depth).numel()) for name, depth in self.inputs.items()}
        return host, {path: draw() for path in self.paths}

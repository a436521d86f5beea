"""IR text of the rows of a file of op measurements: the program that each row was measured with."""

import math
import re

ITEM = {"f16": 2, "f32": 4, "i32": 4}


class NotBuilt(Exception):
    """A row for which there is no program; the text says why."""


class Program:
    """IR text, op by op."""

    def __init__(self):
        self.lines, self.types, self.bytes = [], {}, 0

    def add(self, op, operands, attrs, *types):
        """Appends an op; returns its results' names."""
        names = [f"%v{len(self.types) + i}" for i in range(len(types))]
        texts = []
        for name, (dtype, sizes) in zip(names, types, strict=True):
            self.types[name] = (dtype, list(sizes))
            texts.append(f"{dtype}[{','.join(map(str, sizes))}]")
            # A permuted tensor is another view of one that counts already.
            self.bytes += 0 if op == "permute" else ITEM[dtype] * math.prod(sizes)
        pairs = ", ".join(f"{key}={value}" for key, value in attrs.items())
        line = f"{', '.join(names)} = {op} {', '.join(operands)}".rstrip()
        self.lines.append(f"  {line}{' {' + pairs + '}' if pairs else ''} : {', '.join(texts)}")
        return names if len(names) > 1 else names[0]

    def input(self, dtype, *sizes):
        """A tensor that is there."""
        return self.add("input", [], {"index": len(self.types)}, (dtype, sizes))

    def unary(self, op, x, **attrs):
        """An op with a result of its operand's type."""
        return self.add(op, [x], attrs, self.types[x])

    def binary(self, op, x, y, **attrs):
        """An op with a result of its first operand's type."""
        return self.add(op, [x, y], attrs, self.types[x])

    def matmul(self, x, y, op="matmul", **attrs):
        """A product of matrices."""
        (dtype, left), (_, right) = self.types[x], self.types[y]
        return self.add(op, [x, y], attrs, (dtype, [*left[:-1], right[-1]]))

    def transpose(self, x):
        """The last two dimensions exchanged."""
        dtype, sizes = self.types[x]
        dims = [*range(len(sizes) - 2), len(sizes) - 1, len(sizes) - 2]
        return self.add("permute", [x], {"dims": dims}, (dtype, [sizes[i] for i in dims]))

    def text(self):
        """The IR text."""
        return "\n".join(["graph main {", *self.lines, "  output", "}", ""])


def arguments(params):
    """``--name value`` and ``--name=value`` as a dict; ``{a,b}`` as a list."""
    found = {}
    for name, value in re.findall(r'--([\w-]+)[ =]("[^"]*"|\{[^}]*\}|\S+)', params):
        value = value.strip('"')
        found[name] = value.strip("{}").split(",") if value.startswith("{") else value
    return found


def _pair(value, default):
    if value is None:
        return [default, default]
    return [int(v) for v in value] if isinstance(value, list) else [int(value)] * 2


def _dtype(args):
    return {"float": "f32", "half": "f16"}[args.get("data-type", "half")]


def fully_connected(args):
    """Forward, backward, weight update, bias and the updates of weights and bias."""
    program, dtype = Program(), _dtype(args)
    groups = [int(args["num-groups"])] if int(args.get("num-groups", 1)) > 1 else []
    batch, inputs, outputs = (int(args[n]) for n in ("batch-size", "input-size", "output-size"))
    x = program.input(dtype, *groups, batch, inputs)
    w = program.input(dtype, *groups, inputs, outputs)
    bias = program.input(dtype, outputs)
    program.binary("add", program.matmul(x, w), bias)
    backward = {"part": '"backward"'}
    grad = program.input(dtype, *groups, batch, outputs)
    program.matmul(grad, program.transpose(w), **backward)
    grad_w = program.matmul(program.transpose(x), grad, **backward)
    dims = list(range(len(groups) + 1))
    grad_b = program.add("sum", [grad], {"dim": dims}, (dtype, [outputs]))
    program.binary("accumulate", w, grad_w)
    program.binary("accumulate", bias, grad_b)
    return program


def product(args):
    """D + A B."""
    program, dtype = Program(), _dtype(args)
    m, k, n = (int(args[name]) for name in "mkn")
    out = program.matmul(program.input(dtype, m, k), program.input(dtype, k, n))
    program.binary("accumulate", program.input(dtype, m, n), out)
    return program


def _add_convolution(program, dtype, batch, groups, channels, field, kernel, stride, padding,
                     **notes):
    into, out = channels
    sizes = [(f + 2 * p - k) // s + 1
             for f, k, s, p in zip(field, kernel, stride, padding, strict=True)]
    attrs = {"stride": stride, "padding": padding, "dilation": [1, 1], "transposed": "false",
             "output_padding": [0, 0], "groups": groups, **notes}
    x = program.input(dtype, batch, groups * into, *field)
    w = program.input(dtype, groups * out, into, *kernel)
    bias = program.input(dtype, groups * out)
    y = program.add("convolution", [x, w, bias], attrs, (dtype, [batch, groups * out, *sizes]))
    grad = program.input(*[program.types[y][0], *program.types[y][1]])
    _, grad_w, grad_b = program.add(
        "convolution_backward", [grad, x, w],
        {**attrs, "part": '"backward"', "output_mask": "[true, true, true]"},
        program.types[x], program.types[w], program.types[bias])
    program.binary("accumulate", w, grad_w)
    program.binary("accumulate", bias, grad_b)


def _image(args):
    field, stride = _pair(args["field"], 1), _pair(args.get("stride"), 1)
    kernel = _pair(args.get("kernel-size", args.get("kernel")), 1)
    padding = _pair(args.get("padding"), 0)
    for side in ("padding-lower", "padding-upper"):
        extra = _pair(args.get(side), 0)
        padding = [max(p, e) for p, e in zip(padding, extra, strict=True)]
    return field, kernel, stride, padding


def convolution(args):
    """A convolution with bias, its gradients and the updates of weights and bias."""
    program = Program()
    channels = int(args["input-channels"]), int(args["output-channels"])
    _add_convolution(program, _dtype(args), int(args["batch-size"]),
                     int(args.get("conv-groups", 1)), channels, *_image(args))
    return program


def octave_convolution(args):
    """Convolutions between the channels of full and of half resolution, at the same time."""
    program = Program()
    field, kernel, stride, padding = _image(args)
    alphas = [float(args.get(name, args.get("alpha", 0))) for name in ("alpha-in", "alpha-out")]
    channels = [int(args["input-channels"]), int(args["output-channels"])]
    low = [round(a * c) for a, c in zip(alphas, channels, strict=True)]
    high = [c - x for c, x in zip(channels, low, strict=True)]
    half = [f // 2 for f in field]
    for image, into, out in ((field, high[0], high[1]), (half, high[0], low[1]),
                             (half, low[0], high[1]), (half, low[0], low[1])):
        if into and out:
            _add_convolution(program, _dtype(args), int(args["batch-size"]), 1, (into, out), image,
                             kernel, stride, padding, multi_conv=0)
    return program


def recurrent(args, op):
    """A layer; with ``--phase all`` its gradient, too."""
    program, dtype = Program(), _dtype(args)
    time, batch = int(args["sequence-size"]), int(args["batch-size"])
    inputs, hidden = int(args["input-size"]), int(args["output-size"])
    gates, states = (4, 2) if op == "lstm" else (3, 1)
    x = program.input(dtype, time, batch, inputs)
    state = [program.input(dtype, batch, hidden) for _ in range(states)]
    w_ih = program.input(dtype, gates * hidden, inputs)
    w_hh = program.input(dtype, gates * hidden, hidden)
    last = [(dtype, [batch, hidden])] * states
    reserve = (dtype, [time, batch, (5 if op == "lstm" else 4) * hidden])
    y, *_, kept = program.add(op, [x, *state, w_ih, w_hh], {"reverse": "false"},
                              (dtype, [time, batch, hidden]), *last, reserve)
    if args.get("phase") == "all":
        types = [program.types[name] for name in (x, *state, w_ih, w_hh)]
        bias = [(dtype, [gates * hidden])] * (1 if op == "lstm" else 2)
        extra = [] if op == "lstm" else [(dtype, [time, batch, gates * hidden])]
        absent = ["_"] * states
        program.add(f"{op}_backward", [y, *absent, x, *state, w_ih, w_hh, y, kept],
                    {"has_bias": "true", "reverse": "false"}, *types, *bias, *extra)
    return program


def pooling(args):
    """Maxima of windows and their gradient."""
    program, dtype = Program(), _dtype(args)
    field, kernel, stride, padding = _image(args)
    sizes = [(f + 2 * p - k) // s + 1
             for f, k, s, p in zip(field, kernel, stride, padding, strict=True)]
    image = [int(args.get("batch-size", 1)), int(args["channels"]), *field]
    attrs = {"kernel_size": kernel, "stride": stride, "padding": padding}
    x = program.input(dtype, *image)
    y, where = program.add("max_pool2d", [x], attrs, (dtype, [*image[:2], *sizes]),
                           ("i32", [*image[:2], *sizes]))
    program.add("max_pool2d_backward", [y, x, where], attrs, (dtype, image))
    return program


def reduction(args):
    """A sum over dimensions."""
    program = Program()
    dtype = {"half": "f16", "float": "f32"}[args["type"]]
    shape = [int(n) for n in args["shape"].split(",")]
    dims = [int(n) for n in args["dims"].split(",")]
    out = [n for d, n in enumerate(shape) if d not in dims]
    program.add("sum", [program.input(dtype, *shape)], {"dim": dims}, (dtype, out))
    return program


def connectionist_loss(args):
    """The loss and its gradient."""
    program = Program()
    time, labels, classes, batch = (int(args[n]) for n in ("max-time", "max-label-length",
                                                           "num-classes", "batch"))
    x = program.input("f32", time, batch, classes)
    labels_in = program.input("i32", batch, labels)
    lengths = [program.input("i32", batch) for _ in range(2)]
    inputs = [x, labels_in, *lengths]
    loss, alpha = program.add("ctc_loss", inputs, {}, ("f32", [batch]),
                              ("f32", [batch, time, 2 * labels + 1]))
    program.add("ctc_loss_backward", [loss, *inputs, alpha], {}, ("f32", [time, batch, classes]))
    return program


def embedding(args):
    """A look-up and the update of the table."""
    program = Program()
    rows, width = (int(n) for n in args["shape"])
    count = int(args["num-indices"])
    table, indices = program.input("f16", rows, width), program.input("i32", count)
    program.add("embedding", [table, indices], {}, ("f16", [count, width]))
    grad = program.input("f16", count, width)
    program.add("index_add", [table, indices, grad], {"dim": 0}, ("f16", [rows, width]))
    return program


def _graph_sizes(params):
    found = dict(re.findall(r"(\w+)=([\d.]+)", params))
    return [int(found[name]) for name in ("num_inputs", "num_features", "num_outputs")]


def gather(params):
    """Rows of a table."""
    program = Program()
    rows, width, count = _graph_sizes(params)
    program.add("index_select", [program.input("f32", rows, width), program.input("i32", count)],
                {"dim": 0}, ("f32", [count, width]))
    return program


def scatter(params):
    """Rows added to a table."""
    program = Program()
    rows, width, count = _graph_sizes(params)
    table, index = program.input("f32", rows, width), program.input("i32", count)
    program.add("index_add", [table, index, program.input("f32", count, width)], {"dim": 0},
                ("f32", [rows, width]))
    return program


def schnet_block(params):
    """A filter of 25 functions of the distances, look-up, product, sum by node, two layers."""
    program = Program()
    rows, width, count = _graph_sizes(params)
    square = program.input("f32", width, width)
    basis = program.matmul(program.input("f32", count, 25), program.input("f32", 25, width))
    filters = program.matmul(program.unary("softplus", basis), square)
    cutoff = program.unary("cos", program.input("f32", count, 1))
    filters = program.binary("mul", filters, cutoff)
    index = program.input("i32", count)
    node = program.matmul(program.input("f32", rows, width), square)
    message = program.add("index_select", [node, index], {"dim": 0}, ("f32", [count, width]))
    message = program.binary("mul", message, filters)
    sums = program.add("index_add", [program.input("f32", rows, width), index, message],
                       {"dim": 0}, ("f32", [rows, width]))
    program.matmul(program.unary("softplus", program.matmul(sums, square)), square)
    return program


def dense(params, dtype):
    """A product of square weights with n columns, float16 with float16 partials."""
    program = Program()
    found = dict(re.findall(r"(\w)=(\d+)", params.replace("m=k=", "k=")))
    k, n = int(found["k"]), int(found["n"])
    dtype = "f32" if dtype.lower().startswith("fp32") else "f16"
    op = "float16_partials_matmul" if dtype == "f16" else "matmul"
    x, y = program.input(dtype, k, k), program.input(dtype, k, n)
    if op == "matmul":
        program.matmul(x, y)
    else:
        program.add(op, [x, y, "_"], {}, (dtype, [k, n]))
    return program


BY_OP = {
    "conv": ("conv", convolution), "fc": ("fc", fully_connected), "gemm": ("gemm", product),
    "oct_conv": ("oct_conv", octave_convolution), "pooling": ("pooling", pooling),
    "lstm": ("lstm", lambda args: recurrent(args, "lstm")),
    "gru": ("gru", lambda args: recurrent(args, "gru")), "reduction": ("reduction", reduction),
    "ctc_loss": ("ctc", connectionist_loss), "embedding": ("embedding", embedding),
}
MEASURED = {"index_select rows": ("gather", gather), "scatter add rows": ("scatter", scatter),
            "SchNet interaction block inference": ("schnet", schnet_block)}


def program_of(row):
    """``(family, program)`` of a row; ``NotBuilt`` where there is none."""
    op, params = row["op"], row["params"]
    if op in BY_OP:
        family, build = BY_OP[op]
        return family, build(arguments(params))
    if op in MEASURED:
        family, build = MEASURED[op]
        return family, build(params)
    if op == "dense matmul":
        return "dense", dense(params, row["dtype"])
    raise NotBuilt(f"no program for {op!r}")


def target_of(row):
    """The target that a row names."""
    for name in ("GC200", "GC2", "Bow", "C600"):
        if row["target"].startswith(name):
            return name.lower()
    raise NotBuilt(f"no target {row['target']!r}")

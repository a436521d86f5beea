"""The floor of a workload: its products and convolutions alone, on warm buffers.

Each distinct call is tried in every layout, and the fastest one is taken; for inference, where
weights stay as they are, also with weights packed beforehand. It is tried amid the others, in the
order of the step: a call repeated by itself finds its operands in the cache, which no step does.
Buffers are shared among calls of the same shape.
"""

import itertools
import statistics
import time
from collections import Counter, defaultdict

import torch

from benchmarks.calls import record

LEAST_S = 0.3  # each layout is tried for so long, and at least twice
LONG_S = 3.0  # then once is enough, after a first time that does not count
DISPATCHES = 1000


class Buffers:
    """Tensors by role and layout."""

    def __init__(self):
        self._made = {}

    def get(self, role, sizes, strides=None):
        """The tensor for a role; ``strides`` None means contiguous."""
        key = (role, tuple(sizes), strides)
        if key not in self._made:
            tensor = torch.empty(sizes) if strides is None else torch.empty_strided(sizes, strides)
            self._made[key] = tensor.normal_(std=0.05)
        return self._made[key]

    def last_channels(self, role, sizes):
        """The same with channels last."""
        key = (role, tuple(sizes), "nhwc")
        if key not in self._made:
            plain = torch.empty(sizes).normal_(std=0.05)
            self._made[key] = plain.to(memory_format=torch.channels_last)
        return self._made[key]


def _product_ways(call, buffers, is_inference):
    """Either operand by rows or by columns."""
    a, b = call.operands
    out = buffers.get("out", call.result())
    function = torch.mm if call.kind == "mm" else torch.bmm
    ways = {}
    for left, right in itertools.product("rc", repeat=2):
        x, y = (
            buffers.get(role, operand.sizes)
            if order == "r"
            else buffers.get(role, (*operand.sizes[:-2], *operand.sizes[:-3:-1])).mT
            for role, operand, order in (("a", a, left), ("b", b, right))
        )
        ways[left + right] = lambda x=x, y=y: function(x, y, out=out)
    if is_inference and call.kind == "mm":
        ways |= _packed_products(call, buffers)
    return ways


def _packed_products(call, buffers):
    rows = call.operands[0].sizes[0]
    x = buffers.get("a", call.operands[0].sizes)
    weight = buffers.get("b", call.operands[1].sizes[::-1])
    onednn = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    ways = {"onednn": lambda: torch.ops.mkldnn._linear_pointwise(x, onednn, None, "none", [], "")}
    if torch.backends.mkl.is_available():
        mkl = torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)
        ways["mkl"] = lambda: torch.ops.mkl._mkl_linear(x, mkl, weight, None, rows)
    return ways


def _convolution_ways(call, buffers, is_inference):
    """Channels first or last; each direction by itself."""
    ways = {}
    for name, get in (("nchw", buffers.get), ("nhwc", buffers.last_channels)):
        tensors = [get(f"{i}", operand.sizes) for i, operand in enumerate(call.operands)]
        if call.kind == "conv":
            arguments = (*tensors, None, *call.settings)
            ways[name] = lambda arguments=arguments: torch.ops.aten.convolution(*arguments)
        else:
            mask = [call.kind == "conv_input", call.kind == "conv_weight", False]
            arguments = (*tensors, None, *call.settings, mask)
            ways[name] = lambda arguments=arguments: torch.ops.aten.convolution_backward(
                *arguments
            )
    if is_inference and not call.settings[3]:
        ways["packed"] = _packed_convolution(call, buffers)
    return ways


def _packed_convolution(call, buffers):
    stride, padding, dilation, _, _, groups = call.settings
    x, weight = call.operands
    packed = torch.ops.mkldnn._reorder_convolution_weight(
        buffers.get("1", weight.sizes), padding, stride, dilation, groups, x.sizes
    )
    image = buffers.last_channels("0", x.sizes)
    arguments = (image, packed, None, padding, stride, dilation, groups, "none", [], "")
    return lambda: torch.ops.mkldnn._convolution_pointwise(*arguments)


def _fastest(calls, ways):
    """The fastest way of each distinct call: (name, seconds, function)."""
    spent = defaultdict(list)
    for name in sorted({name for options in ways.values() for name in options}):
        order = [(call, name if name in ways[call] else next(iter(ways[call]))) for call in calls]
        begin, rounds = time.perf_counter(), 0
        while rounds < 2 or time.perf_counter() - begin < (LEAST_S if rounds > 2 else LONG_S):
            for call, way in order:
                start = time.perf_counter()
                ways[call][way]()
                if rounds > 0:
                    spent[call, way].append(time.perf_counter() - start)
            rounds += 1
    chosen = {}
    for call, options in ways.items():
        seconds = {way: statistics.median(spent[call, way]) for way in options}
        way = min(seconds, key=seconds.get)
        chosen[call] = way, seconds[way], options[way]
    return chosen


class Floor:
    """Replays the products of a workload.

    Args:
        module: gives ``(out, loss)`` in training mode, else ``out``.
        inputs: of one step.
    """

    def __init__(self, module, inputs):
        self.calls = record(module, inputs)
        buffers = Buffers()
        ways = {}
        for call in self.calls:
            if call not in ways:
                make = _product_ways if call.kind in ("mm", "bmm") else _convolution_ways
                ways[call] = make(call, buffers, not module.training)
        with torch.no_grad():
            self.chosen = _fastest(self.calls, ways)
        self._functions = [self.chosen[call][2] for call in self.calls]

    def call(self):
        """All products of one step."""
        with torch.no_grad():
            for function in self._functions:
                function()

    def dispatch_us(self):
        """Time of as many products of single numbers: what a replay spends in Python."""
        one, out = torch.ones(1, 1), torch.empty(1, 1)
        functions = [lambda: torch.mm(one, one, out=out)] * len(self.calls)
        times = []
        with torch.no_grad():
            for _ in range(DISPATCHES):
                start = time.perf_counter()
                for function in functions:
                    function()
                times.append(time.perf_counter() - start)
        return statistics.median(times) * 1e6

    def rows(self):
        """One row for each distinct call, the dearest first."""
        counts, rows = Counter(self.calls), []
        for call, (way, seconds, _) in self.chosen.items():
            shapes = ["x".join(map(str, operand.sizes)) for operand in call.operands]
            rows.append(
                {
                    "kind": call.kind,
                    "operands": " ".join(shapes),
                    "settings": str(call.settings),
                    "count": counts[call],
                    "way": way,
                    "ms": seconds * 1e3 * counts[call],
                    "gflops": call.flops() / seconds / 1e9,
                }
            )
        return sorted(rows, key=lambda row: -row["ms"])

    def totals(self):
        """FLOPs and least bytes of a step, and the number of calls."""
        return {
            "calls": len(self.calls),
            "flops": sum(call.flops() for call in self.calls),
            "bytes": sum(call.bytes() for call in self.calls),
        }

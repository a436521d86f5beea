"""The rules of verify: each is broken once, and the message names graph, op and rule."""

import pytest

from poptorch import _C
from poptorch.errors import Error

LOOP = """graph main {
  %%s = state {path="w"} : f32[2]
  %%l = loop %%s {body=@%s, count=%s} : f32[2]
  output
}

graph body {
  %s
}
"""


def graph(*lines, level="translated"):
    """A module of one graph; the last line is not `output` where the case gives one."""
    end = [] if lines[-1].startswith("output") else ["output"]
    text = "\n".join(["graph net {", *lines, *end, "}"])
    return _C.parse(text).verify(level)


X = '%x = state {path="x"} : f32[2,3]'
IDENTITY = "%0 = input {index=0} : f32[2]\n  output %0"


def test_good_modules():
    graph(X, "%0 = contiguous %x : f32[2,3]", 'assign %0 {path="x"}', "output %0")
    _C.parse(LOOP % ("body", 2, IDENTITY)).verify()
    graph('%x = state {addr=64, ipu=0, order=0, path="x", stage=0} : f32[2,3]', level="planned")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["%0 = no_such_op : f32[]"], r", op `%0 = no_such_op : f32\[\]`: there is no such op$"),
        (["%0 = contigous : f32[]"], "no such op. Did you mean contiguous\\?$"),
        ([X, "%0 = contiguous %x : f32[3,2]"], r"%0 is declared f32\[3,2\], the row infers f32\[2"),
        ([X, "contiguous %x"], "has 0 results, the row infers 1"),
        ([X, "%0 = contiguous %x, %x : f32[2,3]"], "takes 1 operands, got 2"),
        (["%0 = contiguous : f32[2,3]"], r'operand "x" \(number 0\) is missing'),
        (["%0 = contiguous _ : f32[2,3]"], r'operand "x" \(number 0\) is missing'),
        ([X, "%0 = contiguous %x {a=1} : f32[2,3]"], 'no attribute "a". Its attributes: none'),
        ([X, "%0 = relu %x {available_memory=0.3} : f32[2,3]"], 'no attribute "available_memory"'),
        (["%0 = state : f32[2,3]"], 'attribute "path" is missing. Give a string'),
        (["%0 = state {path=1} : f32[2,3]"], 'attribute "path" is 1, an int. Give a string'),
        (["%0, %1 = state {path=\"a\"} : f32[], f32[]"], "has 2 results, its row names 1"),
        ([X, "%0 = contiguous %x : f32[2,3](1,2)"], "%0 has strides, only a view or a move may"),
        ([X, "%0 = view %x : f32[3,2](1,3)", 'assign %0 {path="y"}'], "operand %0 has strides"),
        ([X, "%0 = view %x : f16[2,3]"], "a view keeps the dtype"),
        ([X, "%0 = view %x {offset=1} : f32[2,3]"], "6 elements from element 1 on, its .* has 6"),
        ([X, "%0 = view %x {offset=-1} : f32[2,2]"], "4 elements from element -1 on"),
        ([X, f"%0 = view %x {{offset={2**63 - 1}}} : f32[2,2]"], f"from element {2**63 - 1} on"),
        (["%0 = constant : f32[2]"], "has neither `hash` nor a list `data`"),
        (["%0 = constant {data=[1.0]} : f32[2]"], "`data` has 1 elements, the type 2"),
        (["%0 = constant {data=[true]} : f32[1]"], "`data` holds true, which is no f32"),
        (["%0 = constant {data=[1.0]} : i32[1]"], "`data` holds 1.0, which is no i32"),
        (['%0 = constant {data=["a"]} : bool[1]'], '`data` holds "a", which is no bool'),
        (['%0 = constant {hash="12"} : f32[2]'], "the module has no data of this hash"),
        ([X, '%y = state {path="x"} : f32[2]'], r'state "x" is f32\[2\] here and f32\[2,3\]'),
        (['%0 = state {layout="channels_last", path="y"} : f32[2,3]'], "has 3 dimensions or more"),
        (['%0 = state {path="y"} : f32[2,3,3]',
          '%1 = state {layout="channels_last", path="y"} : f32[2,3,3]'], "has another layout"),
        ([X, 'assign %x {path="x"}', 'assign %x {path="x"}'], '"x" is assigned twice'),
        ([X, "%0 = contiguous %x {inplace=[0]} : f32[2,3]"], "does not let result 0 take operand"),
        ([X, "%0 = contiguous %x {inplace=[0, 1]} : f32[2,3]"], "`inplace` has 2 entries for 1"),
        (["%0 = input {index=0} : f32[]"], "has inputs, but no loop runs it"),
        (["loop {body=@net, count=1}"], "runs itself"),
        (["loop {body=@other, count=1}"], "the module has no such graph"),
        ([X, '%0 = aten %x {args=["%0", [@net]], overload="aten::relu"} : f32[2,3]'],
         "names a graph, its row takes none"),
    ],
)
def test_broken_ops(lines, words):
    with pytest.raises(Error, match=r"\[verify\] graph @net.*" + words):
        graph(*lines)


@pytest.mark.parametrize(
    ("body", "count", "lines", "words"),
    [
        ("body", 0, IDENTITY, "a loop runs at least once"),
        ("body", 1, "output", "carries 1 values, its body returns 0"),
        ("body", 1, IDENTITY.replace("f32[2]", "f32[3]"), r"value 0 is f32\[2\], its body returns"),
        ("body", 1, IDENTITY.replace("index=0", "index=1"), "its body reads number 1"),
        ("body", 1, '%1 = input {index=0} : f32[2]\n' + IDENTITY, "another input has this index"),
        ("main", 1, IDENTITY, "carries 1 values, its body returns 0"),
    ],
)
def test_broken_loops(body, count, lines, words):
    with pytest.raises(Error, match=words):
        _C.parse(LOOP % (body, count, lines)).verify()


CONDITIONAL = """graph main {
  %%a = state {path="a"} : %s[%s]
  %%w = state {path="w"} : f32[2]
  %%0, %%1 = loop %%a, %%w {body=@body, conditional=true, count=1} : %s[%s], f32[2]
  output
}
graph body {
  %%a = input {index=0} : %s[%s]
  %%w = input {index=1} : f32[2]
  %s
  output %%a, %%w
}
"""
INNER = """graph inner {
  stream_out %x {stream="x"}
  output %x
}
"""


@pytest.mark.parametrize(
    ("dtype", "size", "line", "words"),
    [
        ("i32", 1, "", "its first carried value is no single bool"),
        ("bool", 2, "", "its first carried value is no single bool"),
        ("bool", 1, 'stream_out %w {stream="x"}', "its body has streams, states or reductions"),
        ("bool", 1, 'assign %w {path="w"}', "its body has streams, states or reductions"),
        ("bool", 1, "%1 = loop %w {body=@inner, count=2} : f32[2]",
         "its body has streams, states or reductions"),
    ],
)
def test_conditional_loops(dtype, size, line, words):
    inner = INNER.replace("stream", "%x = input {index=0} : f32[2]\n  stream", 1)
    kind = (dtype, size) * 3
    text = CONDITIONAL % (*kind, line) + (inner if "inner" in line else "")
    with pytest.raises(Error, match=words):
        _C.parse(text).verify()
    _C.parse(CONDITIONAL % (*("bool", 1) * 3, "")).verify()


@pytest.mark.parametrize(
    ("level", "attrs", "words"),
    [
        ("placed", "", "needs `ipu`, a number of at least 0"),
        ("placed", ", ipu=-1", "needs `ipu`"),
        ("placed", ", ipu=0", "needs `stage`"),
        ("lowered", ", ipu=0", "needs `stage`"),
        ("scheduled", ", ipu=0, stage=0", "needs `order`"),
        ("planned", ", ipu=0, order=0, stage=0", "needs `addr`"),
        ("planned", ", addr=[0, 64], ipu=0, order=0, stage=0", "2 addresses for 1 results"),
    ],
)
def test_levels(level, attrs, words):
    line = f'%x = state {{path="x"{attrs}}} : f32[2]'
    graph(line)
    with pytest.raises(Error, match=words):
        graph(line, level=level)


@pytest.mark.parametrize("level", ["translated", "placed", "lowered", "scheduled", "planned"])
@pytest.mark.parametrize(
    ("parts", "words"),
    [((', part="update"', ""), "needs `part`, other ops have it"),
     (("", ', part="update"'), "has `part`, other ops do not")])
def test_all_ops_have_a_part_or_none(level, parts, words):
    lines = [f'%{i} = state {{ipu=0, path="{i}"{part}, stage=0}} : f32[2]'
             for i, part in enumerate(parts)]
    graph(*lines, level="any")
    with pytest.raises(Error, match=words):
        graph(*lines, level=level)


@pytest.mark.parametrize("part", ['"late"', "1"])
def test_parts_have_names(part):
    words = f"has part={part}, which is not one of forward, backward, update"
    with pytest.raises(Error, match=words):
        graph(f'%x = state {{part={part}, path="x"}} : f32[2]', level="any")


@pytest.mark.parametrize("name", ["ipu", "stage", "phase"])
def test_loops_are_on_no_ipu(name):
    """The ops of their bodies are."""
    text = LOOP % ("body", 2, IDENTITY)
    with pytest.raises(Error, match=rf'\[loop\] has no attribute "{name}"'):
        _C.parse(text.replace("count=2", f"count=2, {name}=0")).verify("any")


@pytest.mark.parametrize("level", ["placed", "lowered"])
@pytest.mark.parametrize(
    ("phases", "words"),
    [((", phase=0", ""), "needs `phase`, other ops have it"),
     (("", ", phase=0"), "has `phase`, other ops do not")])
def test_all_ops_have_a_phase_or_none(level, phases, words):
    lines = [f'%{i} = state {{ipu=0, path="{i}"{phase}, stage=0}} : f32[2]'
             for i, phase in enumerate(phases)]
    with pytest.raises(Error, match=words):
        graph(*lines, level=level)


# A program with each of the ops that only lowering makes.
CONVOLUTION = ("dilation=[1, 1], groups=1, padding=[0, 0], stride=[1, 1]")
LOWERED = {
    "view": ['%0 = view %x : f32[3,2](1,3)'],
    "fused": ['%0 = fused %x {body=[["relu", 0], ["neg", 1]], out=[2]} : f32[2,3]'],
    "pack_convolution": [
        '%w = state {path="w"} : f32[4,3,1,1]',
        f"%0 = pack_convolution %w {{{CONVOLUTION}, input_size=[2, 3, 5, 5]}} : f32[256]"],
    "packed_convolution": [
        '%w = state {path="w"} : f32[4,3,1,1]', '%i = state {path="i"} : f32[2,5,5,3]',
        f"%0 = packed_convolution %i, %w, _ {{{CONVOLUTION}, weight_size=[4, 3, 1, 1]}} : "
        "f32[2,5,5,4]"],
    "batch_norm_apply": [
        '%i = state {path="i"} : f32[2,3,5,5]', '%m = state {path="m"} : f32[3]',
        "%0 = batch_norm_apply %i, %m, %m, %m, %m : f32[2,3,5,5]"],
}


def test_every_op_that_only_lowering_makes_has_a_case():
    assert set(LOWERED) == {row["name"] for row in _C.op_table() if row["lowered"]}


# The same for the attributes that only lowering sets.
IMAGE = '%i = state {path="i"} : f32[2,3,4,4]'
CHANNELS = '%m = state {path="m"} : f32[3]'
SMALL = ['%g = state {path="g"} : f32[2,3,2,2]', '%n = state {path="n"} : i32[2,3,2,2]']
SET_BY_LOWERING = {
    "layout": ['%i = state {path="i"} : f32[2,4,4,3]', CHANNELS,
               '%0 = batch_norm_inference %i, _, _, %m, %m {layout="channels_last"} : '
               'f32[2,4,4,3]'],
    "relu": [IMAGE, CHANNELS, "%0, %1, %2, %3, %4 = batch_norm %i, _, _, %m, %m {relu=true} : "
             "f32[2,3,4,4], f32[3], f32[3], f32[3], f32[3]"],
    "grad_residual": [IMAGE, CHANNELS, "%0, %1, %2, %3 = batch_norm_backward %i, %i, _, %m, %m, %i "
                      "{grad_residual=true} : f32[2,3,4,4], f32[3], f32[3], f32[2,3,4,4]"],
    "in_window": [IMAGE, "%0, %1 = max_pool2d %i {in_window=true, kernel_size=[2, 2]} : "
                  "f32[2,3,2,2], u8[2,3,2,2]"],
    "keep": [IMAGE, "%0, %1 = max_pool2d %i {keep=false, kernel_size=[2, 2]} : "
             "f32[2,3,2,2], i32[0]"],
    "image_size": [*SMALL, "%0 = max_pool2d_backward %g, _, %n "
                   "{image_size=[4, 4], kernel_size=[2, 2]} : f32[2,3,4,4]"],
}


def test_every_attribute_that_only_lowering_sets_has_a_case():
    attrs = {name for row in _C.op_table() for name, _, _, lowered in row["attrs"] if lowered}
    assert set(SET_BY_LOWERING) == attrs


@pytest.mark.parametrize("part", [*LOWERED, *SET_BY_LOWERING])
def test_only_lowering_makes(part):
    lines = [X, *LOWERED[part]] if part in LOWERED else SET_BY_LOWERING[part]
    graph(*lines, level="any")
    words = f"op `%0.*: only lowering for a target makes `{part}`"
    with pytest.raises(Error, match=words):
        graph(*lines)
    module = _C.parse("\n".join(["graph main {", *lines, "output", "}"]))
    _C.place(module)
    module.verify("lowered")
    with pytest.raises(Error, match=words):
        module.verify("placed")


def test_order_rises():
    lines = [f'%{i} = state {{path="{i}", ipu=0, order=1, stage=0}} : f32[2]' for i in range(2)]
    with pytest.raises(Error, match="has order=1, the op before has 1: it must rise"):
        graph(*lines, level="scheduled")


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["%0 = relu %x {ipu=1, stage=1} : f32[2,3]"], "reads %x on IPU 1, it is on IPU 0"),
        (["%0 = ipu_copy %x {bytes=24, from=2, ipu=1, stage=1} : f32[2,3]"],
         "reads %x on IPU 2, it is on IPU 0"),
        (["%0 = remote_load %x {bytes=24, ipu=0, stage=0} : f32[2,3]"],
         "loads %x, which is not in streaming memory"),
        (["%0 = remote_store %x {bytes=24, ipu=0, stage=0} : f32[2,3]",
          "%1 = relu %0 {ipu=0, stage=0} : f32[2,3]"],
         "reads %0, which is in streaming memory, without a remote_load"),
        (["%w = state {ipu=0, off_chip=true, path=\"w\", stage=0} : f32[2,3]",
          "%1 = relu %w {ipu=0, stage=0} : f32[2,3]"], "reads %w, which is in streaming memory"),
    ],
)
def test_reads_of_what_is_elsewhere(lines, words):
    with pytest.raises(Error, match=words):
        graph('%x = stream_in {ipu=0, stage=0, stream="x"} : f32[2,3]', *lines, level="placed")


@pytest.mark.parametrize(
    ("ipus", "words"),
    [((0, 1, 1), "reads %s on IPU 1, it is on IPU 0"),
     ((0, 0, 1), "output 0 is on IPU 1, the next round reads it on IPU 0")])
def test_carried_values_stay_on_their_ipu(ipus, words):
    text = f"""graph main {{
  %s = stream_in {{ipu={ipus[0]}, stage=0, stream="w"}} : f32[2]
  %l = loop %s {{body=@body, count=2}} : f32[2]
  output
}}

graph body {{
  %0 = input {{index=0, ipu={ipus[1]}, stage=0}} : f32[2]
  %c = ipu_copy %0 {{bytes=8, from={ipus[1]}, ipu={ipus[2]}, stage=0}} : f32[2]
  %1 = neg %c {{ipu={ipus[2]}, stage=0}} : f32[2]
  output %1
}}
"""
    _C.parse(text).verify("translated")
    with pytest.raises(Error, match=words):
        _C.parse(text).verify("placed")


@pytest.mark.parametrize(
    ("input_is", "stores", "words"),
    [("off_chip=true, ", ("", ""), "carries %s, which is not in the memory"),
     ("off_chip=true, ", ("s", ""), "carries %1, which is not in the memory"),
     ("", ("s", ""), "carries %s.stored, which is not in the memory"),
     ("", ("", "1"), "carries %1.stored, which is not in the memory")])
def test_carried_values_stay_in_their_memory(input_is, stores, words):
    store = "%{0}.stored = remote_store %{0} {{bytes=8, ipu=0, stage=0}} : f32[2]".format
    first, last = (f"{value}.stored" if value in stores else value for value in ("s", "1"))
    text = f"""graph main {{
  %s = stream_in {{ipu=0, stage=0, stream="w"}} : f32[2]
  {store("s")}
  %l = loop %{first} {{body=@body, count=2}} : f32[2]
  output
}}

graph body {{
  %0 = input {{index=0, {input_is}ipu=0, stage=0}} : f32[2]
  %1 = full {{dtype=dtype:f32, fill_value=0.0, ipu=0, size=[2], stage=0}} : f32[2]
  {store("1")}
  output %{last}
}}
"""
    _C.parse(text).verify("translated")
    with pytest.raises(Error, match=words):
        _C.parse(text).verify("placed")


def loops_in_loops(count):
    """The texts of graphs where each runs the next, ``main`` first."""
    names = ["main", *(f"g{i}" for i in range(count))]
    bodies = [f"  loop {{body=@{name}, count=1}}\n" for name in names[1:]] + [""]
    return [f"graph {name} {{\n{body}  output\n}}\n" for name, body in zip(names, bodies)]


@pytest.mark.parametrize("order", [1, -1], ids=["outer first", "inner first"])
def test_loops_in_loops_have_a_limit(order):
    _C.parse("\n".join(loops_in_loops(64)[::order])).verify()
    with pytest.raises(Error, match="has more than 64 loops one in the other"):
        _C.parse("\n".join(loops_in_loops(65)[::order])).verify()


def test_a_graph_that_many_loops_run_is_looked_at_once():
    loop = "  loop {{body=@g{}, count=1}}\n"
    graphs = [f"graph g{i} {{\n{2 * loop.format(i + 1)}  output\n}}\n" for i in range(60)]
    _C.parse("\n".join([*graphs, "graph g60 {\n  output\n}\n"])).verify()


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_graph_that_runs_itself(rounds):
    graphs = "".join(f"graph g{i} {{\n  loop {{body=@g{(i + 1) % rounds}, count=1}}\n  output\n}}\n"
                     for i in range(rounds))
    with pytest.raises(Error, match="runs itself"):
        _C.parse(graphs).verify()


def test_moves_keep_the_type():
    with pytest.raises(Error, match="moves a value of another type"):
        graph(X, "%0 = ipu_copy %x {bytes=4, from=0} : f32[1]")


def test_unknown_level():
    with pytest.raises(Error, match='unknown level "x". Use any, translated, placed, lowered, '):
        graph(X, level="x")

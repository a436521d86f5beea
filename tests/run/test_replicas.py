"""Replicas: memory of their own, and collectives over all of them."""

import pytest
import torch

from poptorch import Error
from tests.run.drive import DTYPES, Driver

PROGRAM = """
graph main {{
  loop {{body=@iteration, count=2}}
  output
}}

graph iteration {{
  %x = stream_in {{stream="x"}} : {type}
  %y = flip %x {{dims=[0]}} : {type}
  %z = all_reduce %y {{op="{op}"}} : {type}
  stream_out %y {{stream="own"}}
  stream_out %z {{stream="reduced"}}
  %s = state {{path="s"}} : {type}
  %t = flip %s {{dims=[0]}} : {type}
  assign %t {{path="s"}}
  output
}}
"""


@pytest.mark.parametrize("replicas", [1, 2, 3])
@pytest.mark.parametrize("op", ["mean", "sum"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16", "i32"])
def test_all_reduce(replicas, op, dtype):
    driver = Driver(PROGRAM.format(type=f"{dtype}[5000]", op=op), replicas=replicas)
    x = torch.randint(-8, 9, (2 * replicas, 5000)).to(DTYPES[dtype])
    out = driver(x=x)
    own = x.flip(1)
    total = own.view(2, replicas, -1).double().sum(1, keepdim=True)
    expected = total / replicas if op == "mean" else total
    expected = expected.trunc() if dtype == "i32" else expected.to(torch.float32)
    expected = expected.to(DTYPES[dtype]).expand(2, replicas, -1).reshape(2 * replicas, -1)
    assert torch.equal(out["own"], own), "the value before the reduction is read after it"
    if dtype == "f64":
        torch.testing.assert_close(out["reduced"], expected, rtol=1e-6, atol=1e-6)
    else:
        assert torch.equal(out["reduced"], expected)


@pytest.mark.parametrize("replicas", [3, 256])
@pytest.mark.parametrize("dtype", ["u8", "i8", "i16"])
def test_a_mean_of_small_whole_numbers_has_room(replicas, dtype):
    """Neither their sum nor the number of replicas may have to fit into the dtype."""
    text = PROGRAM.format(type=f"{dtype}[64]", op="mean")
    largest = torch.iinfo(DTYPES[dtype]).max
    x = torch.randint(largest // 2, largest + 1, (2 * replicas, 64)).to(DTYPES[dtype])
    reduced = Driver(text, replicas=replicas)(x=x)["reduced"].view(2, replicas, 64)
    expected = x.flip(1).view(2, replicas, 64).long().sum(1, keepdim=True) // replicas
    assert torch.equal(reduced, expected.to(DTYPES[dtype]).expand_as(reduced))


def test_states_are_each_replicas_own():
    driver = Driver(PROGRAM.format(type="f32[3]", op="sum"), replicas=2)
    driver.write("s", [1.0, 2.0, 3.0])
    driver.write("s", [4.0, 5.0, 6.0], replica=1)
    assert driver.read("s").tolist() == [1, 2, 3]
    assert driver.read("s", replica=1).tolist() == [4, 5, 6]
    with pytest.raises(Error, match="replica 2 was asked for, there are 2"):
        driver.write("s", [0.0, 0.0, 0.0], replica=2)
    with pytest.raises(Error, match="replica 2 was asked for, there are 2"):
        driver.read("s", replica=2)


NESTED = """
graph main {
  loop {body=@iteration, count=2}
  output
}

graph iteration {
  %x = stream_in {stream="x"} : f32[4]
  %0 = loop %x {body=@inner, count=3} : f32[4]
  stream_out %0 {stream="y"}
  output
}

graph inner {
  %0 = input {index=0} : f32[4]
  %1 = all_reduce %0 {op="sum"} : f32[4]
  %2 = flip %1 {dims=[0]} : f32[4]
  %3 = stream_in {stream="in"} : f32[4]
  stream_out %3 {stream="out"}
  output %2
}
"""


def test_collective_inside_a_loop():
    driver = Driver(NESTED, replicas=2)
    x, inner = torch.randint(-4, 5, (4, 4)).float(), torch.randn(12, 4)
    out = driver(x=x, **{"in": inner})
    first = x.view(2, 2, 4).sum(1, keepdim=True).flip(2) * 4
    assert torch.equal(out["y"], first.expand(2, 2, 4).reshape(4, 4))
    assert torch.equal(out["out"], inner)


GROUPED = """
graph main {{
  loop {{body=@iteration, count=2}}
  output
}}

graph iteration {{
  %x = stream_in {{stream="x"}} : f32[3000]
  %y = all_reduce %x {{op="mean", group_size={size}, orthogonal={orthogonal}}} : f32[3000]
  stream_out %y {{stream="y"}}
  output
}}
"""
GROUPS = {(1, False): [[0], [1], [2], [3]], (2, False): [[0, 1], [2, 3]],
          (2, True): [[0, 2], [1, 3]], (4, False): [[0, 1, 2, 3]], (4, True): [[0, 1, 2, 3]]}


@pytest.mark.parametrize(("size", "orthogonal"), GROUPS)
def test_all_reduce_in_groups(size, orthogonal):
    text = GROUPED.format(size=size, orthogonal=str(orthogonal).lower())
    x = torch.randint(-8, 9, (2, 4, 3000)).float()
    y = Driver(text, replicas=4)(x=x)["y"].view(2, 4, 3000)
    for group in GROUPS[size, orthogonal]:
        for replica in group:
            assert torch.equal(y[:, replica], x[:, group].mean(1))


@pytest.mark.parametrize("size", [3, 8, -2])
def test_groups_that_do_not_divide_the_replicas(size):
    with pytest.raises(Error, match=f"in groups of {size} replicas, there are 4"):
        Driver(GROUPED.format(size=size, orthogonal="false"), replicas=4)


TWO_DTYPES = """
graph main {
  %x = stream_in {stream="x"} : f32[3,5]
  %y = stream_in {stream="y"} : f32[7]
  %a, %b = all_reduce %x, %y {op="mean"} : f32[3,5], f32[7]
  stream_out %a {stream="a"}
  stream_out %b {stream="b"}
  output
}
"""


def test_all_reduce_of_several_tensors():
    x, y = torch.randn(2, 3, 5), torch.randn(2, 7)
    out = Driver(TWO_DTYPES, replicas=2)(x=x, y=y)
    assert torch.equal(out["a"], x.mean(0, keepdim=True).expand(2, 3, 5))
    assert torch.equal(out["b"], y.mean(0, keepdim=True).expand(2, 7))
    with pytest.raises(Error, match=r"operand 1 is f16\[7\], operand 0 is f32\[3,5\]"):
        Driver(TWO_DTYPES.replace("f32[7]", "f16[7]"), replicas=2)


PARTS = """
graph main {{
  %x = stream_in {{stream="x"}} : {dtype}[{n}]
  %sum = all_reduce %x {{op="{op}"}} : {dtype}[{n}]
  %part = reduce_scatter %x {{op="{op}", shards={shards}}} : {dtype}[{part}]
  %own = shard %sum {{shards={shards}}} : {dtype}[{part}]
  %whole = all_gather %part {{shards={shards}, size=[{n}]}} : {dtype}[{n}]
  stream_out %sum {{stream="sum"}}
  stream_out %part {{stream="part"}}
  stream_out %own {{stream="own"}}
  stream_out %whole {{stream="whole"}}
  output
}}
"""


@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [1, 3, 4, 7, 5000])
@pytest.mark.parametrize(("dtype", "op"), [("f32", "mean"), ("f16", "sum"), ("i32", "mean")])
def test_parts(replicas, n, dtype, op):
    """A part has the bits of the whole tensor; behind its end is its last element."""
    part = -(-n // replicas)
    text = PARTS.format(n=n, part=part, dtype=dtype, op=op, shards=replicas)
    x = (torch.randn(replicas, n) * 50).to(DTYPES[dtype])
    out = Driver(text, replicas=replicas)(x=x)
    padded = [torch.cat([one, one[-1:].expand(replicas * part - n)]) for one in out["sum"]]
    expected = torch.stack([whole.view(replicas, part)[r] for r, whole in enumerate(padded)])
    assert torch.equal(out["own"], expected)
    assert torch.equal(out["part"], expected)
    assert torch.equal(out["whole"], out["sum"])


@pytest.mark.parametrize(("facts", "words"), [
    ({"shards": 3, "part": 2}, "cuts a tensor into 3 parts, there are 2 replicas"),
    ({"shards": 0, "part": 3}, "shards is 0. Give 1 or more"),
])
def test_wrong_parts(facts, words):
    with pytest.raises(Error, match=words):
        Driver(PARTS.format(n=6, dtype="f32", op="sum", **facts), replicas=2)


def test_a_gather_of_something_else():
    text = PARTS.format(n=6, part=3, dtype="f32", op="sum", shards=2).replace(
        "size=[6]} : f32[6]", "size=[4]} : f32[4]")
    with pytest.raises(Error, match=r"x is f32\[3\], one of 2 parts of f32\[4\] has 2 elements"):
        Driver(text, replicas=2)


SHARDED = """
graph main {{
  %s = state {{path="s", shard_of=[{sizes}]}} : f32[{part}]
  %t = neg %s : f32[{part}]
  assign %t {{path="s"}}
  output
}}
"""


@pytest.mark.parametrize(("sizes", "part"), [("2, 3", 2), ("7", 3), ("1", 1)])
def test_the_host_has_the_whole_of_a_sharded_state(sizes, part):
    driver = Driver(SHARDED.format(sizes=sizes, part=part), replicas=3)
    state = driver.states["s"]
    assert state.bytes == 4 * torch.Size(state.sizes).numel() and state.shard_bytes == 4 * part
    value = torch.randn(state.sizes)
    driver.write("s", value)
    driver()
    assert torch.equal(driver.read("s"), -value)
    assert torch.equal(driver.read("s", replica=2), -value)
    assert driver.executable.is_same_in_replicas("s")
    driver.executable.release(set())
    assert torch.equal(driver.read("s"), -value)
    driver.write("s", value)
    driver.executable.restore()
    driver()
    assert torch.equal(driver.read("s"), -value)
    driver.executable.clear_state("s")
    assert not driver.read("s").any()


def test_one_replicas_part_is_written_alone():
    driver = Driver(SHARDED.format(sizes="7", part=3), replicas=3)
    driver.write("s", torch.arange(7.0))
    driver.write("s", torch.full((7,), 9.0), replica=1)
    assert driver.read("s").tolist() == [0, 1, 2, 9, 9, 9, 6]


@pytest.mark.parametrize(("text", "words"), [
    (SHARDED.format(sizes="7", part=4),
     r'replicas have 4 elements of the state "s", which is f32\[7\]; each of 3 replicas needs 3'),
    (SHARDED.format(sizes="7", part="1,3"), "a part of a sharded state is a row of elements"),
    (SHARDED.format(sizes="7", part=3).replace(
        "  %t", '  %u = state {path="s", shard_of=[8]} : f32[3]\n  %t'),
     'state "s" is a part of another shape elsewhere'),
])
def test_wrong_sharded_states(text, words):
    with pytest.raises(Error, match=words):
        Driver(text, replicas=3)

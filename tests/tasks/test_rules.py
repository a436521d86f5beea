"""What verify asks of tasks, and what cannot be cut."""

import pytest

from poptorch import _C, Error

GOOD = """graph main {
  loop {body=@micro, count=4, pipeline="grouped"}
  output
}

graph micro {
  %x = task {body=@micro.s0, ipu=0, part="forward", stage=0} : f32[2]
  %x.ipu1 = ipu_copy %x {bytes=8, from=0, ipu=1, stage=1} : f32[2]
  task %x.ipu1 {body=@micro.s1, ipu=1, part="forward", stage=1}
  output
}

graph micro.s0 {
  %x = stream_in {ipu=0, stage=0, stream="x"} : f32[2]
  output %x
}

graph micro.s1 {
  %x = input {index=0, ipu=1, stage=1} : f32[2]
  %n = state {ipu=1, path="n", stage=1} : f32[2]
  %0 = add %n, %x {ipu=1, stage=1} : f32[2]
  assign %0 {ipu=1, path="n", stage=1}
  output
}
"""
READS_N = '  %n = state {ipu=0, path="n", stage=0} : f32[2]\n  output %x\n'
ASSIGNS_N = '  assign %x {ipu=0, path="n", stage=0}\n  output %x\n'
# What is replaced by what, and the words of the error.
BROKEN = {
    "operand type": ("%x = input {index=0, ipu=1, stage=1} : f32[2]",
                     "%x = input {index=0, ipu=1, stage=1} : f32[1]",
                     r"operand 0 is f32\[2\], its body reads f32\[1\]"),
    "operand number": ("input {index=0", "input {index=1",
                       "has 1 operands, its body reads number 1"),
    "unread operand": ("task %x.ipu1 {", "task %x.ipu1, %x.ipu1 {",
                       "has operand 1, which its body does not read"),
    "result count": ("output %x\n", "output\n", "has 1 results, its body has 0"),
    "result type": ("ipu=0, part=\"forward\", stage=0} : f32[2]",
                    "ipu=0, part=\"forward\", stage=0} : f32[3]",
                    "moves a value of another type"),
    "no part": (", part=\"forward\", stage=1}", ", stage=1}",
                "needs `part`: forward, backward or both"),
    "unknown part": ("part=\"forward\", stage=1", "part=\"all\", stage=1", "has part=\"all\""),
    "one body": ("  %x.ipu1 = ipu_copy", "  %y = task {body=@micro.s0, ipu=0, part=\"forward\", "
                 "stage=0} : f32[2]\n  %x.ipu1 = ipu_copy", "another task has the same body"),
    "a loop runs it": ("  task %x.ipu1", "  %l = loop %x {body=@micro.s0, count=1} : f32[2]\n"
                       "  task %x.ipu1",
                       "runs @micro.s0, which is the body of a task"),
    "tasks in tasks": ("  output %x\n", "  task {body=@other, ipu=0, part=\"forward\", stage=0}\n"
                       "  output %x\n}\n\ngraph other {\n  output\n",
                       "is in the body of another task"),
    "operand elsewhere": ("task %x.ipu1", "task %x", "reads %x on IPU 1, it is on IPU 0"),
    "body elsewhere": ("stream_in {ipu=0", "stream_in {ipu=1",
                       "is on IPU 0, its body has `%x = stream_in"),
    "stash elsewhere": ("ipu_copy %x {bytes=8, from=0, ", "stash %x {bytes=8, ",
                        "reads %x on IPU 1, it is on IPU 0"),
    "depth": ("{bytes=8, from=0", "{bytes=8, depth=-1, from=0", "has depth=-1, a number of"),
    "state read by another task": ("  output %x\n", READS_N,
                                   'assigns state "n", which another task reads'),
    "state assigned twice": ("  output %x\n", ASSIGNS_N,
                             'assigns state "n", as another task does'),
}


def test_good():
    _C.parse(GOOD).verify("placed")


@pytest.mark.parametrize("name", BROKEN)
def test_rules(name):
    old, new, words = BROKEN[name]
    assert old in GOOD
    with pytest.raises(Error, match=words):
        _C.parse(GOOD.replace(old, new, 1)).verify("placed")


def test_tasks_in_turn_may_share_a_state():
    _C.parse(GOOD.replace("  output %x\n", READS_N).replace("grouped", "sequential")).verify(
        "placed")


def test_a_loop_of_several_stages():
    module = _C.parse("""graph main {
  strategy {blocks=[["a", 0, 0], ["b", 1, 1]], kind="sharded"}
  loop {body=@iteration, count=2}
  output
}

graph iteration {
  %x = stream_in {stream="x"} : f32[4]
  %0 = loop %x {block="a", body=@body, count=3} : f32[4]
  %1 = tanh %0 {block="b"} : f32[4]
  stream_out %1 {stream="y"}
  output
}

graph body {
  %in = input {index=0} : f32[4]
  %0 = relu %in {block="a"} : f32[4]  // net.py:7
  %1 = tanh %0 {block="b"} : f32[4]  // net.py:9
  output %1
}
""")
    _C.place(module)
    with pytest.raises(Error, match=r"(?s)\[place\] a loop has operations of several stages: "
                       r"\w+ runs on IPU 0 in stage 0.*tanh|ipu_copy runs on IPU 1 in stage 1.*"
                       r"net.py.*Put the whole loop into one block"):
        _C.cut_tasks(module)


def test_an_unknown_schedule():
    module = _C.parse("""graph main {
  strategy {kind="pipelined", schedule="fast", stages=1}
  loop {body=@iteration, count=2}
  output
}

graph iteration {
  output
}
""")
    with pytest.raises(Error, match='there is no schedule "fast". It is one of grouped'):
        _C.cut_tasks(module)

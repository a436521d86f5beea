"""Properties of plans, over random programs: right results, aligned, deterministic, tight."""

import random
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poptorch import _C
from tests.run.drive import Driver
from tests.run.random_program import Program

MODES = [{}, {"poison": True}, {"reload_ir": True}, {"pass_limit": 0, "poison": True}]
ADDRESS = re.compile(r"\b(addr|scratch_addr)=(\[[^]]*\]|\d+)")


def equal(ours, expected):
    """Equal bits; any NaN equals any other."""
    return torch.equal(ours.nan_to_num(), expected.nan_to_num())


def check_program(seed, driver_of):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    program = Program(rng)
    host, states = program.data()
    expected_states = dict(states)
    expected = program.run(expected_states, host)
    driver = driver_of(program.text())
    if driver is None:
        return
    for path in driver.states:
        driver.write(path, states[path])
    read = {s.name for s in driver.streams if s.is_input}
    out = driver(**{name: tensor for name, tensor in host.items() if name in read})
    for name, tensor in expected.items():
        assert equal(out[name], tensor), name
    for path in driver.states:
        assert equal(driver.read(path), expected_states[path]), path


@pytest.mark.parametrize("options", MODES, ids=lambda o: "+".join(o) or "plain")
@settings(max_examples=60, deadline=None, database=None)
@given(seed=st.integers(0, 2**32))
def test_results(options, seed):
    check_program(seed, lambda text: Driver(text, **options))


def planned_text(seed):
    module = _C.parse(Program(random.Random(seed)).text())
    for step in (_C.place, _C.schedule, _C.plan):
        step(module)
    return module.text()


def addresses(text):
    """All addresses of planned text that are not views'."""
    found = []
    for line in text.splitlines():
        if " = view " not in line:
            for _, numbers in ADDRESS.findall(line):
                found += [int(n) for n in re.findall(r"\d+", numbers)]
    return found


@settings(max_examples=60, deadline=None, database=None)
@given(seed=st.integers(0, 2**32))
def test_addresses_are_aligned_and_deterministic(seed):
    text = planned_text(seed)
    assert text == planned_text(seed)
    assert all(addr % 64 == 0 for addr in addresses(text))


@settings(max_examples=40, deadline=None, database=None)
@given(seed=st.integers(0, 2**32))
def test_moved_addresses_give_equal_results(seed):
    def moved(text):
        planned = _C.parse(text)
        for step in (_C.place, _C.schedule, _C.plan):
            step(planned)

        def move(match):
            numbers = re.sub(r"\d+", lambda n: str(int(n.group()) + 4096), match.group(2))
            return f"{match.group(1)}={numbers}"

        return Driver(ADDRESS.sub(move, planned.text()), planned=True)

    check_program(seed, moved)


FIXED = (" view ", " loop ", " input ", " state ", "assign ", " constant ")


def corrupted(text, rng):
    """Planned text with the address of one value changed to that of another value."""
    lines = text.splitlines()
    movable = [i for i, line in enumerate(lines) if re.search(r"[{ ]addr=\d", line)
               and not any(name in line for name in FIXED)]
    if not movable:
        return text
    i = rng.choice(movable)
    new = rng.choice(sorted(addresses(text))) // 64 * 64
    lines[i] = re.sub(r"([{ ])addr=\d+", rf"\1addr={new}", lines[i])
    return "\n".join(lines)


@settings(max_examples=200, deadline=None, database=None)
@given(seed=st.integers(0, 2**32))
def test_what_the_check_accepts_computes_right(seed):
    """A plan with a wrong address is refused, or the change did no harm."""
    def driver_of(text):
        planned = _C.parse(text)
        for step in (_C.place, _C.schedule, _C.plan):
            step(planned)
        wrong = corrupted(planned.text(), random.Random(seed))
        try:
            _C.check_plan(_C.parse(wrong))
        except RuntimeError:
            return None
        return Driver(wrong, planned=True, poison=bool(seed % 2))

    check_program(seed, driver_of)


def chain(length):
    """A chain of ops: two values live at a time."""
    lines = ['  %0 = stream_in {stream="x"} : f32[64,64]']
    lines += [f"  %{i + 1} = flip %{i} {{dims=[0]}} : f32[64,64]" for i in range(length)]
    lines.append(f'  stream_out %{length} {{stream="y"}}')
    return "graph main {\n" + "\n".join(lines) + "\n  output\n}\n"


def test_memory_of_dead_values_is_used_again():
    module = _C.parse(chain(100))
    for step in (_C.place, _C.schedule, _C.plan):
        step(module)
    assert _C.memory_report(module)["arena"] == 2 * 64 * 64 * 4


def test_equal_zeros_of_two_sums_are_copied_outside_of_the_loop():
    module = _C.parse("""
graph main {
  %zero = full {dtype=dtype:f32, fill_value=0.0, size=[64]} : f32[64]
  %l0, %l1 = loop %zero, %zero {body=@micro, count=8} : f32[64], f32[64]
  stream_out %l0 {stream="a"}
  stream_out %l1 {stream="b"}
  output
}

graph micro {
  %a = input {index=0} : f32[64]
  %b = input {index=1} : f32[64]
  %x = stream_in {stream="x"} : f32[64]
  %0 = accumulate %a, %x {scale=1.0} : f32[64]
  %1 = exp %x : f32[64]
  %2 = accumulate %b, %1 {scale=1.0} : f32[64]
  output %0, %2
}
""")
    for step in (_C.place, _C.schedule, _C.plan):
        step(module)
    body = module.text().partition("graph micro")[2]
    assert "contiguous" not in body, body


def test_ten_thousand_ops_take_seconds():
    module = _C.parse(chain(10_000))
    for step in (_C.place, _C.schedule, _C.plan, _C.check_plan):
        step(module)
    assert _C.memory_report(module)["arena"] == 2 * 64 * 64 * 4


def test_memory_report():
    text = """
graph main {
  loop {body=@iteration, count=1}
  output
}

graph iteration {
  %w = state {path="w", role="parameter"} : f32[1024]
  %m = state {path="m", role="optimizer"} : f32[512]
  %s = state {path="s", role="buffer"} : f32[256]
  %c = constant {data=[1.0, 2.0]} : f32[2]
  %x = stream_in {stream="x"} : f32[1024]
  %y = flip %x {dims=[0]} : f32[1024]
  %g = flip %y {dims=[0], part="backward"} : f32[1024]
  %all = aten %w, %x, %g, %m, %s, %c {args=[["%0", "%1", "%2", "%3", "%4", "%5"]], """ \
        """overload="aten::cat"} : f32[3842]
  %sum = sum %all : f32[]
  stream_out %sum {stream="sum"}
  output
}
"""
    module = _C.parse(text)
    for step in (_C.place, _C.schedule, _C.plan):
        step(module)
    report = _C.memory_report(module)
    arena, scratch = report.pop("arena"), report.pop("scratch")
    assert report.pop("transfers") == 0
    assert report == {"parameters": 4096, "optimizer_state": 2048, "buffers": 1024, "constants": 8,
                      "streams": 4096, "activations": 3842 * 4, "gradients": 4096}
    assert sum(report.values()) + scratch <= arena < sum(report.values()) + scratch + 64 * 9


def planned_report(text):
    module = _C.parse(text)
    for step in (_C.place, _C.schedule, _C.plan):
        step(module)
    return _C.memory_report(module)


def test_memory_report_counts_memory_once_where_it_is_taken_in_place():
    report = planned_report("""
graph main {
  %x = stream_in {stream="x"} : f32[16,1]
  %y = stream_in {stream="y"} : f32[1,64]
  %z = stream_in {stream="z"} : f32[32,1]
  %beside = matmul %x, %y : f32[16,64]
  %large = matmul %z, %y {part="backward"} : f32[32,64]
  %sum = sum %beside : f32[]
  %taken = relu %large {part="backward"} : f32[32,64]
  %total = sum %taken {part="backward"} : f32[]
  stream_out %sum {stream="sum"}
  stream_out %total {stream="total"}
  output
}
""")
    # %taken lies where %large was: most is alive while %beside is.
    assert (report["activations"], report["gradients"]) == (4 * 16 * 64, 4 * 32 * 64)


def test_memory_report_sees_what_lies_where_empty_tensors_do():
    report = planned_report("""
graph main {
  %nothing = state {path="a", role="buffer"} : f32[0]
  %w = state {path="b", role="parameter"} : f32[64]
  %empty = constant {data=[]} : f32[0]
  %y = flip %w {dims=[0]} : f32[64]
  stream_out %nothing {stream="0"}
  stream_out %empty {stream="1"}
  %sum = sum %y : f32[]
  stream_out %sum {stream="2"}
  output
}
""")
    # 64 bytes for each of the empty ones and for %sum, which have places of their own.
    assert (report["parameters"], report["activations"], report["arena"]) == (256, 256, 704)


STEP = """
graph main {{
  %column = stream_in {{stream="column"}} : f32[16,1]
  %row = stream_in {{stream="row"}} : f32[1,64]
  %step = matmul %column, %row : f32[16,64]
  %small = sum %step {{dim=[0], keepdim=true}} : f32[1,64]
  %tall = stream_in {{stream="tall"}} : f32[32,1]
  %large = matmul %tall, %small : f32[32,64]
{}
  output
}}
"""
ROW_BYTES = 4 * 64
SENT = '  stream_out %large {stream="y"}\n'
RESULTS = {  # the last lines, and the rows of activations and gradients
    "not sent": ('  %s = sum %large : f32[]\n  stream_out %s {stream="y"}', 33, 0),
    "sent": (SENT, 17, 0),
    "sent as another shape": (
        '  %v = view %large : f32[2048]\n  stream_out %v {stream="y"}', 17, 0),
    "a part is sent": (
        '  %v = view %large : f32[1,64]\n  stream_out %v {stream="y"}', 33, 0),
    "read by the backward pass": (
        SENT + '  %a = sum %large {dim=[0], keepdim=true, part="backward"} : f32[1,64]\n'
        '  %b = flip %a {dims=[0], part="backward"} : f32[1,64]\n'
        '  %s = sum %b {part="backward"} : f32[]\n  stream_out %s {stream="s"}', 17, 0),
    "in place of a value": (
        '  %r = relu %large : f32[32,64]\n  stream_out %r {stream="y"}', 33, 0),
    "a gradient takes its memory": (
        SENT + '  %g = relu %large {part="backward"} : f32[32,64]\n'
        '  %s = sum %g {part="backward"} : f32[]\n  stream_out %s {stream="s"}', 0, 32),
}


@pytest.mark.parametrize("case", RESULTS)
def test_results_are_streams_and_hide_no_peak(case):
    lines, activations, gradients = RESULTS[case]
    report = planned_report(STEP.format(lines))
    found = report["activations"] // ROW_BYTES, report["gradients"] // ROW_BYTES
    assert found == (activations, gradients)


def test_results_of_loops_are_streams():
    """What each round sends, and what the last one leaves; not what a loop carries into a round."""
    report = planned_report("""
graph main {
  %x = stream_in {stream="x"} : f32[1,64]
  %first = flip %x {dims=[1]} : f32[1,64]
  %last = loop %first {body=@body, count=3} : f32[1,64]
  stream_out %last {stream="last"}
  output
}

graph body {
  %carried = input {index=0} : f32[1,64]
  %column = stream_in {stream="column"} : f32[16,1]
  %left = relu %carried : f32[1,64]
  %step = matmul %column, %left : f32[16,64]
  %each = flip %step {dims=[0]} : f32[16,64]
  stream_out %each {stream="each"}
  output %left
}
""")
    # %step and the streams %left and %each, as %left takes the memory of %carried.
    assert (report["activations"], report["streams"]) == (16 * ROW_BYTES, 17 * ROW_BYTES)

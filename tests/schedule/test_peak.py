"""The schedule lowers the peak of memory."""

from poptorch import _C
from tests.helpers import in_parts

LAYERS = 8


def chain():
    """Layers whose weights are updated at the end of the program, from gradients made before."""
    lines = ['  %h0 = stream_in {stream="x"} : f32[4,64]']
    lines += [f'  %w{i} = state {{path="w{i}"}} : f32[64,64]' for i in range(LAYERS)]
    lines += [f"  %h{i + 1} = matmul %h{i}, %w{i} : f32[4,64]" for i in range(LAYERS)]
    lines.append(f'  %g{LAYERS} = flip %h{LAYERS} {{dims=[0], part="backward"}} : f32[4,64]')
    for i in reversed(range(LAYERS)):
        lines.append(f'  %t{i} = permute %h{i} {{dims=[1, 0], part="backward"}} : f32[64,4]')
        lines.append(f'  %d{i} = matmul %t{i}, %g{i + 1} {{part="backward"}} : f32[64,64]')
        lines.append(f'  %g{i} = matmul %g{i + 1}, %w{i} {{part="backward"}} : f32[4,64]')
    lines.append('  %hyper = stream_in {repeat=true, stream="hyper"} : f32[4]')
    lines.append('  %one = constant {data=[1.0], part="update"} : f32[]')
    lines.append('  %before = state {part="update", path="step"} : f32[]')
    lines.append('  %step = add %before, %one {part="update"} : f32[]')
    lines.append('  assign %step {part="update", path="step"}')
    for i in range(LAYERS):
        lines.append(f'  %n{i} = sgd_update %w{i}, %d{i}, _, %step, %hyper {{part="update"}} '
                     ': f32[64,64]')
    lines += [f'  assign %n{i} {{part="update", path="w{i}"}}' for i in range(LAYERS)]
    return in_parts("graph main {\n" + "\n".join(lines) + "\n  output\n}\n")


def arena(*steps):
    module = _C.parse(chain())
    module.verify()
    for step in steps:
        step(module)
    _C.check_plan(module)
    return _C.memory_report(module)["arena"]


def test_gradients_do_not_wait_for_the_end():
    scheduled = arena(_C.place, _C.schedule, _C.plan)
    in_program_order = arena(_C.place, _C.plan)
    weight = 64 * 64 * 4
    # The weights, one or two gradients, and the small values of the layers.
    assert scheduled < (LAYERS + 3) * weight
    assert in_program_order > 2 * LAYERS * weight

"""The kinds of loops and branches: what each records for its forward and its backward pass."""

import torch

from poptorch._capture.library import ops
from poptorch._capture.loops import Joint, Loops


def for_loop(capture, name: str, count: int, inputs: list[torch.Tensor], body) -> list:
    """Records ``count`` rounds of a body, which takes tensors and returns as many like them."""
    return _Counted(capture, name, count, inputs, body).results


class _Counted:
    """A loop whose rounds are counted, and its gradient.

    The gradient of a round reads the values that the round began with: the forward loop writes
    those it needs to stacks, of which the backward loop takes one row after the other.
    """

    def __init__(self, capture, name: str, count: int, inputs: list[torch.Tensor], body):
        self._name, self._count, self._inputs = name, count, inputs
        self._loops = Loops(capture)
        is_trained = capture.is_training and torch.is_grad_enabled()
        self._joint = self._loops.joint(name, inputs, body, is_trained)
        self._stacked = self._find_stacked()
        captured = self._loops.outside(self._joint)
        with torch.no_grad():
            found = self._forward(captured)
        size = len(inputs)
        self._stacks = found[1 + size:]
        self._nodes = list(captured)
        self.results = self._loops.results(found[1:1 + size], [self._joint], inputs, [captured],
                                           self._gradients)

    def _find_stacked(self) -> list[int]:
        """The arguments that the gradient reads."""
        joint = self._joint
        needed = joint.needed_for(joint.gradients)
        return [i for i, node in enumerate(joint.inputs) if node in needed]

    def _forward(self, captured: dict) -> list[torch.Tensor]:
        joint, size = self._joint, len(self._inputs)
        stacks = [torch.zeros(self._count, *self._inputs[i].shape, dtype=self._inputs[i].dtype)
                  for i in self._stacked]

        def body(number, *values):
            arguments, rows = values[:size], values[size:]
            rows = [ops.dynamic_update(stack, arguments[i].unsqueeze(0), 0, number, 1, 1)
                    for stack, i in zip(rows, self._stacked)]
            found = self._loops.pasted(joint, dict(zip(joint.inputs, arguments)), joint.outputs,
                                       captured)
            return [number + 1, *found, *rows]

        carried = [torch.zeros(1, dtype=torch.int32), *map(_begun, self._inputs), *stacks]
        return self._loops.add(self._name, carried, self._count, 0, body)

    def _gradients(self, given: tuple, tensors: tuple) -> list[torch.Tensor | None]:
        joint, size = self._joint, len(self._inputs)
        captured = dict(zip(self._nodes, tensors[size:]))
        places = [i for i, node in enumerate(joint.given) if node is not None]
        sums = [x.new_zeros(x.shape) for x in joint.outer]

        def body(number, *values):
            after, so_far = values[:len(places)], values[len(places):]
            known = {joint.given[i]: x for i, x in zip(places, after)}
            for stack, i in zip(self._stacks, self._stacked):
                row = ops.dynamic_slice(stack, 0, number, 1, 1)
                known[joint.inputs[i]] = row.squeeze(0)
            found = self._loops.pasted(joint, known, joint.gradients, captured, backward=True)
            of_inputs, of_outer = found[:size], found[size:]
            before = [_or_zeros(of_inputs[i], x) for i, x in zip(places, after)]
            return [number - 1, *before, *map(_added, so_far, of_outer)]

        start = [_or_zeros(given[i], self._inputs[i]) for i in places]
        carried = [torch.full((1,), self._count - 1, dtype=torch.int32), *start, *sums]
        found = self._loops.add(f"{self._name}_backward", carried, self._count, 0, body)[1:]
        of_inputs = dict(zip(places, found))
        return [*(of_inputs.get(i) for i in range(size)), *found[len(places):]]


def cond(capture, name: str, condition: torch.Tensor, branches: list) -> list[torch.Tensor]:
    """Records two branches, ``(function, tensors)`` each; the first runs where the condition, a
    bool of one element, is true."""
    return _Branches(capture, name, condition, branches).results


class _Branches:
    """Two branches, and their gradients: each is a loop that runs once or not at all."""

    def __init__(self, capture, name: str, condition: torch.Tensor, branches: list):
        self._name = name
        self._loops = Loops(capture)
        is_trained = capture.is_training and torch.is_grad_enabled()
        self._inputs = [inputs for _, inputs in branches]
        self._joints = [self._loops.joint(name, inputs, body, is_trained)
                        for body, inputs in branches]
        _check_equal(capture, name, self._joints)
        captured = [self._loops.outside(joint) for joint in self._joints]
        self._nodes = [list(part) for part in captured]
        with torch.no_grad():
            self._flags = [condition.reshape(1), condition.reshape(1).logical_not()]
            found = [torch.zeros(x.shape, dtype=x.dtype)
                     for x in (node.meta["val"] for node in self._joints[0].outputs)]
            for number, joint in enumerate(self._joints):
                found = self._forward(number, joint, found, captured[number])
        self.results = self._loops.results(found, self._joints, sum(self._inputs, []), captured,
                                           self._gradients)

    def _forward(self, number: int, joint: Joint, before: list, captured: dict) -> list:
        known = dict(zip(joint.inputs, self._inputs[number]))

        def body(flag, *values):
            found = self._loops.pasted(joint, known, joint.outputs, captured)
            return [torch.zeros_like(flag), *found]

        return self._loops.add(self._name, [self._flags[number], *before], None, None, body)[1:]

    def _gradients(self, given: tuple, tensors: tuple) -> list[torch.Tensor | None]:
        first, second = map(len, self._inputs)
        inputs = [tensors[:first], tensors[first:first + second]]
        rest = list(tensors[first + second:])
        captured = [dict(zip(nodes, part)) for nodes, part in zip(
            self._nodes, (rest[:len(self._nodes[0])], rest[len(self._nodes[0]):]))]
        found = [self._backward(number, joint, given, inputs[number], captured[number])
                 for number, joint in enumerate(self._joints)]
        sizes = [first, second]
        return [x for part, size in zip(found, sizes) for x in part[:size]] + \
            [x for part, size in zip(found, sizes) for x in part[size:]]

    def _backward(self, number: int, joint: Joint, given: tuple, inputs: tuple,
                  captured: dict) -> list[torch.Tensor | None]:
        like = [*inputs, *joint.outer]
        places = [i for i, node in enumerate(joint.gradients) if node is not None]
        if not places:
            return [None] * len(like)
        known = dict(zip(joint.inputs, inputs))
        for node, x, output in zip(joint.given, given, joint.outputs):
            if node is not None:
                known[node] = _or_zeros(x, output.meta["val"])

        def body(flag, *values):
            found = self._loops.pasted(joint, known, [joint.gradients[i] for i in places],
                                       captured, backward=True)
            return [torch.zeros_like(flag), *found]

        zeros = [like[i].new_zeros(like[i].shape) for i in places]
        found = self._loops.add(f"{self._name}_backward", [self._flags[number], *zeros], None,
                                None, body)[1:]
        of_places = dict(zip(places, found))
        return [of_places.get(i) for i in range(len(like))]


def _check_equal(capture, name: str, joints: list[Joint]) -> None:
    kinds = [[(node.meta["val"].dtype, list(node.meta["val"].shape)) for node in joint.outputs]
             for joint in joints]
    if kinds[0] != kinds[1]:
        words = [", ".join(f"{dtype}{sizes}" for dtype, sizes in kind) for kind in kinds]
        raise capture.recorder.error(
            f"[{name}] the branches return different tensors: {words[0]} vs {words[1]}. Return as "
            f"many of the same types and sizes from both.")


def while_loop(capture, name: str, condition, body, inputs: list[torch.Tensor],
               others: list[torch.Tensor]) -> list[torch.Tensor]:
    """Records rounds of a body as long as a condition of what they carry holds; others stay."""
    recorder = capture.recorder
    if torch.is_grad_enabled() and any(x.requires_grad for x in (*inputs, *others)):
        raise recorder.error(
            f"[{name}] there are no gradients through a loop whose rounds are not known before. "
            f"Call it under torch.no_grad(), or use poptorch.for_loop with a fixed count.")

    def following(flag, number, *values):
        found = [x.contiguous() for x in body(*values, *others)]
        return [_flag(condition(*found, *others)), number + 1, *found]

    with torch.no_grad():
        begun = list(map(_begun, inputs))
        carried = [_flag(condition(*begun, *others)), torch.zeros(1, dtype=torch.int32), *begun]
        return Loops(capture).add(name, carried, None, 1, following)[2:]


def _flag(condition) -> torch.Tensor:
    if not isinstance(condition, torch.Tensor):
        condition = torch.tensor(condition)
    return condition.reshape(1).to(torch.bool)


def _begun(x: torch.Tensor) -> torch.Tensor:
    """A contiguous copy, detached: later changes of either are not seen by the other."""
    return x.detach().clone(memory_format=torch.contiguous_format)


def _or_zeros(x: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    return torch.zeros(like.shape, dtype=like.dtype) if x is None else x.contiguous()


def _added(so_far: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
    return so_far if x is None else so_far + x

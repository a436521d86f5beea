"""The kinds of loops and branches: what each records for its forward and its backward pass."""

from dataclasses import dataclass

import torch

from poptorch._capture.library.layers import ops
from poptorch._capture.loops.loops import Joint, Loops, zeros


def for_loop(capture, name: str, count: int, inputs: list[torch.Tensor], body,
             rows: list[torch.Tensor] = (), as_torch: bool = False,
             stacks: bool = False) -> list[torch.Tensor]:
    """Records ``count`` rounds of a body.

    It takes what is carried, beginning with ``inputs``, and a row of each tensor of ``rows``. It
    returns what is carried on, and rows; the results are what was carried at the end, and these
    rows, stacked.

    With ``as_torch`` the loop is PyTorch's: carried tensors keep the strides of the inputs, and all
    that the rounds read has a gradient, zeros where no result depends on it. Otherwise carried
    tensors are contiguous. With ``stacks`` the rows returned have the strides of torch.stack;
    otherwise they are contiguous.
    """
    inside = capture.bodies.inside
    loop = _Counted(capture, name, count, [*map(inside, inputs)], [*map(inside, rows)], body,
                    as_torch)
    return loop.results(stacks)


class _Counted:
    """A loop whose rounds are counted, and its gradient.

    The forward loop writes the values that the gradient needs to stacks. The backward loop takes
    one row after the other. In the last rounds fewer of the carried values may have a
    gradient than before: such rounds are backward loops of their own.
    """

    def __init__(self, capture, name: str, count: int, inputs: list[torch.Tensor],
                 rows: list[torch.Tensor], body, as_torch: bool):
        self._name, self._count, self._inputs, self._rows = name, count, inputs, rows
        self._size, self._as_torch = len(inputs), as_torch
        self._loops = Loops(capture, name)
        self._begun = _begun_as_it_lies if as_torch else _begun
        is_trained = torch.is_grad_enabled()
        like = inputs if as_torch else map(self._loops.contiguous, inputs)
        like = [*like, *map(self._loops.row, rows)]
        self._joint = self._loops.joint(like, body, is_trained, self._size if count > 1 else 0)
        self._from_host = self._joint.from_host()
        needed = self._joint.needed_for(self._joint.gradients, known=frozenset(self._from_host))
        self._kept = [i for i, node in enumerate(self._joint.inputs[:self._size])
                      if node in needed]

    def results(self, stacks: bool) -> list[torch.Tensor]:
        """Records the loop."""
        captured = self._loops.outside(self._joint)
        with torch.no_grad():
            found, self._stacks = self._forward(captured)
            if stacks:
                found[self._size:] = map(self._loops.stacked, found[self._size:],
                                         self._joint.strides[self._size:])
        self._nodes = list(captured)
        reached = [self._reached(tuple(x if i == number else None for i, x in enumerate(found)))
                   for number in range(len(found))]
        return self._loops.results(
            found, [self._joint], [*self._inputs, *self._rows], [*self._rows, *captured.values()],
            reached, self._gradients, self._as_torch, self._size)

    def _forward(self, captured: dict) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The results, and the stacks of what the gradient reads."""
        joint, size = self._joint, self._size
        kept, count = len(self._kept) + len(self._from_host), len(joint.outputs)
        made = [node.meta["val"] for node in (*self._from_host, *joint.outputs[size:])]
        stacks = [self._stack_of(x) for x in (*(self._inputs[i] for i in self._kept), *made)]

        def body(number, *values):
            arguments, so_far = values[:size], values[size:]
            known = dict(zip(joint.inputs, [*arguments, *self._rows_at(number, self._rows)]))
            found = self._loops.pasted(joint, known, [*joint.outputs, *self._from_host], captured)
            written = [*(arguments[i] for i in self._kept), *found[count:], *found[size:count]]
            return [number + 1, *found[:size],
                    *(_with_row(stack, number, x) for stack, x in zip(so_far, written))]

        carried = [torch.zeros(1, dtype=torch.int32), *map(self._begun, self._inputs), *stacks]
        found = self._loops.add(self._name, carried, self._count, 0, body)[1:]
        return [*found[:size], *found[size + kept:]], found[size:size + kept]

    def _stack_of(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(self._count, *x.shape, dtype=x.dtype)

    @staticmethod
    def _rows_at(number: torch.Tensor, stacks) -> list[torch.Tensor]:
        return [ops.dynamic_slice(x, 0, number, 1, 1).squeeze(0) for x in stacks]

    def _gradients(self, given: tuple, read: tuple) -> list[torch.Tensor | None]:
        joint, size = self._joint, self._size
        rows, captured = read[:len(self._rows)], dict(zip(self._nodes, read[len(self._rows):]))
        plan = self._backward_rounds(given)
        of_rows = [i for i, node in enumerate(joint.gradients[size:size + len(rows)])
                   if node is not None]
        of_stacks = {i: x.contiguous() for i, x in enumerate(given) if i in plan.rows}
        number = torch.full((1,), self._count - 1, dtype=torch.int32)
        of_carried = dict(enumerate(given[:size]))
        collected = [*(zeros(rows[i]) for i in of_rows), *map(zeros, joint.outer)]
        for present, count in plan.parts:
            there = joint.reached(present)
            carried = [i for i in range(size) if i in present or i in there]

            def body(number, *values):
                after, so_far = values[:len(carried)], values[len(carried):]
                known = {joint.given[i]: x for i, x in zip(carried, after) if i in present}
                known |= zip((joint.given[i] for i in of_stacks),
                             self._rows_at(number, of_stacks.values()))
                kept = self._rows_at(number, self._stacks)
                known |= zip((joint.inputs[i] for i in self._kept), kept)
                known |= zip(self._from_host, map(self._loops.as_it_lies, self._from_host,
                                                  kept[len(self._kept):]))
                known |= zip(joint.inputs[size:], self._rows_at(number, rows))
                found = self._loops.pasted(joint, known, joint.gradients, captured, present)
                return [number - 1, *(_or_zeros(found[i], x) for i, x in zip(carried, after)),
                        *(stack if found[size + i] is None
                          else _with_row(stack, number, found[size + i])
                          for stack, i in zip(so_far, of_rows)),
                        *map(_added, so_far[len(of_rows):], found[size + len(rows):])]

            begun = [number, *(_or_zeros(of_carried.get(i), self._inputs[i]) for i in carried),
                     *collected]
            number, *found = self._loops.add(f"{self._name}_backward", begun, count, 0, body)
            of_carried = {i: x for i, x in zip(carried, found) if i in there}
            collected = found[len(carried):]
        places = [*(size + i for i in of_rows), *range(size + len(rows), len(joint.gradients))]
        of_places, reached = of_carried | dict(zip(places, collected)), self._reached(given)
        return [None if i not in reached else of_places[i] if i in of_places else zeros(x)
                for i, x in enumerate([*self._inputs, *rows, *joint.outer])]

    def _backward_rounds(self, given: tuple) -> "_BackwardRounds":
        """What has a gradient in which rounds, where there are the ``given`` gradients of the
        results."""
        joint, size, seen = self._joint, self._size, []
        present = joint.present(given)
        rows = frozenset(i for i in present if i >= size)
        differentiable = {i for i, node in enumerate(joint.given[:size]) if node is not None}
        while len(seen) < self._count and present not in seen:
            seen.append(present)
            present = rows | differentiable.intersection(joint.reached(present))
        parts, last, left = [(part, 1) for part in seen], seen[-1], self._count - len(seen)
        if left:
            first = seen.index(present)
            period = len(seen) - first  # from there on the rounds repeat themselves
            union = frozenset().union(*seen[first:])
            parts = [*parts[:first], (union, period + left)]
            last = seen[first + (self._count - 1 - first) % period]
        final = frozenset(i for i in joint.reached(last) if i < size)
        return _BackwardRounds(parts, rows, final)

    def _reached(self, given: tuple) -> set[int]:
        """The arguments and the tensors from outside that have a gradient, where there are the
        ``given`` gradients of the results."""
        joint, size = self._joint, self._size
        if self._as_torch:
            return set(range(size + len(self._rows) + len(joint.outer)))
        if not joint.present(given):
            return set()
        plan = self._backward_rounds(given)
        there = set().union(*(joint.reached(present) for present, _ in plan.parts))
        return {i for i in there if i >= size} | plan.final


@dataclass(frozen=True)
class _BackwardRounds:
    """The rounds of a backward loop.

    ``parts`` has the numbers of the results that have a gradient, and for how many rounds, from the
    last round on; ``rows`` those of the results that are stacked rows; ``final`` those of the
    carried arguments of the first round.
    """

    parts: list[tuple[frozenset[int], int]]
    rows: frozenset[int]
    final: frozenset[int]


def cond(capture, name: str, condition: torch.Tensor, branches: list,
         as_torch: bool = False) -> list[torch.Tensor]:
    """Records two branches, ``(function, tensors)`` each; the first runs where the condition, a
    bool of one element, is true.

    With ``as_torch`` tensors have PyTorch's strides, and all that one of the branches reads has a
    gradient, zeros where no result depends on it. Otherwise all tensors are contiguous.
    """
    branches = [(body, [*map(capture.bodies.inside, inputs)]) for body, inputs in branches]
    return _Branches(capture, name, condition, branches, as_torch).results()


class _Branches:
    """Two branches, and their gradients: each is a loop that runs once or not at all."""

    def __init__(self, capture, name: str, condition: torch.Tensor, branches: list,
                 as_torch: bool):
        self._name, self._condition, self._recorder = name, condition, capture.recorder
        self._as_torch = as_torch
        self._loops = Loops(capture, name)
        is_trained = torch.is_grad_enabled()
        self._inputs = [inputs for _, inputs in branches]
        self._joints = [self._loops.joint(
            inputs if as_torch else [*map(self._loops.contiguous, inputs)], body, is_trained)
            for body, inputs in branches]
        # What functions of the host gave in each branch, if it ran.
        self._from_host: list[dict] = [{}, {}]
        _check_equal(capture, name, self._joints)

    def results(self) -> list[torch.Tensor]:
        """Records the branches."""
        captured = [self._loops.outside(joint) for joint in self._joints]
        self._nodes = [list(part) for part in captured]
        with torch.no_grad():
            flag = self._condition.detach().reshape(1).clone()
            self._flags = [flag, flag.logical_not()]
            found = [zeros(node.meta["val"]) for node in self._joints[0].outputs]
            if self._as_torch:
                found = list(map(self._recorder.laid_out, found, self._joints[0].strides))
            for number, joint in enumerate(self._joints):
                found = self._forward(number, joint, found, captured[number])
        inputs = [x for part in self._inputs for x in part]
        read = [*inputs, *(x for part in captured for x in part.values())]
        return self._loops.results(found, self._joints, inputs, read,
                                   list(map(self._reached, range(len(found)))), self._gradients,
                                   self._as_torch)

    def _reached(self, result: int) -> set[int]:
        """The inputs of both branches, and behind them the tensors from outside, on which a result
        depends."""
        def is_there(joint: Joint) -> list[bool]:
            if self._as_torch:
                return [*joint.is_read, *(True for _ in joint.outer)]
            reached = () if joint.given[result] is None else joint.reached(frozenset([result]))
            return [i in reached for i in range(len(joint.gradients))]

        there = self._in_order(list(map(is_there, self._joints)))
        return {i for i, is_there in enumerate(there) if is_there}

    def _in_order(self, found: list[list]) -> list:
        """What the two branches have for their inputs and what they take from outside: first for
        the inputs of both."""
        sizes = list(map(len, self._inputs))
        return [x for part, size in zip(found, sizes) for x in part[:size]] + \
            [x for part, size in zip(found, sizes) for x in part[size:]]

    def _forward(self, number: int, joint: Joint, before: list, captured: dict) -> list:
        known = dict(zip(joint.inputs, self._inputs[number]))
        from_host = joint.from_host()

        def body(flag, *values):
            found = self._loops.pasted(joint, known, [*joint.outputs, *from_host], captured)
            kept = (x.contiguous() for x in found[len(before):])
            return [torch.zeros_like(flag), *found[:len(before)], *kept]

        begun = [self._flags[number], *before, *(zeros(node.meta["val"]) for node in from_host)]
        found = self._loops.add(self._name, begun, None, None, body)[1:]
        self._from_host[number] = dict(zip(from_host, found[len(before):]))
        return found[:len(before)]

    def _gradients(self, given: tuple, read: tuple) -> list[torch.Tensor | None]:
        first, second = map(len, self._inputs)
        inputs = [read[:first], read[first:first + second]]
        rest = list(read[first + second:])
        captured = [dict(zip(nodes, part)) for nodes, part in zip(
            self._nodes, (rest[:len(self._nodes[0])], rest[len(self._nodes[0]):]))]
        found = [self._backward(number, joint, given, inputs[number], captured[number])
                 for number, joint in enumerate(self._joints)]
        return self._in_order(found)

    def _backward(self, number: int, joint: Joint, given: tuple, inputs: tuple,
                  captured: dict) -> list[torch.Tensor | None]:
        like = [*inputs, *joint.outer]
        present = joint.present(given)
        places = joint.reached(present)
        unused = zeros if self._as_torch else lambda x: None
        if not places:
            return list(map(unused, like))
        known = dict(zip(joint.inputs, inputs))
        known |= {joint.given[i]: given[i].contiguous() for i in present}

        def body(flag, *values):
            known_inside = known | {node: self._loops.as_it_lies(node, x)
                                    for node, x in self._from_host[number].items()}
            found = self._loops.pasted(joint, known_inside, [joint.gradients[i] for i in places],
                                       captured, present)
            return [torch.zeros_like(flag), *found]

        begun = [zeros(like[i]) for i in places]
        found = self._loops.add(f"{self._name}_backward", [self._flags[number], *begun], None,
                                None, body)[1:]
        of_places = dict(zip(places, found))
        return [of_places[i] if i in of_places else unused(x) for i, x in enumerate(like)]


def _check_equal(capture, name: str, joints: list[Joint]) -> None:
    kinds = [_kinds(node.meta["val"] for node in joint.outputs) for joint in joints]
    if kinds[0] != kinds[1]:
        words = list(map(_text, kinds))
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
        found = body(*values, *others)
        check_carried(capture, name, values, found)
        found = [x if x.stride() == value.stride() else x.contiguous()
                 for x, value in zip(found, values)]
        return [_flag(condition(*found, *others)), number + 1, *found]

    with torch.no_grad():
        begun = list(map(_begun_as_it_lies, inputs))
        carried = [_flag(condition(*begun, *others)), torch.zeros(1, dtype=torch.int32), *begun]
        return Loops(capture, name).add(name, carried, None, 1, following)[2:]


def check_carried(capture, name: str, taken, returned) -> None:
    """Checks that a round returns tensors of the types and sizes that it takes."""
    if _kinds(taken) != _kinds(returned):
        raise capture.recorder.error(
            f"[{name}] the body takes [{_text(_kinds(taken))}] from the round before and returns "
            f"[{_text(_kinds(returned))}] to the next. Return a tensor of the same type and sizes "
            f"for each that it takes.")


def _kinds(tensors) -> list:
    return [(x.dtype, list(x.shape)) for x in tensors]


def _text(kinds: list) -> str:
    return ", ".join(f"{dtype}{sizes}" for dtype, sizes in kinds)


def _flag(condition) -> torch.Tensor:
    if not isinstance(condition, torch.Tensor):
        condition = torch.tensor(condition)
    return condition.reshape(1).to(torch.bool)


def _begun(x: torch.Tensor) -> torch.Tensor:
    """A contiguous copy, detached: later changes of either are not seen by the other."""
    return x.detach().clone(memory_format=torch.contiguous_format)


def _begun_as_it_lies(x: torch.Tensor) -> torch.Tensor:
    """A copy in the layout of eager's, detached."""
    return x.detach().clone()


def _or_zeros(x: torch.Tensor | None, like: torch.Tensor) -> torch.Tensor:
    return zeros(like) if x is None else x.contiguous()


def _with_row(stack: torch.Tensor, number: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    return ops.dynamic_update(stack, row.unsqueeze(0), 0, number, 1, 1)


def _added(so_far: torch.Tensor, x: torch.Tensor | None) -> torch.Tensor:
    return so_far if x is None else so_far + x

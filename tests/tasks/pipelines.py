"""Programs that are cut into tasks, as text, and what passes between their tasks."""

import re
from dataclasses import dataclass, field

SCHEDULES = ("grouped", "interleaved", "sequential", "fill_drain")
_TYPE = "f32[8]"


@dataclass
class Task:
    name: str
    part: str
    ipu: int
    stage: int
    operands: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)


@dataclass
class Pipeline:
    """A pipeline of ``stages`` stages, each on the IPU with its number unless ``ipus`` says
    another.

    ``paths`` lists ``(source, target, holders)`` for each value that passes between two tasks:
    their names, and the results of the ops that hold it.
    """

    stages: int
    count: int
    schedule: str
    training: bool = True
    ipus: list[int] | None = None
    skips: list[tuple[int, int]] = field(default_factory=list)   # a value of stage a for stage b
    off_chip: list[int] = field(default_factory=list)            # stages with a stash off the chip
    inputs_kept: list[int] = field(default_factory=list)         # stages that keep what they read
    tasks: list[Task] = field(default_factory=list)
    paths: list[tuple[str, str, list[str]]] = field(default_factory=list)

    def __post_init__(self):
        self._lines = {}  # what stands before a task, by its name
        self._make_tasks()
        last = self.stages - 1
        for stage in range(last):
            self._forward(f"x{stage}", stage, stage + 1)
        for source, target in self.skips:
            self._forward(f"skip{source}to{target}", source, target)
        if not self.training:
            return
        for stage in range(last, 0, -1):
            self._pass(f"g{stage}", self._backward(stage), self._backward(stage - 1),
                       [("ipu_copy", stage - 1)])
        for stage in range(self.stages):
            if self._has_stash(stage):
                self._keep(stage)

    def _ipu(self, stage):
        return stage if self.ipus is None else self.ipus[stage]

    def _make_tasks(self):
        split = self.schedule == "fill_drain"
        for stage in range(self.stages):
            is_both = self.training and stage == self.stages - 1 and not split
            part = "both" if is_both else "forward"
            self.tasks.append(Task(f"micro.s{stage}", part, self._ipu(stage), stage))
        backward = range(self.stages - (0 if split else 1)) if self.training else ()
        for stage in reversed(backward):
            self.tasks.append(Task(f"micro.s{stage}.back", "backward", self._ipu(stage), stage))

    def task(self, name):
        return next(task for task in self.tasks if task.name == name)

    def _has_stash(self, stage):
        return any(task.name == f"micro.s{stage}.back" for task in self.tasks)

    def _backward(self, stage):
        return f"micro.s{stage}" + (".back" if self._has_stash(stage) else "")

    def _forward(self, value, source, target):
        """A value goes from stage to stage; the last one keeps it where ``inputs_kept`` says so."""
        hops = [("ipu_copy", stage) for stage in range(source + 1, target + 1)]
        name, target_name = f"micro.s{source}", f"micro.s{target}"
        holders = self._pass(value, name, target_name, hops)
        if target in self.inputs_kept and self.training and self._has_stash(target):
            self._hold(holders[-1], "stash", target, f"{target_name}.back", holders)
            self.paths.append((name, f"{target_name}.back", holders))

    def _keep(self, stage):
        steps = [("stash", stage)]
        if stage in self.off_chip:
            steps = [("remote_store", stage), ("stash", stage), ("remote_load", stage)]
        self._pass(f"a{stage}", f"micro.s{stage}", f"micro.s{stage}.back", steps)

    def _pass(self, value, source, target, steps):
        self.task(source).results.append(value)
        holders, operand = [], value
        for number, (op, stage) in enumerate(steps):
            is_last = number == len(steps) - 1
            operand = self._line(operand, op, stage, target, is_last)
            if op in ("ipu_copy", "stash"):
                holders.append(operand)
        self.paths.append((source, target, list(holders)))
        return holders

    def _hold(self, operand, op, stage, target, holders):
        holders.append(self._line(operand, op, stage, target, True))

    def _line(self, operand, op, stage, target, is_last):
        result = f"{operand}.{op}{stage}"
        source_ipu = f"from={self._ipu(stage)}, "
        if op == "ipu_copy":
            before = re.search(r"ipu_copy(\d+)$", operand)
            made = next((task for task in self.tasks if operand in task.results), None)
            source_ipu = f"from={made.ipu if made else self._ipu(int(before[1]))}, "
        attrs = f"bytes=32, {source_ipu if op == 'ipu_copy' else ''}ipu={self._ipu(stage)}, " \
                f"stage={stage}"
        self._lines.setdefault(target, []).append(
            f"  %{result} = {op} %{operand} {{{attrs}}} : {_TYPE}")
        if is_last:
            self.task(target).operands.append(result)
        return result

    def text(self):
        """The program before its schedule is written."""
        graphs = [f'graph main {{\n  loop {{body=@micro, count={self.count}, '
                  f'pipeline="{self.schedule}"}}\n  output\n}}']
        wiring = []
        for task in self.tasks:
            wiring += self._lines.get(task.name, [])
            wiring.append(_task_line(task))
            graphs.append(_body(task))
        graphs.insert(1, "graph micro {\n" + "\n".join(wiring) + "\n  output\n}")
        return "\n\n".join(graphs) + "\n"


def _task_line(task):
    results = ", ".join(f"%{name}" for name in task.results)
    operands = " ".join(["", ", ".join(f"%{name}" for name in task.operands)]).rstrip()
    types = ", ".join([_TYPE] * len(task.results))
    attrs = f'body=@{task.name}, ipu={task.ipu}, part="{task.part}", stage={task.stage}'
    return (f"  {results + ' = ' if results else ''}task{operands} {{{attrs}}}"
            f"{' : ' + types if types else ''}")


def _body(task):
    lines = [f"  %i{number} = input {{index={number}}} : {_TYPE}"
             for number in range(len(task.operands))]
    lines.append(f'  %s = stream_in {{stream="s.{task.name}"}} : {_TYPE}')
    lines.append(f"  %y = relu %s : {_TYPE}")
    if not task.results:
        lines.append(f'  stream_out %y {{stream="y.{task.name}"}}')
    outputs = ", ".join(["%y"] * len(task.results))
    return f"graph {task.name} {{\n" + "\n".join(lines) + f"\n  output {outputs}".rstrip() + "\n}"


def drawn(random, most_stages=6):
    """A pipeline drawn by a ``random.Random``."""
    stages = random.randint(2, most_stages)
    pairs = [(a, b) for a in range(stages) for b in range(a + 2, stages)]
    some = [stage for stage in range(stages) if random.random() < 0.3]
    count = random.choice([stages, stages, random.randint(1, stages)])  # of IPUs
    return Pipeline(stages, random.randint(1, 12), random.choice(SCHEDULES),
                    training=random.random() < 0.8,
                    ipus=[stage % count for stage in range(stages)] if count > 1 else None,
                    skips=random.sample(pairs, min(len(pairs), random.randint(0, 2))),
                    off_chip=some,
                    inputs_kept=[stage for stage in range(1, stages) if random.random() < 0.3])

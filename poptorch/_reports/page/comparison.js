// Two reports side by side, and the operations that changed most.

const CHANGED_OPS = 30;

function drawComparison(before, after) {
  const figures = [
    ["Fits", before.fits ? "yes" : "no", after.fits ? "yes" : "no",
      before.fits === after.fits ? "same" : "differs"],
    comparedRow("Cycles of a step", before.cycles, after.cycles, formatCount),
    comparedRow("Time of a step", before.seconds, after.seconds, formatSeconds),
    comparedRow("Samples per second", before.throughput, after.throughput, formatCount),
    comparedRow("Fullest tile", fullestIpu(before).peak_bytes, fullestIpu(after).peak_bytes,
      formatBytes),
    comparedRow("IPUs of a replica", before.ipus.length, after.ipus.length, String),
    ["Target", before.target, after.target, before.target === after.target ? "same" : "differs"],
  ];
  const categories = [...new Set([...Object.keys(before.memory), ...Object.keys(after.memory)])];
  const memory = categories.map((name) => comparedRow(words(name), before.memory[name] ?? 0,
    after.memory[name] ?? 0, formatBytes));
  const heads = ["Before", "After", "Change"];
  bodyOf("comparison").replaceChildren(
    element("p", {}, "Before: ", element("b", {}, before.title), ". After: ",
      element("b", {}, after.title), "."),
    simpleTable("Figures of both reports", ["Figure", ...heads], figures, [1, 2, 3]),
    element("h3", {}, "Memory of a replica by category"),
    simpleTable("Memory by category", ["Category", ...heads], memory, [1, 2, 3]),
    element("h3", {}, "Options that differ"), differingOptions(before, after),
    element("h3", {}, "Operations that changed most"), changedOperations(before, after));
}

function comparedRow(name, before, after, format) {
  return [name, format(before), format(after), formatChange(before, after)];
}

function differingOptions(before, after) {
  const names = [...new Set([...Object.keys(before.options), ...Object.keys(after.options)])];
  const text = (report, name) =>
    (name in report.options ? optionText(report.options[name]) : "default");
  const rows = names.map((name) => [name, text(before, name), text(after, name)])
    .filter(([, one, two]) => one !== two);
  if (!rows.length) return element("p", {}, "Both reports have the same options.");
  return simpleTable("Options that differ", ["Option", "Before", "After"], rows);
}

/** Operations by what names them in both programs: name, part, module, and which one of these. */
function operationsByName(report) {
  const found = new Map();
  const counts = new Map();
  for (const op of report.ops) {
    const name = JSON.stringify([op.op, op.part, op.module, op.location]);
    const number = counts.get(name) ?? 0;
    counts.set(name, number + 1);
    found.set(`${name} ${number}`, op);
  }
  return found;
}

function changedOperations(before, after) {
  const [one, two] = [operationsByName(before), operationsByName(after)];
  const changes = [...new Set([...one.keys(), ...two.keys()])].map((name) => {
    const [old, now] = [one.get(name), two.get(name)];
    const cycles = [old ? cyclesOf(old) : 0, now ? cyclesOf(now) : 0];
    return { op: now ?? old, old, now, cycles, change: cycles[1] - cycles[0] };
  }).filter(({ change }) => change !== 0);
  changes.sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
  if (!changes.length) return element("p", {}, "All operations cost the same in both reports.");
  const rows = changes.slice(0, CHANGED_OPS).map(({ op, old, now, cycles, change }) => [
    element("code", {}, op.op), op.module, op.location,
    old ? formatCount(cycles[0]) : "absent", now ? formatCount(cycles[1]) : "absent",
    `${change > 0 ? "+" : "\u2212"}${formatCount(Math.abs(change))}`,
    old && now ? formatChange(...cycles) : ""]);
  const table = simpleTable("Operations that changed most", ["Operation", "Module", "Line",
    "Cycles before", "Cycles after", "Change", "Share"], rows, [3, 4, 5, 6]);
  return element("div", {}, table, moreText(changes.length - CHANGED_OPS));
}

// Memory by category and step: stacked areas, and what is live at the step that is chosen.

// From the bottom of the stack to the top: always live first.
const CATEGORIES = ["code", "exchange", "vertex_state", "constants", "parameters", "optimizer",
  "accumulators", "stashes", "activations", "temporary"];
const PARTS = ["forward", "backward", "update"];
const SHOWN_VALUES = 200;

function categoryColor(name) {
  return `--${name.replaceAll("_", "-")}`;
}

/**
 * Gives each step its operation, `bytes` by category and their `total`. Steps leave out the bytes
 * that never change.
 */
function addBytes(ipu, ops) {
  for (const step of ipu.steps) {
    step.op = ops.get(step.id);
    const always = { ...ipu.categories, temporary: step.temporary };
    step.bytes = CATEGORIES.map((category) => step.live[category] ?? always[category] ?? 0);
    step.total = step.bytes.reduce((sum, bytes) => sum + bytes, 0);
  }
}

function bytesOf(step, category) {
  return step.bytes[CATEGORIES.indexOf(category)];
}

function drawMemory(report, state) {
  const body = bodyOf("memory");
  const ops = new Map(report.ops.map((op) => [op.id, op]));
  report.ipus.forEach((ipu) => addBytes(ipu, ops));
  const used = CATEGORIES.filter((_, number) => report.ipus.some((ipu) =>
    ipu.steps.some((step) => step.bytes[number] > 0)));
  const tools = element("div", { className: "tools" });
  const frame = element("div", {});
  const detail = element("div", { className: "detail", "aria-live": "polite" });
  body.replaceChildren(tools, frame, detail,
    element("p", { className: "note" }, "Steps are the operations of the IPU in the order in which "
      + "it runs them, and bytes are sums over its tiles. Click a step, or use the arrow keys, to "
      + "see what is live. Values below 0.1 % of the peak are not listed."));
  state.onIpu(() => {
    frame.replaceChildren();
    if (report.ipus[state.ipu].steps.length === 0) {
      tools.replaceChildren();
      detail.replaceChildren();
      frame.append(element("p", {}, "This IPU runs no operations."));
      return;
    }
    const chart = memoryChart(frame, report, state, used);
    const entries = used.map((category) => [words(category), categoryColor(category)]);
    const toPeak = element("button", { type: "button", onclick: () =>
      state.chooseStep(report.ipus[state.ipu].peak_step) }, "Go to the peak");
    fill(tools, ipuSelect(report, state), chart.zoomButtons(), toPeak, legend(entries));
  });
  state.onStep(() => {
    const ipu = report.ipus[state.ipu];
    if (!ipu.steps.length) return;
    fill(detail, stepDetail(report, ipu, state.step, used));
    charts.forEach((chart) => frame.contains(chart.canvas) && chart.repaint());
  });
}

function ipuSelect(report, state) {
  if (report.ipus.length === 1) return null;
  const label = select("IPU", report.ipus.map((ipu, number) => [number, `IPU ${ipu.ipu}`]),
    (value) => state.chooseIpu(Number(value)));
  label.querySelector("select").value = state.ipu;
  return label;
}

function memoryChart(frame, report, state, used) {
  const { steps } = report.ipus[state.ipu];
  const limit = report.tiles * report.tile_bytes;
  const view = new View(steps.length, Math.min(8, steps.length));
  const stepAt = (x) => Math.max(0, Math.min(steps.length - 1, Math.floor(chart.valueAt(x))));
  const high = steps.reduce((most, { total }) => Math.max(most, total), 1) * 1.12;
  const top = limit < high * 1.6 ? Math.max(high, limit * 1.06) : high;
  const chart = new Chart(frame, {
    height: 300,
    label: "Memory of the chosen IPU by category at each step",
    view,
    draw: () => {
      chart.byteAxis(top);
      drawStack(chart, steps, used, top);
      if (limit <= top) chart.limitLine(limit, top, `all tiles ${formatBytes(limit)}`);
      drawMarks(chart, state, report.ipus[state.ipu].peak_step);
    },
    hover: (x) => {
      const step = steps[stepAt(x)];
      return [element("b", {}, `Step ${stepAt(x)}: ${step.op.op}`), step.op.module,
        step.op.location,
        `${formatBytes(step.total)} in all, fullest tile ${formatBytes(step.tile_bytes)}`,
        ...used.filter((category) => bytesOf(step, category)).reverse().map((category) =>
          element("span", {}, swatch(categoryColor(category)), words(category), " ",
            formatBytes(bytesOf(step, category))))];
    },
    click: (x) => state.chooseStep(stepAt(x)),
    key: (name) => moveStep(name, state, view, steps.length),
  });
  return chart;
}

function moveStep(name, state, view, count) {
  const moves = { ArrowLeft: state.step - 1, ArrowRight: state.step + 1, PageUp: state.step - 100,
    PageDown: state.step + 100, Home: 0, End: count - 1 };
  if (!(name in moves)) return false;
  const step = Math.max(0, Math.min(count - 1, moves[name]));
  if (step < view.low || step + 1 > view.high) view.pan(step - (view.low + view.high) / 2);
  state.chooseStep(step);
  return true;
}

/** One column for each pixel: the step there that holds most, so that no peak is lost. */
function drawStack(chart, steps, used, high) {
  const { left, top, width, height } = chart.area;
  const bottom = top + height;
  const wide = Math.max(1, width / (chart.view.high - chart.view.low));
  const columns = Math.ceil(width / wide - 0.001) + (wide > 1 ? 1 : 0);
  for (let column = 0; column < columns; column += 1) {
    const low = wide > 1 ? Math.floor(chart.view.low) + column
      : Math.floor(chart.valueAt(left + column));
    let best = low;
    const end = wide > 1 ? low + 1 : Math.floor(chart.valueAt(left + column + 1));
    for (let step = low; step < Math.min(end, steps.length); step += 1) {
      if (steps[step].total > steps[best].total) best = step;
    }
    if (best >= steps.length) break;
    const x = Math.max(left, wide > 1 ? Math.round(chart.positionOf(low)) : left + column);
    const next = Math.min(left + width, wide > 1 ? Math.round(chart.positionOf(low + 1)) : x + 1);
    let y = bottom;
    for (const category of used) {
      const size = (bytesOf(steps[best], category) / high) * height;
      y -= size;
      chart.rectangle(categoryColor(category), x, y, next - x, size);
      if (size > 5) chart.rectangle("--surface", x, y, next - x, 1);
    }
    const { part } = steps[best].op;
    if (PARTS.includes(part)) chart.rectangle(`--${part}`, x, bottom + 2, next - x, 4);
  }
}

function drawMarks(chart, state, peak) {
  const { left, top, width, height } = chart.area;
  const inside = (x) => x >= left && x <= left + width;
  const x = chart.positionOf(peak + 0.5);
  if (inside(x)) chart.text("peak \u25be", x, top - 7, { align: x > left + width - 40 ? "right"
    : "center", color: "--ink" });
  const chosen = chart.positionOf(state.step + 0.5);
  if (inside(chosen)) chart.rectangle("--ink", Math.round(chosen), top, 2, height);
  if (chart.hovered && inside(chart.hovered[0])) {
    chart.rectangle("--muted", Math.round(chart.hovered[0]), top, 1, height);
  }
  const from = Math.ceil(chart.view.low);
  const label = (step) => `step ${formatExact(step)}`;
  chart.text(label(from), left, top + height + 15);
  chart.text(label(Math.floor(chart.view.high) - 1), left + width, top + height + 15,
    { align: "right" });
}

function stepDetail(report, ipu, number, used) {
  const step = ipu.steps[number];
  const title = element("h3", {}, `Step ${formatExact(number)} of IPU ${ipu.ipu}: `,
    element("code", {}, step.op.op));
  const facts = element("p", {}, [step.op.part, step.op.module, step.op.location]
    .filter(Boolean).join(" \u00b7 "));
  const rows = used.map((category) => [bytesOf(step, category), category])
    .filter(([bytes]) => bytes > 0).reverse().map(([bytes, category]) => [
      element("span", {}, swatch(categoryColor(category)), words(category)), formatBytes(bytes),
      formatPercent(bytes / step.total)]);
  rows.push([element("b", {}, "all"), element("b", {}, formatBytes(step.total)), ""]);
  rows.push(["fullest tile", formatBytes(step.tile_bytes),
    formatPercent(step.tile_bytes / report.tile_bytes)]);
  const table = simpleTable("Memory of the step", ["Category", "Bytes", "Share"], rows, [1, 2]);
  return [title, facts, element("div", { className: "halves" }, table, liveValues(ipu, number))];
}

/** The values that are live at a step, largest first. */
function liveValues(ipu, number) {
  const values = ipu.values.filter(({ first, last }) => first <= number && number <= last)
    .sort((a, b) => b.bytes - a.bytes);
  const rows = values.slice(0, SHOWN_VALUES).map((value) => [
    element("span", {}, swatch(categoryColor(value.category)), value.name),
    formatBytes(value.bytes), value.module, value.location]);
  const more = values.length - rows.length;
  return element("div", {},
    simpleTable("Live values", ["Live value", "Bytes", "Module", "Line"], rows, [1]),
    moreText(more));
}

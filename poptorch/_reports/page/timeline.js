// What each IPU does when, in lanes: one for each track of an IPU.

const KINDS = ["forward", "backward", "update", "exchange", "host", "sync", "all_reduce"];
const TIMELINE_TOP = 22;

/** The color of each row: forward and backward tasks differ. Rows that show nothing have none. */
function addColors(lane, parts) {
  const colors = new Map();
  lane.colors = lane.kinds.map((kind, number) => {
    if (kind === "idle" || lane.ends[number] === lane.begins[number]) return null;
    const name = kind === "compute" ? parts.get(lane.tasks[number]) ?? "forward" : kind;
    if (!colors.has(name)) colors.set(name, `--${name.replaceAll("_", "-")}`);
    return colors.get(name);
  });
  return colors.keys();
}

function drawTimeline(report) {
  const body = bodyOf("timeline");
  const { timeline } = report;
  const { lanes } = timeline;
  if (!lanes.length || !timeline.span) {
    body.replaceChildren(element("p", {}, "The report has no timeline."));
    return;
  }
  const parts = new Map();
  report.ops.forEach((op) => op.task && !parts.has(op.task) && parts.set(op.task, op.part));
  const used = new Set(lanes.flatMap((lane) => [...addColors(lane, parts)]));
  const size = Math.max(6, Math.min(26, Math.floor(1000 / lanes.length)));
  const frame = element("div", { className: "lanes scroll" });
  const detail = element("p", { className: "detail", "aria-live": "polite" });
  const view = new View(timeline.span, Math.min(timeline.span, 100));
  const describe = (x, y) => rowLines(chart, report, lanes, size, x, y);
  const chart = new Chart(frame, {
    height: TIMELINE_TOP + lanes.length * size + MARGIN.bottom,
    label: "Timeline of all IPUs. Arrow keys pan, + and - zoom, 0 shows everything",
    view,
    draw: () => drawLanes(chart, report, lanes, size),
    hover: describe,
    click: (x, y) => {
      const lines = describe(x, y) ?? [];
      detail.textContent = lines.map((line) => line.textContent ?? line).join(" \u00b7 ");
    },
  });
  const kinds = KINDS.filter((kind) => used.has(kind));
  body.replaceChildren(
    element("div", { className: "tools" }, chart.zoomButtons(),
      legend([...kinds.map((kind) => [words(kind), `--${kind.replaceAll("_", "-")}`]),
        ["idle", "--idle"]])),
    frame, detail, element("p", { className: "note" },
      `Micro-batches of one replica: ${formatExact(report.schedule.micro_batches)}, in `
      + `${formatCount(timeline.span)} ${timeline.units}. ${leftOut(timeline)}`
      + "Turn the wheel to zoom and drag to pan, "
      + "or use +, \u2212, 0 and the arrow keys. Numbers in the rows are micro-batches."));
}

/** What the rows do not show. */
function leftOut({ left_out: range }) {
  return range?.length ? `Rows of micro-batches ${range[0]} to ${range[1]} are left out. ` : "";
}

function drawLanes(chart, report, lanes, size) {
  const { left, width } = chart.area;
  const { context } = chart;
  const bottom = TIMELINE_TOP + lanes.length * size;
  timeAxis(chart, report, bottom);
  const busy = size > 12 ? size - 4 : size - 1;
  lanes.forEach((lane, number) => {
    const y = TIMELINE_TOP + number * size;
    const isFirst = number === 0 || lanes[number - 1].ipu !== lane.ipu;
    if (size >= 12 || (isFirst && lane.ipu % Math.ceil(12 / size) === 0)) {
      const label = isFirst ? `IPU ${lane.ipu}` : lane.track;
      chart.text(label, left - 8, y + size / 2, { align: "right" });
    }
    chart.rectangle("--idle", left, y, width, busy);
    context.save();
    context.beginPath();
    context.rect(left, y, width, busy);
    context.clip();
    drawRows(chart, lane, y, busy);
    context.restore();
  });
  if (chart.hovered && chart.hovered[0] > left && chart.hovered[0] < left + width) {
    const height = bottom - TIMELINE_TOP;
    chart.rectangle("--muted", Math.round(chart.hovered[0]), TIMELINE_TOP, 1, height);
  }
}

/** The rows that are visible. Those narrower than a pixel share it: the longest kind shows. */
function drawRows(chart, lane, y, height) {
  const { low, high } = chart.view;
  const { left, width } = chart.area;
  const scale = width / (high - low);
  let pixel = -1;
  let narrow = new Map();
  const flush = () => {
    const [color] = [...narrow].reduce((most, one) => (one[1] > most[1] ? one : most), [null, 0]);
    if (color) chart.rectangle(color, pixel, y, 1, height);
    narrow = new Map();
  };
  const count = lane.ends.length;
  for (let row = firstAfter(lane, low); row < count && lane.begins[row] <= high; row += 1) {
    const color = lane.colors[row];
    if (!color) continue;
    const x = left + (lane.begins[row] - low) * scale;
    const size = (lane.ends[row] - lane.begins[row]) * scale;
    if (Math.floor(x) !== pixel) {
      flush();
      pixel = Math.floor(x);
    }
    if (size < 1) {
      narrow.set(color, (narrow.get(color) ?? 0) + size);
      continue;
    }
    chart.rectangle(color, x, y, size > 4 ? size - 1 : size, height);
    const name = String(lane.microBatches[row] ?? "");
    if (size > 18 + 6 * name.length && height > 12 && lane.kinds[row] === "compute") {
      chart.text(name, Math.max(x, left) + 5, y + height / 2 + 1, { color: "--on-color" });
    }
  }
  flush();
}

/** The number of the first row that ends after a time. */
function firstAfter({ ends }, time) {
  let low = 0;
  let high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ends[middle] <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

function timeAxis(chart, report, bottom) {
  const { left, width } = chart.area;
  const { low, high } = chart.view;
  const count = Math.max(2, Math.floor(width / 110));
  const step = axisTicks(high - low, count, false)[1];
  for (let time = Math.ceil(low / step) * step; time <= high; time += step) {
    const x = Math.round(chart.positionOf(time));
    chart.rectangle("--grid", x, TIMELINE_TOP - 4, 1, bottom - TIMELINE_TOP + 8);
    const align = x > left + width - 40 ? "right" : x < left + 20 ? "left" : "center";
    chart.text(timeLabel(time, step), x, 9, { align });
    chart.text(formatSeconds(time / report.clock_hz), x, bottom + 13, { align });
  }
  chart.text("cycles", 4, 9);
  chart.text("time", 4, bottom + 13);
}

/** A time with as many digits as the distance of labels needs. */
function timeLabel(time, step) {
  const digits = time ? Math.max(3, Math.ceil(Math.log10(Math.abs(time) / step)) + 1) : 3;
  let power = 0;
  while (Math.abs(time) >= 1000 && power < 4) {
    time /= 1000;
    power += 1;
  }
  return `${significant(time, digits)}${["", " k", " M", " G", " T"][power]}`;
}

function rowLines(chart, report, lanes, size, x, y) {
  const { left, width } = chart.area;
  const lane = lanes[Math.floor((y - TIMELINE_TOP) / size)];
  if (!lane || x < left || x > left + width) return null;
  const time = chart.valueAt(x);
  const near = (2 * (chart.view.high - chart.view.low)) / width;
  const row = firstAfter(lane, time);
  const isThere = lane.colors[row] && lane.begins[row] <= time + near;
  const at = (cycles) =>
    `${formatCount(cycles)} cycles (${formatSeconds(cycles / report.clock_hz)})`;
  const where = `IPU ${lane.ipu}${lane.track ? `, ${lane.track}` : ""}`;
  if (!isThere) return [element("b", {}, `${where}: idle`), `at ${at(time)}`];
  return [element("b", {}, `${where}: ${words(lane.kinds[row])}`),
    ...(lane.tasks[row] ? [`task ${lane.tasks[row]}, micro-batch ${lane.microBatches[row]}`] : []),
    `begins at ${at(lane.begins[row])}`, `takes ${at(lane.ends[row] - lane.begins[row])}`];
}

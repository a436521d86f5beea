// What each IPU does when, in lanes: one for each track of an IPU.

const KINDS = ["forward", "backward", "update", "exchange", "host", "sync", "all_reduce"];
const TIMELINE_TOP = 22;

function kindOf(row, parts) {
  return row.kind === "compute" ? parts.get(row.task) ?? "forward" : row.kind;
}

function drawTimeline(report) {
  const body = bodyOf("timeline");
  const { timeline } = report;
  const lanes = timeline.lanes.filter((lane) => lane.rows.length);
  if (!lanes.length || !timeline.span) {
    body.replaceChildren(element("p", {}, "The report has no timeline."));
    return;
  }
  const parts = new Map();
  report.ops.forEach((op) => op.task && !parts.has(op.task) && parts.set(op.task, op.part));
  const used = new Set(lanes.flatMap((lane) => lane.rows.map((row) => kindOf(row, parts))));
  const size = Math.max(6, Math.min(26, Math.floor(1000 / lanes.length)));
  const frame = element("div", { className: "lanes scroll" });
  const detail = element("p", { className: "detail", "aria-live": "polite" });
  const view = new View(timeline.span, Math.min(timeline.span, 100));
  const describe = (x, y) => rowLines(chart, report, lanes, size, x, y);
  const chart = new Chart(frame, {
    height: TIMELINE_TOP + lanes.length * size + MARGIN.bottom,
    label: "Timeline of all IPUs. Arrow keys pan, + and - zoom, 0 shows everything",
    view,
    draw: () => drawLanes(chart, report, lanes, size, parts),
    hover: describe,
    click: (x, y) => {
      const lines = describe(x, y);
      detail.textContent = lines ? lines.map((line) => line.textContent ?? line).join(" \u00b7 ") : "";
    },
  });
  const kinds = KINDS.filter((kind) => used.has(kind));
  body.replaceChildren(
    element("div", { className: "tools" }, chart.zoomButtons(),
      legend([...kinds.map((kind) => [words(kind), `--${kind.replaceAll("_", "-")}`]),
        ["idle", "--idle"]])),
    frame, detail, element("p", { className: "note" },
      `One replica, one step: ${formatCount(timeline.span)} ${timeline.units}. Turn the wheel to zoom, `
      + "drag to pan; on the keyboard +, \u2212, arrow keys and 0. Numbers are micro-batches."));
}

function drawLanes(chart, report, lanes, size, parts) {
  const { left, width } = chart.area;
  const { context, view } = chart;
  const bottom = TIMELINE_TOP + lanes.length * size;
  timeAxis(chart, report, bottom);
  const busy = size > 12 ? size - 4 : size - 1;
  lanes.forEach((lane, number) => {
    const y = TIMELINE_TOP + number * size;
    const isFirst = number === 0 || lanes[number - 1].ipu !== lane.ipu;
    if (size >= 12 || (isFirst && lane.ipu % Math.ceil(12 / size) === 0)) {
      chart.text(isFirst ? `IPU ${lane.ipu}` : lane.track, left - 8, y + size / 2, { align: "right" });
    }
    chart.rectangle("--idle", left, y, width, busy);
    context.save();
    context.beginPath();
    context.rect(left, y, width, busy);
    context.clip();
    drawRows(chart, lane.rows, y, busy, parts);
    context.restore();
  });
  if (chart.hovered && chart.hovered[0] > left && chart.hovered[0] < left + width) {
    chart.rectangle("--muted", Math.round(chart.hovered[0]), TIMELINE_TOP, 1, bottom - TIMELINE_TOP);
  }
  view.drawn = lanes.length;
}

/** The rows that are visible; of those within one pixel, the first. */
function drawRows(chart, rows, y, height, parts) {
  const { low, high } = chart.view;
  const scale = chart.area.width / (high - low);
  let painted = -1;
  for (let number = firstAfter(rows, low); number < rows.length; number += 1) {
    const row = rows[number];
    if (row.begin > high) break;
    if (row.kind === "idle" || row.end === row.begin) continue;
    const x = chart.area.left + (row.begin - low) * scale;
    const end = chart.area.left + (row.end - low) * scale;
    if (end < painted) continue;
    const size = Math.max(end - x, 0.7);
    const kind = kindOf(row, parts).replaceAll("_", "-");
    chart.rectangle(`--${kind}`, x, y, size > 4 ? size - 1 : size, height);
    painted = size < 1 ? Math.floor(x) + 1 : end;
    const name = String(row.microBatch ?? "");
    if (size > 18 + 6 * name.length && height > 12 && row.kind === "compute") {
      chart.text(name, Math.max(x, chart.area.left) + 5, y + height / 2 + 1, { color: "--on-color" });
    }
  }
}

/** The number of the first row that ends after a time. */
function firstAfter(rows, time) {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle].end <= time) low = middle + 1;
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
  const row = lane.rows[firstAfter(lane.rows, time)];
  const isThere = row && row.begin <= time + near && row.kind !== "idle";
  const at = (cycles) => `${formatCount(cycles)} cycles (${formatSeconds(cycles / report.clock_hz)})`;
  const where = `IPU ${lane.ipu}${lane.track ? `, ${lane.track}` : ""}`;
  if (!isThere) return [element("b", {}, `${where}: idle`), `at ${at(time)}`];
  return [element("b", {}, `${where}: ${words(row.kind)}`),
    ...(row.task ? [`task ${row.task}, micro-batch ${row.microBatch}`] : []),
    `begins at ${at(row.begin)}`, `takes ${at(row.end - row.begin)}`];
}

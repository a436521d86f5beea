// The answer in one sentence, and its figures.

function drawSummary(report) {
  const body = bodyOf("summary");
  const fullest = fullestIpu(report);
  const sign = report.fits ? "\u2713" : "\u2715";
  const verdict = element("p", { className: `verdict ${report.fits ? "good" : "bad"}` },
    element("span", { className: "sign", "aria-hidden": "true" }, sign),
    element("span", {}, verdictText(report, fullest)));
  const notes = [hostText(report), boundText(report)].filter(Boolean);
  fill(body, verdict, element("dl", { className: "figures" }, figures(report, fullest)),
    notes.map((text) => element("p", { className: "note" }, text)));
}

function fullestIpu(report) {
  return report.ipus.reduce((best, ipu) => (ipu.peak_bytes > best.peak_bytes ? ipu : best),
    report.ipus[0]);
}

function verdictText(report, fullest) {
  const fits = report.fits ? "fits" : "does not fit";
  const [low, high] = report.interval.map((cycles) => formatSeconds(cycles / report.clock_hz));
  return `The program ${fits} on ${report.target}: its fullest tile needs `
    + `${formatBytes(fullest.peak_bytes)} of ${formatBytes(report.tile_bytes)}, and one step takes `
    + `${formatSeconds(report.seconds)} (90\u00a0% interval ${low} to ${high}), `
    + `which is ${formatCount(report.throughput)} samples/s.`;
}

function figures(report, fullest) {
  const [low, high] = report.interval;
  const rate = (cycles) => (report.throughput * report.cycles) / cycles;
  const gaps = fullest.peak_bytes - fullest.peak_without_gaps;
  const streaming = report.memory.streaming ?? 0;
  const replicas = report.timeline.replicas;
  const count = `${formatNumberOf(report.ipus.length, "IPU")} \u00d7 `
    + formatNumberOf(replicas, "replica");
  const rows = [
    ["Throughput", `${formatCount(report.throughput)} samples/s`,
      `90\u00a0% interval ${formatCount(rate(high))} to ${formatCount(rate(low))}`],
    ["One step", `${formatCount(report.cycles)} cycles`,
      `90\u00a0% interval ${formatCount(low)} to ${formatCount(high)}`],
    ["Fullest tile", formatPercent(fullest.peak_bytes / report.tile_bytes),
      `on IPU ${fullest.ipu}; gaps are ${formatBytes(gaps)} of it`],
    ["Target", report.target, `${count}; ${formatNumberOf(report.tiles, "tile")} of `
      + `${formatBytes(report.tile_bytes)}; ${formatHertz(report.clock_hz)}`],
  ];
  if (streaming) rows.push(["Streaming memory", formatBytes(streaming), "off the chip"]);
  return rows.map(([name, value, note]) => element("div", {}, element("dt", {}, name),
    element("dd", { className: "value" }, value), element("dd", { className: "note" }, note)));
}

/** Times of the host, which the step does not include. */
function hostText(report) {
  const times = Object.entries(report.host).filter(([, value]) => typeof value === "number")
    .map(([name, value]) => `${words(name).replace(/ seconds$/, "")} ${formatSeconds(value)}`);
  return times.length ? `Host, not part of the step: ${times.join(", ")}.` : "";
}

function boundText(report) {
  const count = report.ops.filter((op) => op.is_bound).length;
  return count ? `The cycles of ${formatNumberOf(count, "operation")} without a cost model are `
    + "bounds from bytes and FLOPs. The table of operations marks them." : "";
}

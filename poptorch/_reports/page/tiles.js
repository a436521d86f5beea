// Memory by tile: a small picture of each IPU, and a large one of the IPU that is chosen.

function drawTiles(report, state) {
  const body = bodyOf("tiles");
  const pictures = element("div", { className: "ipus", role: "group", "aria-label": "IPU" });
  if (report.ipus.length > 1) {
    report.ipus.forEach((ipu, number) => pictures.append(ipuButton(report, state, ipu, number)));
  }
  const title = element("p", { className: "note", "aria-live": "polite" });
  body.replaceChildren(pictures, title);
  const high = Math.max(report.tile_bytes, ...report.ipus.map((ipu) => ipu.peak_bytes)) * 1.08;
  const chart = new Chart(body, {
    height: 220,
    label: "Bytes of each tile of the chosen IPU, with the limit of a tile",
    draw: () => drawTileChart(chart, report, report.ipus[state.ipu], high),
    hover: (x) => tileLines(chart, report, report.ipus[state.ipu], x),
  });
  state.onIpu(() => {
    const ipu = report.ipus[state.ipu];
    const above = ipu.by_tile.filter((used) => used > report.tile_bytes).length;
    title.textContent = `IPU ${ipu.ipu} at its peak: fullest tile ${formatBytes(ipu.peak_bytes)}, `
      + `mean ${formatBytes(ipu.mean_bytes)}, `
      + `${formatNumberOf(above, "tile")} above the limit.`;
    [...pictures.children].forEach((button, number) =>
      button.setAttribute("aria-pressed", String(number === state.ipu)));
    chart.repaint();
  });
}

function ipuButton(report, state, ipu, number) {
  const isFull = ipu.peak_bytes > report.tile_bytes;
  const share = formatPercent(ipu.peak_bytes / report.tile_bytes);
  const button = element("button", { type: "button", onclick: () => state.chooseIpu(number),
    "aria-label": `IPU ${ipu.ipu}, fullest tile ${share}${isFull ? ", above the limit" : ""}` },
  element("span", {}, element("b", {}, `IPU ${ipu.ipu}`), element("span", {}, share)));
  if (isFull) button.classList.add("full");
  const high = Math.max(report.tile_bytes, ipu.peak_bytes) * 1.05;
  const chart = new Chart(button, {
    height: 36,
    label: "",
    draw: () => {
      drawBars(chart, ipu.by_tile, { left: 0, top: 0, width: chart.width, height: 36 }, high,
        report.tile_bytes);
      const y = Math.round(36 - (report.tile_bytes / high) * 36);
      chart.rectangle("--limit", 0, y, chart.width, 1);
    },
  });
  chart.canvas.tabIndex = -1;
  chart.canvas.setAttribute("aria-hidden", "true");
  return button;
}

/** One bar for each pixel: the fullest of the tiles there. */
function drawBars(chart, byTile, { left, top, width, height }, high, limit) {
  const columns = Math.min(Math.floor(width), byTile.length);
  const bottom = top + height;
  for (let column = 0; column < columns; column += 1) {
    const first = Math.floor((column * byTile.length) / columns);
    const end = Math.max(first + 1, Math.floor(((column + 1) * byTile.length) / columns));
    let used = 0;
    for (let tile = first; tile < end; tile += 1) used = Math.max(used, byTile[tile]);
    const x = left + (column * width) / columns;
    const size = (used / high) * height;
    chart.rectangle("--accent", x, bottom - size, width / columns + 0.3, size);
    if (used > limit) {
      const above = ((used - limit) / high) * height;
      chart.rectangle("--limit", x, bottom - size, width / columns + 0.3, above);
    }
  }
}

function drawTileChart(chart, report, ipu, high) {
  const { left, top, width, height } = chart.area;
  chart.byteAxis(high);
  drawBars(chart, ipu.by_tile, chart.area, high, report.tile_bytes);
  chart.limitLine(report.tile_bytes, high, `limit ${formatBytes(report.tile_bytes)}`);
  const count = ipu.by_tile.length;
  for (const tile of axisTicks(count, Math.max(2, Math.floor(width / 90)), false)) {
    const x = left + (tile / count) * width;
    const words = tile === 0 ? "tile 0" : formatExact(tile);
    chart.text(words, x, top + height + 13, { align: tile === 0 ? "left" : "center" });
  }
}

function tileLines(chart, report, ipu, x) {
  const { left, width } = chart.area;
  const tile = Math.floor(((x - left) / width) * ipu.by_tile.length);
  const used = ipu.by_tile[tile];
  if (used === undefined) return null;
  return [element("b", {}, `Tile ${formatExact(tile)}`),
    `${formatBytes(used)} of ${formatBytes(report.tile_bytes)}`,
    formatPercent(used / report.tile_bytes)];
}

// The table of operations. Only the rows that are visible exist as elements.

const ROW_HEIGHT = 30;

function cyclesOf(op) {
  return op.runs * (op.compute + op.exchange + op.sync);
}

/** Columns: what a row is sorted by, and the cell that is shown. */
const COLUMNS = [
  { name: "Operation", size: "minmax(150px, 1.3fr)", value: (op) => op.op,
    cell: (op) => element("span", {}, element("b", {}, op.op), ` ${op.result}`,
      op.is_bound ? element("em", { title: "No cost model: a bound from bytes and FLOPs" }, "bound")
        : null) },
  { name: "Module", size: "minmax(160px, 2fr)", value: (op) => op.module },
  { name: "Line", size: "minmax(108px, 1fr)", value: (op) => op.location },
  { name: "IPU", size: "52px", isNumber: true, value: (op) => op.ipu },
  { name: "Part", size: "86px", value: (op) => op.part },
  { name: "Runs", size: "72px", isNumber: true, value: (op) => op.runs,
    cell: (op) => formatExact(op.runs) },
  { name: "Cycles", size: "88px", isNumber: true, value: cyclesOf, title: "of all runs in a step",
    cell: (op) => formatCount(cyclesOf(op)) },
  { name: "FLOPs", size: "82px", isNumber: true, value: (op) => op.flops * op.runs,
    title: "of all runs in a step", cell: (op) => formatCount(op.flops * op.runs) },
  { name: "Utilisation", size: "106px", isNumber: true, value: (op) => op.utilisation,
    title: "FLOPs per cycle, as a share of the peak of the IPU for the type",
    cell: (op) => element("span", { className: "meter",
      style: `--share: ${Math.min(1, op.utilisation)}` }, formatPercent(op.utilisation, 2)) },
  { name: "Temporary", size: "100px", isNumber: true, value: (op) => op.temporary_bytes,
    title: "on the fullest tile", cell: (op) => formatBytes(op.temporary_bytes) },
];

class OperationTable {
  constructor(report, state) {
    Object.assign(this, { report, state, sorted: COLUMNS[6], descending: true });
    this.filters = { text: "", ipu: "", part: "" };
    this.texts = report.ops.map((op) =>
      [op.op, op.result, op.module, op.location, op.task].join(" ").toLowerCase());
    this.totals = report.ops.map(cyclesOf);
    this.build();
    this.update();
  }

  build() {
    const ipus = [...new Set(this.report.ops.map((op) => op.ipu))].sort((a, b) => a - b);
    const parts = [...new Set(this.report.ops.map((op) => op.part))];
    const filter = (name) => (value) => { this.filters[name] = value; this.update(); };
    const search = element("input", { type: "search", placeholder: "name, module, line, task",
      oninput: () => filter("text")(search.value.toLowerCase()) });
    this.status = element("span", { className: "note", role: "status" });
    const tools = element("div", { className: "tools" },
      element("label", {}, element("span", {}, "Filter"), search),
      select("IPU", [["", "all"], ...ipus.map((ipu) => [ipu, ipu])], filter("ipu")),
      select("Part", [["", "all"], ...parts.map((part) => [part, part])], filter("part")),
      this.status);
    const heads = COLUMNS.map((column) => element("div", { role: "columnheader",
      className: column.isNumber ? "number" : "" },
    element("button", { type: "button", title: column.title ?? "",
      onclick: () => this.sort(column) }, column.name)));
    this.head = element("div", { role: "row", className: "head line" }, heads);
    this.rows = element("div", { role: "rowgroup", className: "rows" });
    this.frame = element("div", { className: "grid scroll", role: "table", tabIndex: 0,
      "aria-label": "Operations: arrow keys choose a row", onscroll: () => this.draw(),
      onkeydown: (event) => this.key(event) }, this.head, this.rows);
    const sizes = COLUMNS.map((column) => column.size).join(" ");
    this.frame.style.setProperty("--columns", sizes);
    this.detail = element("div", { className: "detail", "aria-live": "polite" });
    bodyOf("operations").replaceChildren(tools, this.frame, this.detail);
    new ResizeObserver(() => this.draw()).observe(this.frame);
  }

  sort(column) {
    this.descending = this.sorted === column ? !this.descending : Boolean(column.isNumber);
    this.sorted = column;
    this.update();
  }

  /** Filters and sorts anew. */
  update() {
    const { text, ipu, part } = this.filters;
    const { ops } = this.report;
    const wanted = text.split(/\s+/).filter(Boolean);
    const keys = ops.map(this.sorted.value);
    this.shown = ops.map((_, number) => number).filter((number) =>
      (ipu === "" || ops[number].ipu === Number(ipu)) && (part === "" || ops[number].part === part)
      && wanted.every((word) => this.texts[number].includes(word)));
    const sign = this.descending ? -1 : 1;
    this.shown.sort((a, b) => sign * (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0) || a - b);
    const sum = this.shown.reduce((cycles, number) => cycles + this.totals[number], 0);
    this.status.textContent = `${formatExact(this.shown.length)} of `
      + `${formatExact(ops.length)} operations, ${formatCount(sum)} cycles`;
    [...this.head.children].forEach((head, number) => head.setAttribute("aria-sort",
      COLUMNS[number] !== this.sorted ? "none" : this.descending ? "descending" : "ascending"));
    this.frame.setAttribute("aria-rowcount", this.shown.length + 1);
    this.rows.style.height = `${this.shown.length * ROW_HEIGHT}px`;
    this.frame.scrollTop = 0;
    this.chosen = -1;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.frame.scrollTop / ROW_HEIGHT) - 4);
    const last = Math.min(this.shown.length,
      first + Math.ceil(this.frame.clientHeight / ROW_HEIGHT) + 8);
    const lines = [];
    for (let row = first; row < last; row += 1) lines.push(this.line(row));
    this.rows.replaceChildren(...lines);
  }

  line(row) {
    const op = this.report.ops[this.shown[row]];
    const cells = COLUMNS.map((column) => {
      const shown = column.cell ? column.cell(op) : String(column.value(op));
      return element("div", { role: "cell", className: column.isNumber ? "number" : "",
        title: typeof shown === "string" && !column.isNumber ? shown : "" }, shown);
    });
    return element("div", { role: "row", className: row === this.chosen ? "line chosen" : "line",
      "aria-rowindex": row + 2, style: `top: ${row * ROW_HEIGHT}px`,
      onclick: () => this.choose(row) }, cells);
  }

  key(event) {
    const page = Math.floor(this.frame.clientHeight / ROW_HEIGHT) - 2;
    const moves = { ArrowDown: this.chosen + 1, ArrowUp: this.chosen - 1, Home: 0,
      PageDown: this.chosen + page, PageUp: this.chosen - page, End: this.shown.length - 1 };
    if (event.target !== this.frame || !(event.key in moves) || !this.shown.length) return;
    event.preventDefault();
    this.choose(Math.max(0, Math.min(this.shown.length - 1, moves[event.key])));
  }

  choose(row) {
    this.chosen = row;
    const above = row * ROW_HEIGHT;
    const room = this.frame.clientHeight - this.head.offsetHeight - ROW_HEIGHT;
    const { scrollTop } = this.frame;
    if (above < scrollTop) this.frame.scrollTop = above;
    if (above > scrollTop + room) this.frame.scrollTop = above - room;
    this.draw();
    fill(this.detail, this.describe(this.report.ops[this.shown[row]]));
  }

  describe(op) {
    const cycles = op.compute + op.exchange + op.sync;
    const share = (part) => (cycles ? ` (${formatPercent(part / cycles, 2)})` : "");
    const rows = [["result", `${op.result}: ${op.shape}`], ["where",
      [op.module, op.location, op.graph].filter(Boolean).join(" \u00b7 ")],
    ["task", op.task || "none"],
    ["one run", `${formatCount(cycles)} cycles: compute ${formatCount(op.compute)}`
      + `${share(op.compute)}, exchange ${formatCount(op.exchange)}${share(op.exchange)}, sync `
      + `${formatCount(op.sync)}${share(op.sync)}`],
    ["fullest tile", `${formatBytes(op.always_bytes)} always, `
      + `${formatBytes(op.temporary_bytes)} temporary`],
    ["plan", op.plan || "none"]];
    if (op.is_bound) {
      rows.push(["cost", "a bound from bytes and FLOPs: this operation has no cost model"]);
    }
    return [element("h3", {}, element("code", {}, op.op)),
      element("dl", { className: "facts" }, rows.map(([name, text]) =>
        [element("dt", {}, name), element("dd", {}, text)]).flat()), this.toStep(op)];
  }

  /** A button that shows the operation in the chart of memory; null where it is not in it. */
  toStep(op) {
    const { ipus } = this.report;
    const ipu = ipus.findIndex((one) => one.ipu === op.ipu);
    const step = ipu < 0 ? -1 : ipus[ipu].steps.findIndex((one) => one.id === op.id);
    if (step < 0) return null;
    const show = () => {
      this.state.chooseIpu(ipu);
      this.state.chooseStep(step);
      document.getElementById("memory").scrollIntoView();
    };
    return element("button", { type: "button", onclick: show }, "Show what is live");
  }
}

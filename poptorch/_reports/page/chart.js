// A canvas that follows the size of the page, and zoom and pan of its horizontal axis.

const charts = new Set();
const MARGIN = { left: 72, right: 12, top: 14, bottom: 24 };

class Chart {
  /**
   * `draw(chart)` paints; `hover(x, y)` returns the lines of the tooltip or null;
   * `click(x, y)` follows a press without a drag; `key(name)` returns whether it took the key.
   */
  constructor(parent, { height, label, draw, hover, click, key, view }) {
    Object.assign(this, { draw, hover, click, key, view, height });
    this.canvas = element("canvas", { tabIndex: 0, role: "img", "aria-label": label });
    this.canvas.style.height = `${height}px`;
    parent.append(this.canvas);
    this.context = this.canvas.getContext("2d");
    this.pointers = new Map();
    this.listen();
    charts.add(this);
    this.observer = new ResizeObserver(() => {
      if (this.canvas.clientWidth !== this.width) this.paint();
    });
    this.observer.observe(this.canvas);
  }

  /** The part of the canvas between the axes. */
  get area() {
    const { left, right, top, bottom } = MARGIN;
    return { left, top, width: Math.max(1, this.width - left - right),
      height: this.height - top - bottom };
  }

  paint() {
    if (!this.canvas.isConnected) return this.remove();
    const scale = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.canvas.width = Math.round(this.width * scale);
    this.canvas.height = Math.round(this.height * scale);
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.context.font = "12px system-ui, sans-serif";
    this.context.textBaseline = "middle";
    if (this.width) this.draw(this);
  }

  repaint() {
    if (this.waiting || !this.width) return; // the observer paints first
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  remove() {
    this.observer.disconnect();
    charts.delete(this);
  }

  /** The value of the view at a horizontal position. */
  valueAt(x) {
    const { left, width } = this.area;
    return this.view.low + ((x - left) / width) * (this.view.high - this.view.low);
  }

  positionOf(value) {
    const { left, width } = this.area;
    return left + ((value - this.view.low) / (this.view.high - this.view.low)) * width;
  }

  rectangle(color, x, y, width, height) {
    this.context.fillStyle = theme.color(color);
    this.context.fillRect(x, y, width, height);
  }

  text(words, x, y, { color = "--muted", align = "left" } = {}) {
    this.context.fillStyle = theme.color(color);
    this.context.textAlign = align;
    this.context.fillText(words, x, y);
  }

  /** Lines and labels of the vertical axis from 0 to `high` bytes. */
  byteAxis(high) {
    const { left, top, width, height } = this.area;
    for (const value of axisTicks(high, Math.max(2, Math.floor(height / 40)), true)) {
      const y = Math.round(top + height - (value / high) * height);
      this.rectangle("--grid", left, y, width, 1);
      this.text(formatBytes(value), left - 8, y, { align: "right" });
    }
  }

  limitLine(limit, high, words) {
    const { left, top, width, height } = this.area;
    const y = Math.round(top + height - (limit / high) * height) + 0.5;
    this.context.strokeStyle = theme.color("--limit");
    this.context.setLineDash([6, 4]);
    this.context.beginPath();
    this.context.moveTo(left, y);
    this.context.lineTo(left + width, y);
    this.context.stroke();
    this.context.setLineDash([]);
    const size = this.context.measureText(words).width + 8;
    this.rectangle("--surface", left + width - size, y - 16, size, 15);
    this.text(words, left + width - 4, y - 8, { color: "--limit", align: "right" });
  }

  listen() {
    const canvas = this.canvas;
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("pointermove", (event) => this.moved(event, at(event)));
    canvas.addEventListener("pointerleave", () => {
      tip.hide();
      this.hovered = null;
      this.repaint();
    });
    canvas.addEventListener("pointerdown", (event) => {
      this.pointers.set(event.pointerId, at(event));
      this.dragged = this.pointers.size > 1;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (this.pointers.delete(event.pointerId) && !this.dragged) this.click?.(...at(event));
    });
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (this.key?.(event.key) || this.viewKey(event.key)) {
        event.preventDefault();
        this.repaint();
      }
    });
    if (this.view) {
      canvas.classList.add("zooms");
      canvas.addEventListener("wheel", (event) => this.wheel(event, at(event)[0]),
        { passive: false });
    }
  }

  moved(event, [x, y]) {
    const before = this.pointers.get(event.pointerId);
    if (before && this.view) {
      if (Math.abs(x - before[0]) < 3 && !this.dragged) return;
      this.dragged = true;
      const others = [...this.pointers].filter(([id]) => id !== event.pointerId);
      if (others.length) {
        const other = others[0][1][0];
        const spread = Math.max(8, Math.abs(x - other)) / Math.max(8, Math.abs(before[0] - other));
        this.view.zoom(1 / spread, this.valueAt(other));
      } else {
        this.view.pan(this.valueAt(before[0]) - this.valueAt(x));
      }
      this.pointers.set(event.pointerId, [x, y]);
      tip.hide();
      this.repaint();
      return;
    }
    this.hovered = [x, y];
    const lines = this.hover?.(x, y);
    if (lines) tip.show(event.clientX, event.clientY, lines);
    else tip.hide();
    this.repaint();
  }

  /** A wheel zooms, unless the turn began outside of the chart or there is nothing to zoom out. */
  wheel(event, x) {
    if (performance.now() - pageScrolled < 250) return;
    const { view } = this;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      view.pan((event.deltaX / this.area.width) * (view.high - view.low));
    } else if (event.deltaY < 0 || !view.isWhole()) {
      view.zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * 0.004), this.valueAt(x));
    } else {
      return;
    }
    event.preventDefault();
    tip.hide();
    this.repaint();
  }

  viewKey(name) {
    const { view } = this;
    if (!view) return false;
    const step = (view.high - view.low) / 8;
    const moves = {
      "+": () => view.zoom(0.7), "=": () => view.zoom(0.7), "-": () => view.zoom(1 / 0.7),
      "0": () => view.reset(), ArrowLeft: () => view.pan(-step), ArrowRight: () => view.pan(step),
      Home: () => view.pan(-Infinity), End: () => view.pan(Infinity),
    };
    moves[name]?.();
    return name in moves;
  }

  /** Buttons for the zoom, for those without wheel and keyboard. */
  zoomButtons() {
    const button = (text, label, act) => element("button", { type: "button", "aria-label": label,
      title: label, onclick: () => { act(); this.repaint(); } }, text);
    return element("div", { className: "choice", role: "group", "aria-label": "Zoom" },
      button("+", "Zoom in", () => this.view.zoom(0.5)),
      button("\u2212", "Zoom out", () => this.view.zoom(2)),
      button("Whole", "Show everything", () => this.view.reset()));
  }
}

/** The visible part of a horizontal axis from 0 to `end`. */
class View {
  constructor(end, smallest) {
    this.end = end;
    this.smallest = Math.min(smallest, end);
    this.reset();
  }

  reset() {
    this.low = 0;
    this.high = this.end;
  }

  isWhole() {
    return this.low <= 0 && this.high >= this.end;
  }

  zoom(factor, at = (this.low + this.high) / 2) {
    const span = Math.max(this.smallest, Math.min(this.end, (this.high - this.low) * factor));
    const share = (at - this.low) / (this.high - this.low);
    this.show(at - share * span, span);
  }

  pan(change) {
    this.show(this.low + change, this.high - this.low);
  }

  show(low, span) {
    this.low = Math.max(0, Math.min(low, this.end - span));
    this.high = this.low + span;
  }
}

let pageScrolled = -Infinity;
window.addEventListener("scroll", () => { pageScrolled = performance.now(); }, { passive: true });

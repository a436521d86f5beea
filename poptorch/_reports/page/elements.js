// Elements of the page. Texts from a report are always set as text, never as HTML.

/** A new element: properties (those with "-" and "role" as attributes), then children. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") made.setAttribute(name, value);
    else if (name === "style") made.style.cssText = value;
    else made[name] = value;
  }
  fill(made, ...children);
  return made;
}

/** Replaces the children of an element; null stands for none. */
function fill(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((child) => child !== null));
}

function bodyOf(section) {
  return document.querySelector(`#${section} .body`);
}

/** A swatch in the color of a CSS variable. */
function swatch(variable) {
  return element("i", { className: "swatch", style: `background: var(${variable})` });
}

function legend(entries) {
  const items = entries.map(([name, variable]) => element("li", {}, swatch(variable), name));
  return element("ul", { className: "legend" }, items);
}

/** Rows of cells as a table; cells of the columns in `numeric` are set to the right. */
function simpleTable(caption, heads, rows, numeric = []) {
  const side = (column) => (numeric.includes(column) ? "number" : "");
  const head = heads.map((name, column) =>
    element("th", { scope: "col", className: side(column) }, name),
  );
  const lines = rows.map((cells) =>
    element("tr", {}, cells.map((cell, column) =>
      element("td", { className: side(column) }, cell))),
  );
  const table = element("table", {},
    element("caption", { className: "unseen" }, caption),
    element("thead", {}, element("tr", {}, head)),
    element("tbody", {}, lines));
  return element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption },
    table);
}

/** A note that a list goes on; null where it does not. */
function moreText(count) {
  return count > 0
    ? element("p", { className: "note" }, `and ${formatExact(count)} more`) : null;
}

/** Buttons of which one is pressed. `choose` is called with the number of the button. */
function choice(parent, names, chosen, choose) {
  const buttons = names.map((name, number) =>
    element("button", { type: "button", onclick: () => choose(number),
      "aria-pressed": String(number === chosen) }, name),
  );
  parent.replaceChildren(...buttons);
}

function select(label, values, change) {
  const box = element("select", { onchange: () => change(box.value) },
    values.map(([value, text]) => element("option", { value }, text)));
  return element("label", {}, element("span", {}, label), box);
}

const tip = {
  show(x, y, lines) {
    const box = document.getElementById("tip");
    box.replaceChildren(...lines.map((line) => element("div", {}, line)));
    box.hidden = false;
    const width = box.offsetWidth;
    const left = x + 14 + width > window.innerWidth ? x - 14 - width : x + 14;
    box.style.left = `${Math.max(4, Math.min(left, window.innerWidth - width - 4))}px`;
    box.style.top = `${Math.max(4, Math.min(y + 14, window.innerHeight - box.offsetHeight - 4))}px`;
  },
  hide() {
    document.getElementById("tip").hidden = true;
  },
};

const theme = {
  found: new Map(),
  /** The value of a CSS variable in the current theme, in a form that a canvas takes. */
  color(variable) {
    if (!this.found.has(variable)) {
      const probe = element("i", { style: `color: var(${variable})`, hidden: true });
      document.body.append(probe);
      this.found.set(variable, getComputedStyle(probe).color);
      probe.remove();
    }
    return this.found.get(variable);
  },
  isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  },
  /** Calls `redraw` after each change of the theme, by the button or by the system. */
  watch(redraw) {
    const button = document.getElementById("theme");
    const name = () => {
      button.textContent = this.isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", `${button.textContent} theme`);
    };
    const changed = () => {
      this.found.clear();
      name();
      redraw();
    };
    button.onclick = () => {
      document.documentElement.dataset.theme = this.isDark() ? "light" : "dark";
      changed();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
    name();
  },
};

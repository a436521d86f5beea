"use strict";

// Numbers with their units, as text.

function significant(number, digits = 3) {
  if (number === 0) return "0";
  const whole = Math.floor(Math.log10(Math.abs(number))) + 1;
  return number.toLocaleString("en-US", {
    maximumFractionDigits: Math.max(0, Math.min(12, digits - whole)),
  });
}

function scaled(number, base, names) {
  let power = 0;
  while (Math.abs(number) >= base * 0.9995 && power < names.length - 1) {
    number /= base;
    power += 1;
  }
  return `${significant(number)}${names[power] && "\u00a0"}${names[power]}`;
}

function formatBytes(number) {
  return scaled(number, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
}

function formatCount(number) {
  return scaled(number, 1000, ["", "k", "M", "G", "T", "P"]);
}

function formatSeconds(number) {
  if (number >= 1 || number === 0) return `${significant(number)}\u00a0s`;
  return scaled(number * 1e9, 1000, ["ns", "\u00b5s", "ms", "s"]);
}

function formatPercent(share, digits = 3) {
  if (share > 0 && share < 1e-4) return "< 0.01\u00a0%";
  return `${significant(share * 100, digits)}\u00a0%`;
}

function formatExact(number) {
  return number.toLocaleString("en-US");
}

/** "1 tile", "2 tiles", "no tiles". */
function formatNumberOf(count, name) {
  return `${count ? formatExact(count) : "no"} ${name}${count === 1 ? "" : "s"}`;
}

function formatHertz(number) {
  return scaled(number, 1000, ["Hz", "kHz", "MHz", "GHz"]);
}

function formatChange(before, after) {
  if (before === after) return "same";
  if (!before) return "new";
  const change = (after - before) / before;
  return `${change > 0 ? "+" : "\u2212"}${formatPercent(Math.abs(change), 2)}`;
}

/** "memory_proportion" as "memory proportion". */
function words(name) {
  return name.replaceAll("_", " ");
}

/** Values at which an axis from 0 to `high` has labels: at most `count` steps of a round size. */
function axisTicks(high, count, isBytes) {
  let step;
  if (isBytes) {
    step = 2 ** Math.ceil(Math.log2(Math.max(high / count, 1)));
  } else {
    const size = 10 ** Math.floor(Math.log10(Math.max(high / count, 1e-12)));
    step = [1, 2, 5, 10].map((one) => one * size).find((one) => one * count >= high);
  }
  const found = [];
  for (let value = 0; value <= high * 1.0001; value += step) found.push(value);
  return found;
}

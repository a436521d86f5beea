// Options that differ from their defaults.

function optionText(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function drawOptions(report) {
  const rows = Object.entries(report.options).map(([name, value]) => [
    element("code", {}, name), element("code", {}, optionText(value))]);
  bodyOf("options").replaceChildren(rows.length
    ? simpleTable("Options that differ from their defaults", ["Option", "Value"], rows)
    : element("p", {}, "All options have their defaults."));
}

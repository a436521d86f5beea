// The data of the page: what packing.py has packed, as objects and arrays.

async function readData() {
  const text = atob(document.getElementById("data").textContent);
  const bytes = new Uint8Array(text.length);
  for (let number = 0; number < text.length; number += 1) bytes[number] = text.charCodeAt(number);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const packed = JSON.parse(await new Response(stream).text());
  return packed.reports.map((report) => unpackReport(report, packed.strings));
}

function unpackReport(report, strings) {
  const { timeline, ...rest } = report;
  const found = unpackValue(rest, strings);
  found.timeline = { ...timeline, lanes: unpackLanes(timeline.rows, strings) };
  return found;
}

function unpackValue(value, strings) {
  if (Array.isArray(value)) return value.map((one) => unpackValue(one, strings));
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value.text)) return value.text.map((number) => strings[number]);
  if (value.columns) return unpackRows(value, strings);
  return Object.fromEntries(
    Object.entries(value).map(([key, one]) => [key, unpackValue(one, strings)]),
  );
}

function unpackRows(table, strings) {
  const keys = Object.keys(table.columns);
  const columns = keys.map((key) => unpackValue(table.columns[key], strings));
  const rows = [];
  for (let number = 0; number < table.rows; number += 1) {
    const row = {};
    for (let key = 0; key < keys.length; key += 1) row[keys[key]] = columns[key][number];
    rows.push(row);
  }
  return rows;
}

/**
 * Rows of the timeline by lane: one for each track of an IPU, in the order of time. A lane has
 * columns, because there may be a hundred thousand rows.
 */
function unpackLanes(rows, strings) {
  const lanes = [];
  let end = 0;
  for (let number = 0; number < rows.ipu.length; number += 1) {
    const track = strings[rows.track[number]];
    let lane = lanes.at(-1);
    if (!lane || lane.ipu !== rows.ipu[number] || lane.track !== track) {
      lane = { ipu: rows.ipu[number], track, begins: [], ends: [], kinds: [], tasks: [],
        microBatches: [] };
      lanes.push(lane);
      end = 0;
    }
    const begin = end + rows.gap[number];
    end = begin + rows.duration[number];
    lane.begins.push(begin);
    lane.ends.push(end);
    lane.kinds.push(strings[rows.kind[number]]);
    lane.tasks.push(strings[rows.task[number]]);
    lane.microBatches.push(rows.micro_batch[number]);
  }
  return lanes;
}

// Draws the page: all sections for one report, again when the other report is chosen.

/** What is chosen, and whom it concerns. */
class State {
  constructor(report) {
    this.report = report;
    this.ipu = report.ipus.indexOf(fullestIpu(report));
    this.listeners = { ipu: [], step: [] };
  }

  onIpu(listener) {
    this.listeners.ipu.push(listener);
  }

  onStep(listener) {
    this.listeners.step.push(listener);
  }

  chooseIpu(number) {
    this.ipu = number;
    this.listeners.ipu.forEach((listener) => listener());
    this.chooseStep(this.report.ipus[number].peak_step);
  }

  chooseStep(number) {
    this.step = number;
    this.listeners.step.forEach((listener) => listener());
  }
}

function show(reports, number) {
  const report = reports[number];
  const state = new State(report);
  if (reports.length > 1) {
    choice(document.getElementById("switch"), ["After", "Before"], number,
      (chosen) => show(reports, chosen));
  }
  drawSummary(report);
  drawTiles(report, state);
  drawMemory(report, state);
  new OperationTable(report, state);
  drawTimeline(report);
  drawOptions(report);
  state.chooseIpu(state.ipu);
}

readData().then((reports) => {
  show(reports, 0);
  if (reports.length > 1) {
    document.getElementById("to-comparison").hidden = false;
    document.getElementById("comparison").hidden = false;
    drawComparison(reports[1], reports[0]);
  }
  theme.watch(() => charts.forEach((chart) => chart.repaint()));
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
});

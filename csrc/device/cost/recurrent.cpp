// Recurrent layers: each step of the sequence by the products and the elementwise steps of a cell.
#include "device/cost/steps.h"

namespace poptorch::device {

namespace {

struct Cell {
  int64_t gates;       // products of the state with weights, side by side
  int64_t stages;      // products that wait for one another in a step
  double elementwise;  // steps of a cell other than its products
  double functions;    // cycles a vector of all of them together
};

constexpr Cell lstm{4, 1, 7, 34};
constexpr Cell gru{3, 2, 9, 34};
constexpr Cell rnn{1, 1, 2, 8};

struct Layer {
  int64_t time, batch, input, hidden;
};

Layer layer_of(const Call& call, size_t x) {
  const ir::Type &sequence = call.operand(x), &state = call.operand(x + 1);
  return {sequence.sizes[0], sequence.sizes[1], sequence.sizes[2], state.sizes[1]};
}

Problem product(const Call& call, const ir::Type& x, int64_t rows, int64_t sums, int64_t columns) {
  Problem problem;
  problem.is_product = true;
  problem.batch = rows;
  problem.in_channels = sums;
  problem.out_channels = columns;
  problem.item_bytes = ir::item_bytes(x.dtype);
  problem.partial_bytes = problem.item_bytes == 4 ? 4 : call.settings.partial_bytes;
  return problem;
}

// Input and state are one product where the cell has one stage; else the last gate waits for the
// others.
void add_forward(Steps& steps, const Call& call, const Cell& cell, const Layer& l,
                 const ir::Type& x) {
  const auto time = static_cast<double>(l.time);
  const int64_t first = cell.gates - (cell.stages - 1);
  steps.add_product(product(call, x, l.batch, l.input + l.hidden, first * l.hidden), time);
  if (cell.stages > 1) {
    steps.add_product(product(call, x, l.batch, l.input + l.hidden, l.hidden), time);
  }
  const double state = call.share(static_cast<double>(l.batch * l.hidden),
                                  ir::item_bytes(x.dtype));
  steps.add_elementwise(state, ir::item_bytes(x.dtype), cell.functions / cell.elementwise,
                        time * cell.elementwise);
  // The part of the input is cut out, that of the result is put in place.
  steps.add_copy(state, ir::item_bytes(x.dtype), 2 * time);
}

template <const Cell& cell>
Cost forward_cost(const Call& call) {
  Steps steps(call);
  add_forward(steps, call, cell, layer_of(call, 0), call.operand(0));
  return steps.cost;
}

// `x` is the position of the sequence among the operands.
template <const Cell& cell, size_t x>
Cost backward_cost(const Call& call) {
  Steps steps(call);
  const Layer l = layer_of(call, x);
  const ir::Type& sequence = call.operand(x);
  const auto time = static_cast<double>(l.time);
  const int64_t item = ir::item_bytes(sequence.dtype);
  // As in the forward pass: the gates of the last stage by themselves.
  std::vector<int64_t> stages = {cell.gates - (cell.stages - 1)};
  if (cell.stages > 1) stages.push_back(1);
  for (const int64_t gates : stages) {
    Problem gradient = product(call, sequence, l.batch, gates * l.hidden, l.input + l.hidden);
    gradient.pass = Pass::backward;
    gradient.is_layer = true;
    steps.add_product(gradient, time);
    Problem update = product(call, sequence, l.input + l.hidden, l.batch, gates * l.hidden);
    update.pass = Pass::weight_update;
    steps.add_product(update, time);
  }
  const double state = call.share(static_cast<double>(l.batch * l.hidden), item);
  steps.add_elementwise(state, item, cell.functions / cell.elementwise,
                        time * (cell.elementwise + 1));
  const double weights =
      static_cast<double>(cell.gates * l.hidden) * static_cast<double>(l.input + l.hidden);
  steps.add_elementwise(call.share(weights, item), item, 3, time);  // the sum of their gradients
  steps.add_copy(state, item, 2 * time);
  return steps.cost;
}

}  // namespace

std::vector<CostRow> recurrent_costs() {
  return {{"lstm", forward_cost<lstm>},  {"lstm_backward", backward_cost<lstm, 3>},
          {"gru", forward_cost<gru>},    {"gru_backward", backward_cost<gru, 2>},
          {"rnn", forward_cost<rnn>},    {"rnn_backward", backward_cost<rnn, 2>}};
}

}  // namespace poptorch::device

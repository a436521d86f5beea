// Losses. CTC runs over the time steps one after the other.
#include <algorithm>
#include <cmath>

#include "device/cost/steps.h"

namespace poptorch::device {

namespace {

// Softmax, logarithm and the choice of a class, 9 cycles an element of the vendor's vertex.
Cost cross_entropy_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& x = call.operand(0);
  if (x.numel() == 0) return steps.cost;
  const int64_t item = ir::item_bytes(x.dtype);
  const double vector = 8.0 / static_cast<double>(item);
  const double rows = x.rank() < 2 ? 1 : ops::numel(x) / static_cast<double>(x.sizes[1]);
  const double elements = call.share(x);
  const double own_rows = std::max(1.0, std::ceil(rows / static_cast<double>(call.target.tiles)));
  steps.add_reduction(own_rows, elements / own_rows, item, 2);
  steps.add_elementwise(elements, item, 9 * vector);
  steps.add_reduction(1, call.share(rows, 4), 4);
  return steps.cost;
}

Cost cross_entropy_backward_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& out = call.result();
  const int64_t item = ir::item_bytes(out.dtype);
  steps.add_elementwise(call.share(out), item, 9 * 8.0 / static_cast<double>(item));
  return steps.cost;
}

// An elementwise function of two tensors, and its mean.
Cost difference_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& x = call.operand(0);
  const double elements = call.share(x);
  steps.add_elementwise(elements, ir::item_bytes(x.dtype), 6);
  steps.add_reduction(1, elements, ir::item_bytes(x.dtype));
  return steps.cost;
}

Cost difference_backward_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& out = call.result();
  steps.add_elementwise(call.share(out), ir::item_bytes(out.dtype), 6);
  return steps.cost;
}

// The labels of the lattice are cut over the tiles, and the time steps wait for one another. Cycles
// are fitted to six rows of one benchmark: a step of neighbours needs no set-up of an exchange;
// every class is looked at; several sequences meet in one exchange.
Cost lattice_cost(const Call& call, const ir::Type& log_probs, const ir::Type& targets,
                  bool is_backward) {
  Steps steps(call);
  if (log_probs.numel() == 0) return steps.cost;
  constexpr double class_cycles = 7.5, sequence_cycles = 90, cell_cycles = 120;
  const Target& target = call.target;
  const auto time = static_cast<double>(log_probs.sizes[0]);
  const auto classes = static_cast<double>(log_probs.sizes.back());
  const double batch = log_probs.rank() > 2 ? static_cast<double>(log_probs.sizes[1]) : 1;
  const double labels =
      2 * (targets.rank() == 0 ? 1 : static_cast<double>(targets.sizes.back())) + 1;
  const double own = std::ceil(labels * batch / static_cast<double>(target.tiles) /
                               static_cast<double>(target.workers));
  steps.cost.compute += time * (target.launch_cycles + own * cell_cycles + class_cycles * classes +
                                sequence_cycles * (batch - 1));
  steps.cost.sync += time * target.sync_cycles;
  steps.cost.steps += time;
  steps.add_elementwise(call.share(log_probs), ir::item_bytes(log_probs.dtype), 12);
  steps.cost.has_elements = false;
  if (is_backward) {
    // A label has its own sums of the gradient, for all times and classes, until the end.
    const double own_labels = std::ceil(labels * batch / static_cast<double>(target.tiles));
    steps.use_temporary(4 * own_labels * time * classes);
  }
  return steps.cost;
}

Cost ctc_cost(const Call& call) {
  return lattice_cost(call, call.operand(0), call.operand(1), false);
}

Cost ctc_backward_cost(const Call& call) {
  return lattice_cost(call, call.operand(1), call.operand(2), true);
}

}  // namespace

std::vector<CostRow> loss_costs() {
  return {{"cross_entropy", cross_entropy_cost},
          {"cross_entropy_backward", cross_entropy_backward_cost},
          {"nll_loss", difference_cost},
          {"nll_loss_backward", difference_backward_cost},
          {"mse_loss", difference_cost},
          {"mse_loss_backward", difference_backward_cost},
          {"huber_loss", difference_cost},
          {"huber_loss_backward", difference_backward_cost},
          {"smooth_l1_loss", difference_cost},
          {"smooth_l1_loss_backward", difference_backward_cost},
          {"binary_cross_entropy", difference_cost},
          {"binary_cross_entropy_backward", difference_backward_cost},
          {"ctc_loss", ctc_cost},
          {"ctc_loss_backward", ctc_backward_cost}};
}

}  // namespace poptorch::device

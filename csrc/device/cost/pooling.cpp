// Pooling: each tile computes rows of the result, and gets the rows of the image that they need.
#include <algorithm>
#include <cmath>

#include "device/cost/steps.h"
#include "ops/pooling.h"

namespace poptorch::device {

namespace {

// Rows of the result are cut over the tiles, then channels: in groups of 8 bytes.
void add_windows(Steps& steps, const Call& call, const ops::Pooling& p, int64_t item,
                 double cycles, bool is_backward) {
  const auto tiles = static_cast<double>(call.target.tiles);
  const auto workers = static_cast<double>(call.target.workers);
  const double vector = 8.0 / static_cast<double>(item);
  const double groups = std::ceil(static_cast<double>(p.planes) / vector);
  const auto height = static_cast<double>(is_backward ? p.h.size : p.h.out);
  const auto width = static_cast<double>(is_backward ? p.w.size : p.w.out);
  const double outputs = std::ceil(groups * height * width / tiles);  // vectors of a tile
  const double window = static_cast<double>(p.h.kernel * p.w.kernel) /
                        (is_backward ? static_cast<double>(p.h.stride * p.w.stride) : 1);
  const double rows = std::ceil(outputs / std::max(1.0, width));
  const double worker = 50 + std::ceil(outputs / workers) * window * cycles +
                        std::ceil(rows / workers) * static_cast<double>(p.h.kernel) * 30;
  const double inputs = outputs * static_cast<double>(p.h.stride * p.w.stride) +
                        2 * width * static_cast<double>(p.h.kernel - 1);
  steps.add(worker * workers, inputs * 8 / call.target.exchange_bytes);
  // Channels are brought together, and apart again: the image, the result, and in the backward pass
  // the gradient.
  const double image = static_cast<double>(p.planes) *
                       static_cast<double>(p.h.size * p.w.size);
  steps.add_copy(call.share(image, item), item);
  steps.add_copy(call.share(call.result()), item);
  if (is_backward) steps.add_copy(call.share(call.operand(0)), item);
  steps.use_temporary((inputs + outputs) * 8);
}

template <int cycles>
Cost pool_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& x = call.operand(0);
  if (x.numel() == 0) return steps.cost;
  add_windows(steps, call, ops::pooling(call, x), ir::item_bytes(x.dtype), cycles, false);
  return steps.cost;
}

Cost max_pool_backward_cost(const Call& call) {
  Steps steps(call);
  const ir::Type x = ops::pooled_image(call);
  if (x.numel() == 0) return steps.cost;
  add_windows(steps, call, ops::pooling(call, x), ir::item_bytes(x.dtype), 5, true);
  return steps.cost;
}

Cost avg_pool_backward_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& x = call.operand(1);
  if (x.numel() == 0) return steps.cost;
  add_windows(steps, call, ops::pooling(call, x), ir::item_bytes(x.dtype), 3, true);
  return steps.cost;
}

// Windows that cover the image: as many as there are results.
ops::Pooling covering(const ir::Type& image, const ir::Type& out) {
  const auto last = [](const ir::Type& type, int64_t from_end) {
    return type.sizes[static_cast<size_t>(type.rank() - from_end)];
  };
  ops::Pooling p;
  p.planes = image.numel() / std::max<int64_t>(1, last(image, 1) * last(image, 2));
  const auto axis = [](int64_t size, int64_t results) {
    const int64_t kernel = std::max<int64_t>(1, size / std::max<int64_t>(1, results));
    return ops::WindowAxis{size, results, kernel, kernel};
  };
  p.h = axis(last(image, 2), last(out, 2));
  p.w = axis(last(image, 1), last(out, 1));
  return p;
}

Cost adaptive_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& x = call.operand(0);
  if (x.numel() == 0) return steps.cost;
  add_windows(steps, call, covering(x, call.result()), ir::item_bytes(x.dtype), 3, false);
  return steps.cost;
}

}  // namespace

std::vector<CostRow> pooling_costs() {
  return {{"max_pool2d", pool_cost<3>},
          {"avg_pool2d", pool_cost<3>},
          {"max_pool2d_backward", max_pool_backward_cost},
          {"avg_pool2d_backward", avg_pool_backward_cost},
          {"adaptive_avg_pool2d", adaptive_cost},
          {"adaptive_max_pool2d", adaptive_cost}};
}

}  // namespace poptorch::device

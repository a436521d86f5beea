// Pooling: each tile computes a part of the result, and gets the windows that it needs.
#include <algorithm>
#include <cmath>
#include <vector>

#include "device/cost/steps.h"
#include "ops/families/pooling.h"
#include "support/ceil_div.h"

namespace poptorch::device {

namespace {

// What a tile computes: `groups` of channels, each of 8 bytes, of height x width entries.
struct Part {
  int64_t groups = 1, height = 1, width = 1;
  double window_bytes = 0;  // operands that the tile gets from others
  double cycles = 0;        // to get them and to compute

  double vectors() const { return static_cast<double>(groups * height * width); }
};

// A pass computes results from windows of the image or, backward, the image's gradient from windows
// of the results: `tensors` of them, and of the image itself if `has_image`.
struct WindowPass {
  ops::Pooling pooling;
  double cycles;  // a vector and position of the window
  bool is_backward = false;
  int tensors = 1;
  bool has_image = false;
};

int64_t operands_along(const ops::WindowAxis& axis, int64_t computed, bool is_backward) {
  if (is_backward) return std::min(axis.out, ceil_div(computed + axis.kernel - 1, axis.stride));
  return std::min(axis.size, (computed - 1) * axis.stride + axis.kernel);
}

void price(Part& part, const WindowPass& pass, const Target& target) {
  const ops::Pooling& p = pass.pooling;
  const auto workers = static_cast<double>(target.workers);
  const auto windows = static_cast<double>(
      part.groups * operands_along(p.h, part.height, pass.is_backward) *
      operands_along(p.w, part.width, pass.is_backward));
  part.window_bytes = 8 * (pass.tensors * windows + (pass.has_image ? part.vectors() : 0));
  // An entry of the image is in so many windows; of each result, a window has all positions.
  const double positions =
      static_cast<double>(p.h.kernel * p.w.kernel) /
      (pass.is_backward ? static_cast<double>(p.h.stride * p.w.stride) : 1);
  // For each position of the window a worker runs along each of its rows.
  const auto rows = static_cast<double>(part.groups * part.height);
  const double worker = 50 + std::ceil(part.vectors() / workers) * positions * pass.cycles +
                        std::ceil(rows / workers) * positions * 30;
  part.cycles = worker * workers + part.window_bytes / target.exchange_bytes;
}

// The numbers of parts of `size` whose largest part is smaller than with fewer parts.
std::vector<int64_t> splits_of(int64_t size, int64_t most) {
  std::vector<int64_t> out;
  for (int64_t n = 1; n <= std::min(size, most); ++n) {
    if (n == 1 || ceil_div(size, n) < ceil_div(size, n - 1)) out.push_back(n);
  }
  return out;
}

// Of the partitions of groups, rows and columns over the tiles, the fastest one's largest part.
Part best_part(int64_t groups, const WindowPass& pass, const Target& target) {
  const ops::Pooling& p = pass.pooling;
  const int64_t height = pass.is_backward ? p.h.size : p.h.out;
  const int64_t width = pass.is_backward ? p.w.size : p.w.out;
  const auto columns = splits_of(width, target.tiles);
  const auto rows = splits_of(height, target.tiles);
  Part best;
  for (const int64_t g : splits_of(groups, target.tiles)) {
    for (const int64_t h : rows) {
      for (const int64_t w : columns) {
        if (g * h * w > target.tiles) break;
        Part part{ceil_div(groups, g), ceil_div(height, h), ceil_div(width, w)};
        price(part, pass, target);
        if (best.cycles == 0 || part.cycles < best.cycles) best = part;
      }
    }
  }
  return best;
}

void add_windows(Steps& steps, const Call& call, int64_t item, const WindowPass& pass) {
  const ops::Pooling& p = pass.pooling;
  const Part part = best_part(ceil_div(p.planes * item, int64_t{8}), pass, call.target);
  const double exchange = part.window_bytes / call.target.exchange_bytes;
  steps.add(part.cycles - exchange, exchange);
  // Channels are brought together, and apart again: the image, the result, and in the backward pass
  // the gradient.
  const double image = static_cast<double>(p.planes) *
                       static_cast<double>(p.h.size * p.w.size);
  steps.add_copy(call.share(image, item), item);
  steps.add_copy(call.share(call.result()), item);
  if (pass.is_backward) steps.add_copy(call.share(call.operand(0)), item);
  steps.use_temporary(part.window_bytes + part.vectors() * 8);
}

template <int cycles>
Cost pool_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& x = call.operand(0);
  if (x.numel() == 0) return steps.cost;
  add_windows(steps, call, ir::item_bytes(x.dtype), {ops::pooling(call, x), cycles});
  return steps.cost;
}

Cost max_pool_backward_cost(const Call& call) {
  Steps steps(call);
  const ir::Type x = ops::pooled_image(call);
  if (x.numel() == 0) return steps.cost;
  // The vertex compares the image with the results, and adds their gradients.
  add_windows(steps, call, ir::item_bytes(x.dtype), {ops::pooling(call, x), 5, true, 2, true});
  return steps.cost;
}

Cost avg_pool_backward_cost(const Call& call) {
  Steps steps(call);
  const ir::Type& x = call.operand(1);
  if (x.numel() == 0) return steps.cost;
  add_windows(steps, call, ir::item_bytes(x.dtype), {ops::pooling(call, x), 3, true});
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
  add_windows(steps, call, ir::item_bytes(x.dtype), {covering(x, call.result()), 3});
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

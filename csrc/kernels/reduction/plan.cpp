#include "kernels/reduction/plan.h"

#include "support/ceil_div.h"
#include "support/mutant.h"

#include <algorithm>
#include <cstdlib>

namespace poptorch::kernels {

namespace {

// Expanded dimensions (stride 0) go outside: they are the same memory again.
int64_t order_key(const ReduceDim& dim) { return dim.x == 0 ? INT64_MAX : std::abs(dim.x); }

ir::Dims output_strides(const ir::Type& x, const std::vector<bool>& is_reduced) {
  ir::Dims strides(x.sizes.size(), 0);
  int64_t step = 1;
  for (size_t d = x.sizes.size(); d-- > 0;) {
    if (is_reduced[d]) continue;
    strides[d] = step;
    step *= x.sizes[d];
  }
  return strides;
}

}  // namespace

ReducePlan::ReducePlan(const ir::Type& x, const std::vector<bool>& is_reduced) {
  const ir::Dims strides = x.actual_strides();
  const ir::Dims out_strides = output_strides(x, is_reduced);
  std::vector<ReduceDim> dims;
  for (size_t d = 0; d < x.sizes.size(); ++d) {
    (is_reduced[d] ? count : outputs) *= x.sizes[d];
    if (x.sizes[d] != 1)
      dims.push_back({x.sizes[d], strides[d], is_reduced[d] ? 0 : out_strides[d]});
  }
  std::stable_sort(dims.begin(), dims.end(), [](const ReduceDim& a, const ReduceDim& b) {
    return order_key(a) > order_key(b);
  });
  merge(std::move(dims));
  cut();
}

// A kept dimension has an output stride of at least 1, as long as there is any output.
void ReducePlan::merge(std::vector<ReduceDim> dims) {
  std::vector<ReduceDim> merged;
  for (const ReduceDim& dim : dims) {
    ReduceDim* last = merged.empty() ? nullptr : &merged.back();
    if (last != nullptr && (last->out == 0) == (dim.out == 0) && last->x == dim.x * dim.size &&
        (last->out == dim.out * dim.size || MUTANT(reduction_joins_by_input_alone))) {
      *last = {last->size * dim.size, dim.x, dim.out};
    } else {
      merged.push_back(dim);
    }
  }
  if (merged.empty()) merged.push_back({1, 1, 0});
  inner = merged.back();
  inner_is_reduced = inner.out == 0;
  merged.pop_back();
  for (const ReduceDim& dim : merged) {
    (dim.out == 0 ? reduced : kept).push_back(dim);
    (dim.out == 0 ? outer_reduced : outer_kept) *= dim.size;
  }
}

void ReducePlan::cut() {
  constexpr int64_t enough_units = 32;        // to share between threads
  constexpr int64_t unit_elements = 1 << 15;  // least work of a group
  if (inner_is_reduced) {
    pieces = std::max<int64_t>(1, ceil_div(inner.size, piece));
  } else {
    blocks = std::max<int64_t>(1, ceil_div(inner.size, block));
  }
  const int64_t units = std::max<int64_t>(1, outer_kept * blocks);
  if (units >= enough_units) return;
  const int64_t elements = count * (inner_is_reduced ? 1 : std::min(inner.size, block));
  const int64_t cuts = inner_is_reduced ? outer_reduced * pieces : outer_reduced;
  groups = std::min({enough_units / units, elements / unit_elements, cuts});
  groups = std::max<int64_t>(groups, 1);
}

int64_t ReducePlan::grain() const {
  constexpr int64_t elements = 1 << 14;  // some 5 us
  const int64_t in_unit = count / groups * (inner_is_reduced ? 1 : std::min(inner.size, block));
  return std::max<int64_t>(1, elements / std::max<int64_t>(in_unit, 1));
}

ReducePlan::Offsets ReducePlan::offsets(const std::vector<ReduceDim>& dims, int64_t i) {
  if (dims.size() == 1) return {i * dims[0].x, i * dims[0].out};
  Offsets at{0, 0};
  for (size_t d = dims.size(); d-- > 0;) {
    const int64_t index = i % dims[d].size;
    i /= dims[d].size;
    at.x += index * dims[d].x;
    at.out += index * dims[d].out;
  }
  return at;
}

}  // namespace poptorch::kernels

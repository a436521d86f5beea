// Type of a value: dtype, sizes and memory layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/dtype.h"

namespace poptorch::ir {

using Dims = std::vector<int64_t>;

// Row-major strides, in elements.
Dims contiguous_strides(const Dims& sizes);
// No tensor and no arena is larger: the address space of a process.
constexpr int64_t most_bytes = int64_t{1} << 47;
int64_t product(const Dims& sizes);

// Prints as `f32[8,4]`, with strides (in elements) as `f32[8,4](1,8)`.
struct Type {
  DType dtype = DType::f32;
  Dims sizes;
  Dims strides;  // empty: row-major; never equal to the row-major strides

  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  int64_t numel() const { return product(sizes); }
  // Strides whether they are written down or not.
  Dims actual_strides() const { return strides.empty() ? contiguous_strides(sizes) : strides; }
  // Elements from the first to the last one in memory; 0 for an empty tensor.
  int64_t span() const;
  int64_t bytes() const { return span() * item_bytes(dtype); }
  bool is_contiguous() const { return strides.empty(); }
  // Sets strides; row-major ones are dropped (dimensions of size 1 count as row-major).
  void set_strides(const Dims& new_strides);

  // Whether sizes and strides are such that no arithmetic on them overflows: none is negative, and
  // neither is any of them, nor all together, larger than `most_bytes`.
  bool is_sane() const;

  std::string text() const;
  bool operator==(const Type&) const = default;
};

// Strides of the type as a tensor of the sizes that it is broadcast to: 0 where it is repeated.
Dims broadcast_strides(const Type& type, const Dims& sizes);

}  // namespace poptorch::ir

// Which elements of a tensor a replica has, where each has a part of it
// (csrc/ops/families/collective.cpp).
#pragma once

#include <cstdint>

namespace poptorch::run {

struct Part {
  // Part r of so many.
  Part(int64_t numel, int64_t shards, int64_t r);

  // A part has `length` elements: `count` of the tensor, from `first` on, and repeats of the last
  // one of these. One that lies behind the end repeats the last element of the tensor.
  int64_t length, first, count;

  // From the whole tensor. `bytes`: of an element.
  void write(const void* whole, void* part, int64_t bytes) const;
  // Into the whole tensor.
  void read(const void* part, void* whole, int64_t bytes) const;
  // Writes the repeats.
  void fill(void* part, int64_t bytes) const;
};

}  // namespace poptorch::run

// What max and average pooling share. A padded line of the image is split by the stride into
// phases: then the entries that one tap of the window reads for all columns of the result lie side
// by side.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/pool/loops.h"
#include "ops/families/pooling.h"
#include "support/ceil_div.h"

namespace poptorch::kernels {

using ops::WindowAxis;

// The loops for f32 (with i32 positions) and for any other type.
template <typename T, typename Index>
struct Loops {
  const simd::PoolLoops* simd = &simd::pool_loops();
  static constexpr bool vectorized = std::is_same_v<T, float>;

  void split(const T* line, T* phases, int64_t stride, int64_t n) const {
    if constexpr (vectorized) {
      if (stride == 2) return simd->split(line, phases, phases + n, n);
    }
    for (int64_t p = 0; p < stride; ++p) {
      for (int64_t i = 0; i < n; ++i) phases[p * n + i] = line[i * stride + p];
    }
  }

  void join(const T* phases, T* line, int64_t stride, int64_t n) const {
    if constexpr (vectorized) {
      if (stride == 2) return simd->join(phases, phases + n, line, n);
    }
    for (int64_t p = 0; p < stride; ++p) {
      for (int64_t i = 0; i < n; ++i) line[i * stride + p] = phases[p * n + i];
    }
  }

  void take_larger(const T* x, int64_t n, Index position, Index step, T* best, Index* where) const {
    if constexpr (vectorized && std::is_same_v<Index, int32_t>) {
      return simd->take_larger(x, n, position, step, best, where);
    }
    for (int64_t i = 0; i < n; ++i) {
      if (x[i] > best[i] || x[i] != x[i]) {
        best[i] = x[i];
        where[i] = static_cast<Index>(position + i * step);
      }
    }
  }

  void add(const T* x, int64_t n, T* sums) const {
    if constexpr (vectorized) return simd->add(x, n, sums);
    for (int64_t i = 0; i < n; ++i) sums[i] += x[i];
  }

  void add_taken(const T* x, const Index* where, Index entry, int64_t n, T* sums) const {
    if constexpr (vectorized && std::is_same_v<Index, int32_t>) {
      return simd->add_taken(x, where, entry, n, sums);
    }
    for (int64_t i = 0; i < n; ++i) {
      if (where[i] == entry) sums[i] += x[i];
    }
  }
};

// The buffers for one line: padded, and in phases (the same when the stride is 1).
struct Line {
  int64_t stride, padding;
  int64_t columns;  // of the result, rounded up so that loops have no tail
  int64_t length;   // of one phase
  int64_t copied;   // entries of the image that fit

  explicit Line(const WindowAxis& w)
      : stride(w.stride), padding(w.padding), columns((w.out + 15) / 16 * 16) {
    const int64_t reach = (columns - 1) * w.stride + (w.kernel - 1) * w.dilation + 1;
    length = ceil_div(std::max(reach, padding), stride);
    copied = std::clamp<int64_t>(length * stride - padding, 0, w.size);
  }

  int64_t padded() const { return length * stride; }
  int64_t elements() const { return (phases() + padded() + 15) / 16 * 16; }
  // Where the phases start, behind the padded line.
  int64_t phases() const { return stride == 1 ? 0 : padded(); }
  // What tap `offset` of the first window reads, in the phases.
  int64_t tap(int64_t offset) const { return offset % stride * length + offset / stride; }
};

// The taps of the window along one axis that lie inside the image for entry `at`: [begin, end).
struct Span {
  int64_t begin, end, first;  // `first`: the image position of tap 0, maybe negative
};

inline Span taps_of(const WindowAxis& axis, int64_t at) {
  const auto places_before = [&](int64_t n) {
    return std::clamp<int64_t>(n > 0 ? ceil_div(n, axis.dilation) : 0, 0, axis.kernel);
  };
  const int64_t first = at * axis.stride - axis.padding;
  const int64_t begin = places_before(-first);
  return {begin, std::max(begin, places_before(axis.size - first)), first};
}

}  // namespace poptorch::kernels

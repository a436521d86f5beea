// Pieces that kernels with indices share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/move/copy.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"
#include "support/error.h"
#include "support/parallel.h"

namespace poptorch::kernels {

constexpr int64_t index_grain = 1 << 14;  // elements worth some 5 us

inline int64_t grain_for(int64_t elements_each) {
  return std::max<int64_t>(1, index_grain / std::max<int64_t>(1, elements_each));
}

// The entries of an index tensor, whatever their type: for kernels that are written for many types
// of elements. Those written for few take the type of indices as a template's parameter.
class Indices {
 public:
  static constexpr int64_t block = 256;  // entries to convert at a time

  // `dtype`: i32 or i64.
  Indices(const void* data, ir::DType dtype) : data_(data), is_wide_(dtype == ir::DType::i64) {}

  int64_t operator[](int64_t i) const {
    return is_wide_ ? static_cast<const int64_t*>(data_)[i] : static_cast<const int32_t*>(data_)[i];
  }

  // The n entries from `at` on; `buffer` of n is where they are converted.
  const int64_t* read(int64_t at, int64_t n, int64_t* buffer) const {
    if (is_wide_) return static_cast<const int64_t*>(data_) + at;
    std::copy_n(static_cast<const int32_t*>(data_) + at, n, buffer);
    return buffer;
  }

 private:
  const void* data_;
  bool is_wide_;
};

// Records the first index out of range; threads cannot throw, so the check comes after the loop.
class IndexGuard {
 public:
  // Whether `index` is in [0, size); else entry `at` is recorded.
  bool allows(int64_t index, int64_t size, int64_t at) {
    if (index >= 0 && index < size) return true;
    int64_t first = first_.load(std::memory_order_relaxed);
    while (at < first && !first_.compare_exchange_weak(first, at)) {}
    return false;
  }

  // Whether all n of them are, the first one being entry `at`.
  template <typename Index>
  bool allows_all(const Index* indices, int64_t n, int64_t size, int64_t at) {
    bool refused = false;
    for (int64_t i = 0; i < n; ++i) refused |= indices[i] < 0 || indices[i] >= size;
    for (int64_t i = 0; refused && i < n; ++i) allows(indices[i], size, at + i);
    return !refused;
  }

  // The first entry that was refused, whatever thread saw it.
  std::optional<int64_t> first() const {
    const int64_t at = first_.load();
    return at == INT64_MAX ? std::nullopt : std::optional(at);
  }

  // Throws when there was one. `low`: the smallest index that the op allows.
  void check(std::string_view op, const auto& indices, int64_t low, int64_t size,
             int64_t dim) const {
    const auto at = first();
    if (!at) return;
    throw_user_error(concat("[", op, "] index ", indices[*at], " (entry ", *at,
                            " of the index) is out of range: dimension ", dim, " has ", size,
                            " entries, so ", low, " to ", size - 1,
                            " are allowed. Check where the indices come from."));
  }

 private:
  std::atomic<int64_t> first_{INT64_MAX};
};

// The outer dimensions of a walk through two tensors, outermost first, with their strides in both.
struct OuterDims {
  struct Dim {
    int64_t size, self, other;
  };
  std::vector<Dim> dims;

  // Where each of the lines begins.
  struct Start {
    int64_t self, other;
  };
  Start start(int64_t line) const {
    Start at{0, 0};
    for (size_t d = dims.size(); d-- > 0;) {
      const int64_t i = line % dims[d].size;
      line /= dims[d].size;
      at.self += i * dims[d].self;
      at.other += i * dims[d].other;
    }
    return at;
  }
};

// Checks all n indices against [low, size) at once.
template <typename Index>
void check_indices(std::string_view op, const Index* indices, int64_t n, int64_t low, int64_t size,
                   int64_t dim) {
  Index smallest = 0, largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    smallest = std::min(smallest, indices[i]);
    largest = std::max(largest, indices[i]);
  }
  if (n == 0 || (smallest >= low && largest < size)) return;
  IndexGuard guard;
  for (int64_t i = 0; i < n; ++i) guard.allows(indices[i] - low, size - low, i);
  guard.check(op, indices, low, size, dim);
}

// A result that starts as operand 0, whose memory it may have been given.
inline void copy_unless_same(const ops::Args& args, int64_t bytes) {
  if (args.inputs[0] != args.outputs[0]) {
    copy_bytes(args.outputs[0], args.inputs[0], bytes, args.threads);
  }
}

inline void copy_row(std::byte* to, const std::byte* from, int64_t bytes) {
  switch (bytes) {  // a constant size becomes one load and one store
    case 4: std::memcpy(to, from, 4); break;
    case 8: std::memcpy(to, from, 8); break;
    default: std::memcpy(to, from, static_cast<size_t>(bytes)); break;
  }
}

// out[o][i] = x[o][indices[i]] for `outer` blocks of n rows; a block of x has `size` rows. Indices
// have been checked.
template <typename Index>
void take_rows(std::byte* out, const std::byte* x, const Index* indices, int64_t outer, int64_t n,
               int64_t size, int64_t row_bytes, int threads) {
  parallel_for(threads, outer * n, grain_for(row_bytes / 4), [=](int64_t begin, int64_t end) {
    int64_t block = n == 0 ? 0 : begin / n, i = n == 0 ? 0 : begin % n;
    for (int64_t row = begin; row < end; ++row) {
      copy_row(out + row * row_bytes, x + (block * size + indices[i]) * row_bytes, row_bytes);
      if (++i == n) i = 0, ++block;
    }
  });
}

// out[indices[i]] += scale * source[i] for rows of `width`, rows in their order. Threads take
// columns when rows are wide, else rows of `out`: either way each sum is made by one thread in one
// order. Negative indices are skipped.
template <typename T>
void add_rows(T* out, int64_t out_rows, const T* source, const int64_t* indices, int64_t n,
              int64_t width, T scale, int threads) {
  constexpr int64_t column_grain = 64;
  const auto add = [=](int64_t i, int64_t begin, int64_t end) {
    T* to = out + indices[i] * width;
    const T* from = source + i * width;
    if (scale == T{1}) {
      for (int64_t c = begin; c < end; ++c) to[c] += from[c];
    } else {
      for (int64_t c = begin; c < end; ++c) to[c] += scale * from[c];
    }
  };
  if (width >= threads * column_grain) {
    const int64_t grain = round_up(grain_for(n), column_grain);
    parallel_for(threads, width, grain, [=](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < n; ++i) {
        if (indices[i] >= 0) add(i, begin, end);
      }
    });
    return;
  }
  const int64_t grain =
      std::max<int64_t>(1, out_rows / std::max<int64_t>(1, n * width / index_grain));
  parallel_for(threads, out_rows, grain, [=](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < n; ++i) {
      if (indices[i] >= begin && indices[i] < end) add(i, 0, width);
    }
  });
}

}  // namespace poptorch::kernels

// embedding and its gradient.
#include "kernels/float16_blocks.h"
#include "kernels/index/rows.h"
#include "kernels/move/copy.h"
#include "kernels/reduction/types.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"
#include "support/memory/align.h"
#include "support/mutant.h"
#include "support/settings/switches.h"

namespace poptorch::kernels {

namespace {

Prepared embedding(const Call& call) {
  const int64_t entries = call.in(0).sizes[0], n = call.in(1).numel();
  const int64_t row_bytes = call.in(0).sizes[1] * ir::item_bytes(call.in(0).dtype);
  return with_index_type(call, call.in(1).dtype, [&]<typename Index>(Index) -> Prepared {
    return {[=](const Args& args) {
      const Index* indices = args.in<Index>(1);
      check_indices("embedding", indices, n, 0, entries, 0);
      take_rows(args.out<std::byte>(), args.in<std::byte>(0), indices, 1, n, entries, row_bytes,
                args.threads);
    }};
  });
}

// Divides each row by how often its index occurs.
template <typename T>
void scale_by_count(T* out, const int64_t* indices, int64_t n, int64_t width, int32_t* counts,
                    int64_t entries) {
  std::fill_n(counts, entries, 0);
  for (int64_t i = 0; i < n; ++i) {
    if (indices[i] >= 0) ++counts[indices[i]];
  }
  for (int64_t row = 0; row < entries; ++row) {
    for (int64_t c = 0; counts[row] > 1 && c < width; ++c) {
      out[row * width + c] /= static_cast<T>(counts[row]);
    }
  }
}

// What the gradient starts as: the sum that rows are added to, or zeros.
void start_table(const Args& args, int64_t bytes) {
  const void* sum = args.inputs[2];
  if (sum == nullptr) return fill_zero(args.outputs[0], bytes, args.threads);
  if (sum != args.outputs[0]) copy_bytes(args.outputs[0], sum, bytes, args.threads);
}

Prepared embedding_backward(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const int64_t entries = call.out().sizes[0], width = call.out().sizes[1];
    const int64_t n = call.in(1).numel(), padding = call.attrs().get_int(ir::attr::padding_idx);
    const bool by_count = call.attrs().get_bool(ir::attr::scale_grad_by_freq);
    const int64_t index_bytes = align_up(n * static_cast<int64_t>(sizeof(int64_t)));
    const auto run = [=, dtype = call.in(1).dtype](const Args& args) {
      const Indices given(args.inputs[1], dtype);
      auto* indices = reinterpret_cast<int64_t*>(args.scratch);
      for (int64_t i = 0; i < n; ++i) indices[i] = given[i];
      check_indices("embedding_backward", indices, n, 0, entries, 0);
      for (int64_t i = 0; i < n; ++i) {
        if (indices[i] == padding && !MUTANT(padding_row_gets_gradient)) indices[i] = -1;
      }
      T* out = args.out<T>();
      start_table(args, entries * width * static_cast<int64_t>(sizeof(T)));
      add_rows(out, entries, args.in<T>(0), indices, n, width, T{1}, args.threads);
      if (by_count) {
        auto* counts = reinterpret_cast<int32_t*>(args.scratch + index_bytes);
        scale_by_count(out, indices, n, width, counts, entries);
      }
    };
    return {run, static_cast<size_t>(index_bytes + (by_count ? entries * 4 : 0))};
  });
}

// 16-bit floats: only rows that are looked up are upcast. A row is summed in f32, in the order of
// the indices, and rounded once.
template <typename Index>
struct HalfRows {
  int64_t entries, width, n, padding;
  bool by_count;
  Upcast upcast;
  Downcast downcast;

  explicit HalfRows(const Call& call)
      : entries(call.out().sizes[0]),
        width(call.out().sizes[1]),
        n(call.in(1).numel()),
        padding(call.attrs().get_int(ir::attr::padding_idx)),
        by_count(call.attrs().get_bool(ir::attr::scale_grad_by_freq)),
        upcast(upcast_from(call.out().dtype)),
        downcast(downcast_to(call.out().dtype)) {}

  // Positions of indices that count, those of one row side by side; gives how many.
  int64_t sort(const Index* indices, int64_t* order) const {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (indices[i] != padding) order[count++] = i;
    }
    std::sort(order, order + count, [=](int64_t a, int64_t b) {
      return indices[a] != indices[b] ? indices[a] < indices[b] : a < b;
    });
    return count;
  }

  // Columns [begin, end) of a row, from what lies at `positions`.
  void add(const uint16_t* grad, const int64_t* positions, int64_t count, int64_t begin,
           int64_t end, uint16_t* row) const {
    constexpr int64_t block = 256;
    float sums[block], wide[block];
    for (int64_t first = begin; first < end; first += block) {
      const int64_t columns = std::min(block, end - first);
      upcast(row + first, sums, columns);
      for (int64_t i = 0; i < count; ++i) {
        upcast(grad + positions[i] * width + first, wide, columns);
        for (int64_t c = 0; c < columns; ++c) sums[c] += wide[c];
      }
      for (int64_t c = 0; by_count && c < columns; ++c) sums[c] /= static_cast<float>(count);
      downcast(sums, row + first, columns);
    }
  }

  // Threads take columns when rows are wide, else rows.
  void operator()(const Args& args) const {
    const Index* indices = args.in<Index>(1);
    check_indices("embedding_backward", indices, n, 0, entries, 0);
    auto* order = reinterpret_cast<int64_t*>(args.scratch);
    start_table(args, entries * width * 2);
    const int64_t count = sort(indices, order);
    constexpr int64_t column_grain = 64;
    const bool by_columns = width >= args.threads * column_grain;
    const auto each_row = [&](int64_t from, int64_t to, int64_t begin, int64_t end) {
      const auto continues = [&](int64_t i) {
        return i > 0 && i < count && indices[order[i]] == indices[order[i - 1]];
      };
      while (continues(from)) ++from;
      for (int64_t last = from; from < to; from = last) {
        do ++last; while (continues(last));
        add(args.in<uint16_t>(0), order + from, last - from, begin, end,
            args.out<uint16_t>() + indices[order[from]] * width);
      }
    };
    const int64_t grain = grain_for(by_columns ? count : width);
    const int64_t columns = round_up(grain, column_grain);
    parallel_for(args.threads, by_columns ? width : count, by_columns ? columns : grain,
                 [&](int64_t begin, int64_t end) {
                   if (by_columns) return each_row(0, count, begin, end);
                   each_row(begin, end, 0, width);
                 });
  }
};

Prepared half_embedding_backward(const Call& call) {
  if (!is_on("blocked_upcast")) return {};
  return with_index_type(call, call.in(1).dtype, [&]<typename Index>(Index) -> Prepared {
    const HalfRows<Index> rows(call);
    return {rows, static_cast<size_t>(rows.n) * sizeof(int64_t)};
  });
}

KERNEL("embedding", embedding, true)
KERNEL("embedding_backward", embedding_backward)
HALF_KERNEL("embedding_backward", half_embedding_backward)

}  // namespace

}  // namespace poptorch::kernels

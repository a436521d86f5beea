// embedding and its gradient.
#include "kernels/indexing_rows.h"
#include "kernels/reduction_types.h"
#include "kernels/shape_copy.h"
#include "ops/kernel.h"
#include "support/align.h"

namespace poptorch::kernels {

namespace {

using ops::Args;
using ops::Call;
using ops::Prepared;

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
template <typename T, typename Index>
void scale_by_count(T* out, const Index* indices, int64_t n, int64_t width, int32_t* counts,
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

template <typename T, typename Index>
Prepared backward_typed(const Call& call) {
  const int64_t entries = call.out().sizes[0], width = call.out().sizes[1];
  const int64_t n = call.in(1).numel(), padding = call.attrs().get_int("padding_idx");
  const bool by_count = call.attrs().get_bool("scale_grad_by_freq");
  const int64_t index_bytes = align_up(n * static_cast<int64_t>(sizeof(Index)));
  const auto run = [=](const Args& args) {
    const Index* given = args.in<Index>(1);
    check_indices("embedding_backward", given, n, 0, entries, 0);
    auto* indices = reinterpret_cast<Index*>(args.scratch);
    for (int64_t i = 0; i < n; ++i) indices[i] = given[i] == padding ? Index{-1} : given[i];
    T* out = args.out<T>();
    const int64_t bytes = entries * width * static_cast<int64_t>(sizeof(T));
    const void* sum = args.inputs[2];
    if (sum == nullptr) {
      fill_zero(out, bytes, args.threads);
    } else if (sum != out) {
      copy_bytes(out, sum, bytes, args.threads);
    }
    add_rows(out, entries, args.in<T>(0), indices, n, width, T{1}, args.threads);
    if (by_count) {
      auto* counts = reinterpret_cast<int32_t*>(args.scratch + index_bytes);
      scale_by_count(out, indices, n, width, counts, entries);
    }
  };
  return {run, static_cast<size_t>(index_bytes + (by_count ? entries * 4 : 0))};
}

Prepared embedding_backward(const Call& call) {
  return with_index_type(call, call.in(1).dtype, [&]<typename Index>(Index) {
    return with_float_type(call, call.in(0).dtype,
                           [&]<typename T>(T) { return backward_typed<T, Index>(call); });
  });
}

KERNEL("embedding", embedding, true)
KERNEL("embedding_backward", embedding_backward)

}  // namespace

}  // namespace poptorch::kernels

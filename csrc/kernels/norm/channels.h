// How the kernels of batch norm walk over [batch, channels, ...].
#pragma once

#include <algorithm>

#include "ir/type.h"
#include "kernels/rows/batch_norm.h"
#include "support/ceil_div.h"
#include "support/parallel.h"

namespace poptorch::kernels {

// A tensor as [batch, channels, inner], cut into chunks along the batch. The chunks depend on the
// sizes only, and what they give is joined in their order: results do not depend on threads.
struct Channels {
  int64_t batch, channels, inner;
  int64_t rows_per_chunk;  // entries of the batch in a chunk
  int64_t chunks;

  // With channels last every pixel counts as an entry of the batch.
  Channels(const ir::Type& x, bool channels_last) {
    channels = channels_last ? x.sizes.back() : x.sizes[1];
    inner = channels_last ? 1 : ir::product({x.sizes.begin() + 2, x.sizes.end()});
    batch = channels * inner == 0 ? 0 : x.numel() / (channels * inner);
    rows_per_chunk = inner > 1 ? 1 : 512;
    chunks = inner == 0 ? 0 : ceil_div(batch, rows_per_chunk);
  }

  int64_t per_channel() const { return batch * inner; }
  bool is_planar() const { return inner > 1; }

  // Calls fn(channel) for each one: joins what the chunks gave.
  void for_each_channel(int threads, const auto& fn) const {
    const int64_t grain = std::max<int64_t>(1024 / std::max<int64_t>(chunks, 1), 1);
    parallel_for(threads, channels, grain, [&](int64_t i) { fn(i); });
  }

  // Calls plane(offset, chunk, channel) for each run of `inner` entries of one channel when planar,
  // else block(offset, Columns, chunk, first channel) for some channels of some entries of the
  // batch.
  void for_each(int threads, const auto& plane, const auto& block) const {
    constexpr int64_t grain_elements = 8192, block_columns = most_columns;
    if (chunks * channels == 0) return;
    if (is_planar()) {
      const int64_t grain = std::max<int64_t>(grain_elements / inner, 1);
      return parallel_for(threads, batch * channels, grain, [&](int64_t i) {
        plane(i * inner, i / channels, i % channels);
      });
    }
    const int64_t blocks = ceil_div(channels, block_columns);
    const int64_t unit = std::min(batch, rows_per_chunk) * std::min(channels, block_columns);
    const int64_t grain = std::max<int64_t>(grain_elements / unit, 1);
    parallel_for(threads, chunks * blocks, grain, [&](int64_t i) {
      const int64_t chunk = i / blocks, first = i % blocks * block_columns;
      const int64_t row = chunk * rows_per_chunk;
      block(row * channels + first,
            Columns{std::min(rows_per_chunk, batch - row), channels,
                    std::min(block_columns, channels - first)},
            chunk, first);
    });
  }
};

}  // namespace poptorch::kernels

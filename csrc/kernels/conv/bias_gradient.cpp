#include "kernels/conv/bias_gradient.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "kernels/float16_blocks.h"
#include "kernels/loop.h"
#include "kernels/reduction/loops.h"
#include "ops/layout.h"
#include "support/align.h"
#include "support/ceil_div.h"
#include "support/mutant.h"
#include "support/parallel.h"

namespace poptorch::kernels {
namespace {

// What numbers of type T are summed in; 16-bit floats are uint16_t.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

float sum(const float* x, int64_t n) { return simd::reduce_loops().f32.sum(x, n); }

double sum(const double* x, int64_t n) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += x[i];
  return total;
}

// The type's elements, those of one channel after those of the other.
Loop by_channel(const ir::Type& type) {
  const auto channel_first = [](ir::Dims dims) {
    std::swap(dims[0], dims[1]);
    return dims;
  };
  ir::Type seen{type.dtype, channel_first(type.sizes), {}};
  seen.set_strides(channel_first(type.actual_strides()));
  return Loop({type.dtype, seen.sizes, {}}, {&seen});
}

struct ChannelSums {
  ir::DType dtype;
  // Row-major pixels lie side by side; channels-last ones count as images of one pixel.
  int64_t images, channels, pixels;
  // Channel by channel; of a type that lies neither row-major nor channels-last.
  std::optional<Loop> strided;

  explicit ChannelSums(const ir::Type& type) : dtype(type.dtype), channels(type.sizes[1]) {
    const int64_t all = type.numel() / std::max<int64_t>(1, channels);
    const bool is_row_major = type.is_contiguous() || MUTANT(bias_gradient_is_row_major);
    pixels = is_row_major ? all / std::max<int64_t>(1, type.sizes[0]) : 1;
    images = all / std::max<int64_t>(1, pixels);
    if (!type.is_contiguous() && !ops::lies_channels_last(type)) strided = by_channel(type);
  }

  bool is_last() const { return !strided && pixels == 1; }
  // Parts of channels-last pixels that are summed by themselves.
  int64_t layers() const {
    constexpr int64_t most = 16, least_rows = 512;
    return is_last() ? std::clamp<int64_t>(images / least_rows, 1, most) : 1;
  }
};

// Numbers as they are summed: as they lie, or upcast into `copy`.
template <typename T>
const Wide<T>* widened(const ChannelSums& s, const T* x, int64_t n, Wide<T>* copy) {
  if constexpr (std::is_same_v<T, uint16_t>) {
    upcast_from(s.dtype)(x, copy, n);
    return copy;
  } else {
    return x;
  }
}

// Of one channel, whose pixels lie side by side or anywhere.
template <typename T>
double sum_channel(const ChannelSums& s, const T* x, int64_t channel) {
  constexpr int64_t block = 256;
  T copy[block];
  Wide<T> wide[block];
  double total = 0;
  const auto add_run = [&](const T* from, int64_t n) {
    const int64_t step = std::is_same_v<T, uint16_t> ? block : n;
    for (int64_t i = 0; i < n; i += step) {
      const int64_t count = std::min(step, n - i);
      total += sum(widened(s, from + i, count, wide), count);
    }
  };
  if (!s.strided) {
    for (int64_t i = 0; i < s.images; ++i) {
      add_run(x + (i * s.channels + channel) * s.pixels, s.pixels);
    }
    return total;
  }
  const int64_t n = s.images * s.pixels;
  for (int64_t i = 0; i < n; i += block) {
    const int64_t count = std::min(block, n - i);
    const Loop::Elements from = s.strided->read(0, x, channel * n + i, count, copy);
    const auto* first = static_cast<const T*>(from.first);
    if (from.step != 0) {
      add_run(first, count);
    } else {
      total += static_cast<double>(count) * *widened(s, first, 1, wide);
    }
  }
  return total;
}

// Rows [first, end) of channels-last pixels, all channels, added to `totals`.
template <typename T>
void sum_rows(const ChannelSums& s, const T* x, int64_t first, int64_t end, double* totals) {
  constexpr int64_t block = 64;  // channels that are summed side by side
  constexpr int64_t rows = 128;  // that are summed in T
  Wide<T> wide[block];
  std::fill_n(totals, s.channels, 0.0);
  for (int64_t row = first; row < end; row += rows) {
    for (int64_t channel = 0; channel < s.channels; channel += block) {
      const int64_t count = std::min(block, s.channels - channel);
      Wide<T> sums[block] = {};
      for (int64_t i = row; i < std::min(end, row + rows); ++i) {
        const Wide<T>* values = widened(s, x + i * s.channels + channel, count, wide);
        for (int64_t c = 0; c < count; ++c) sums[c] += values[c];
      }
      for (int64_t c = 0; c < count; ++c) totals[channel + c] += sums[c];
    }
  }
}

template <typename T>
void write(const ChannelSums& s, double total, T* out) {
  const auto value = static_cast<Wide<T>>(total);
  if constexpr (std::is_same_v<T, uint16_t>) {
    downcast_to(s.dtype)(&value, out, 1);
  } else {
    *out = value;
  }
}

// Sums of so many numbers that are worth a thread.
int64_t grain_of(int64_t numbers) {
  constexpr int64_t enough = 1 << 14;
  return std::max<int64_t>(1, enough / std::max<int64_t>(1, numbers));
}

template <typename T>
Prepared prepare(const Call& call) {
  const ChannelSums sums(call.in(0));
  const int64_t layers = sums.layers();
  const auto run = [=](const Args& args) {
    const T* x = args.in<T>(0);
    T* db = args.out<T>(2);
    if (!sums.is_last()) {
      return parallel_for(args.threads, sums.channels, grain_of(sums.images * sums.pixels),
                          [&](int64_t c) { write(sums, sum_channel(sums, x, c), db + c); });
    }
    auto* totals = reinterpret_cast<double*>(args.scratch);
    const int64_t of_layer = ceil_div(sums.images, layers) * sums.channels;
    parallel_for(args.threads, layers, grain_of(of_layer), [&](int64_t i) {
      sum_rows(sums, x, sums.images * i / layers, sums.images * (i + 1) / layers,
               totals + i * sums.channels);
    });
    for (int64_t c = 0; c < sums.channels; ++c) {
      double total = 0;
      for (int64_t i = 0; i < layers; ++i) total += totals[i * sums.channels + c];
      write(sums, total, db + c);
    }
  };
  return {run, align_up(static_cast<size_t>(layers * sums.channels) * sizeof(double))};
}

}  // namespace

Prepared bias_gradient(const Call& call) {
  const ir::DType dtype = call.in(0).dtype;
  if (dtype == ir::DType::f64) return prepare<double>(call);
  return ir::is_half(dtype) ? prepare<uint16_t>(call) : prepare<float>(call);
}

}  // namespace poptorch::kernels

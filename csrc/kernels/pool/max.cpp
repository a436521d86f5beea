// max_pool2d and its gradient: row-major images line by line, channels-last ones pixel by pixel.
#include <limits>
#include <vector>

#include "kernels/pool/lines.h"
#include "kernels/reduction/types.h"
#include "kernels/slots.h"
#include "ops/kernel.h"
#include "ops/layout.h"
#include "support/ceil_div.h"
#include "support/mutant.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ops::Pooling;

// How positions are stored: as numbers of the plane, or as bytes that count within the window.
auto with_position_type(const Call& call, ir::DType dtype, const auto& fn) {
  if (dtype == ir::DType::u8) return fn(uint8_t{});
  return with_index_type(call, dtype, fn);
}

template <typename Index>
constexpr bool in_window = std::is_same_v<Index, uint8_t>;

// The type that positions are found in.
template <typename Index>
using Found = std::conditional_t<in_window<Index>, int32_t, Index>;

// The position of tap (k, l) of a window, whose first taps are at `row` and `column`.
template <typename Index>
Found<Index> position(const Pooling& p, int64_t row, int64_t column, int64_t k, int64_t l) {
  if constexpr (in_window<Index>) {  // one of -inf in the padding has its last tap
    return static_cast<int32_t>(std::min(k, p.h.kernel - 1) * p.w.kernel +
                                std::min(l, p.w.kernel - 1));
  }
  return static_cast<Found<Index>>((row + k * p.h.dilation) * p.w.size + column +
                                   l * p.w.dilation);
}

// Unless `to` is nullptr.
template <typename From, typename To>
void store_positions(const From* from, int64_t n, To* to) {
  if (to == nullptr) return;
  std::transform(from, from + n, to, [](From at) { return static_cast<To>(at); });
}

// Where the positions from `offset` on are stored: nullptr when they are not kept.
template <typename Index>
Index* positions_at(const Args& args, bool keeps, int64_t offset) {
  return keeps ? args.out<Index>(1) + offset : nullptr;
}

bool keeps_positions(const Call& call) { return call.attrs().get_bool(ir::attr::keep); }

constexpr int64_t grain_elements = 16384;

template <typename T, typename Index>
struct MaxPool {
  Pooling pool;
  Line line;
  std::vector<Span> columns;
  Loops<T, Found<Index>> loops;

  explicit MaxPool(const Pooling& pooling) : pool(pooling), line(pooling.w) {
    for (int64_t j = 0; j < pool.w.out; ++j) columns.push_back(taps_of(pool.w, j));
  }

  int64_t scratch_bytes() const {
    return (line.elements() + line.columns) * static_cast<int64_t>(sizeof(T)) +
           line.columns * static_cast<int64_t>(sizeof(Found<Index>));
  }

  // Row `row` of the result, from the plane of the image.
  void run(const T* plane, int64_t row, T* buffer, T* out, Index* positions) const {
    T* best = buffer + line.elements();
    auto* where = reinterpret_cast<Found<Index>*>(best + line.columns);
    const WindowAxis& w = pool.w;
    const Span taps = taps_of(pool.h, row);
    std::fill_n(best, line.columns, -std::numeric_limits<T>::infinity());
    for (int64_t j = 0; j < w.out; ++j) {
      const Span& column = columns[static_cast<size_t>(j)];
      where[j] = position<Index>(pool, taps.first, column.first, taps.begin, column.begin);
    }
    for (int64_t k = taps.begin; k < taps.end; ++k) {
      std::copy_n(plane + (taps.first + k * pool.h.dilation) * w.size, line.copied,
                  buffer + line.padding);
      T* phases = buffer + line.phases();
      if (line.stride > 1) loops.split(buffer, phases, line.stride, line.length);
      for (int64_t l = 0; l < w.kernel; ++l) {
        loops.take_larger(phases + line.tap(l * w.dilation), line.columns,
                          position<Index>(pool, taps.first, -line.padding, k, l),
                          static_cast<Found<Index>>(in_window<Index> ? 0 : line.stride), best,
                          where);
      }
    }
    std::copy_n(best, w.out, out);
    store_positions(where, w.out, positions);
  }
};

template <typename T, typename Index>
Prepared max_pool_typed(const Call& call) {
  const MaxPool<T, Index> row(ops::pooling({call.op}, call.in(0)));
  const Pooling& pool = row.pool;
  const Slots slots(call.threads, pool.planes * pool.h.out,
                    pool.w.out * pool.h.kernel * pool.w.kernel, row.scratch_bytes());
  return slots.prepared([row, keeps = keeps_positions(call)](const Args& args, const Slot& slot) {
    const Pooling& pool = row.pool;
    auto* buffer = reinterpret_cast<T*>(slot.scratch);
    constexpr T lowest = -std::numeric_limits<T>::infinity();
    std::fill_n(buffer, row.line.padded(), MUTANT(max_pool_pads_with_zero) ? T{0} : lowest);
    for (int64_t i = slot.begin; i < slot.end; ++i) {
      const T* plane = args.in<T>(0) + i / pool.h.out * pool.h.size * pool.w.size;
      row.run(plane, i % pool.h.out, buffer, args.out<T>(0) + i * pool.w.out,
              positions_at<Index>(args, keeps, i * pool.w.out));
    }
  });
}

// Where the taps of a window lie, from its first one; by the byte that stands for each.
struct Taps {
  std::vector<int64_t> rows, columns;

  explicit Taps(const Pooling& p) {
    for (int64_t k = 0; k < p.h.kernel; ++k) {
      for (int64_t l = 0; l < p.w.kernel; ++l) {
        rows.push_back(k * p.h.dilation);
        columns.push_back(l * p.w.dilation);
      }
    }
  }
};

template <typename T, typename Index>
struct MaxPoolGradient {
  Pooling pool;
  Taps taps;

  explicit MaxPoolGradient(const Pooling& pooling) : pool(pooling), taps(pooling) {}

  void run(const T* grad, const Index* where, T* result) const {
    std::fill_n(result, pool.h.size * pool.w.size, T{0});
    for (int64_t i = 0; i < pool.h.out; ++i) {
      for (int64_t j = 0; j < pool.w.out; ++j) {
        const int64_t at = i * pool.w.out + j, to = target(i, j, where[at]);
        if (to >= 0) result[to] += grad[at];
      }
    }
  }

  // -1: the window holds nothing but padding.
  int64_t target(int64_t i, int64_t j, Index where) const {
    if constexpr (in_window<Index>) {
      const int64_t y = i * pool.h.stride - pool.h.padding + taps.rows[where];
      const int64_t x = j * pool.w.stride - pool.w.padding + taps.columns[where];
      const bool is_inside = y >= 0 && y < pool.h.size && x >= 0 && x < pool.w.size;
      return is_inside ? y * pool.w.size + x : -1;
    }
    const auto at = static_cast<int64_t>(where);
    return at < pool.h.size * pool.w.size ? at : -1;
  }
};

template <typename T, typename Index>
Prepared max_pool_backward_typed(const Call& call) {
  const MaxPoolGradient<T, Index> gradient(ops::pooling({call.op}, ops::pooled_image({call.op})));
  const auto run = [gradient](const Args& args) {
    const Pooling& pool = gradient.pool;
    const int64_t in = pool.h.size * pool.w.size, out = pool.h.out * pool.w.out;
    const int64_t grain = std::max<int64_t>(1, grain_elements / (in + out));
    parallel_for(args.threads, pool.planes, grain, [&](int64_t plane) {
      gradient.run(args.in<T>(0) + plane * out, args.in<Index>(2) + plane * out,
                   args.out<T>() + plane * in);
    });
  };
  return {run};
}

// Channels last: some channels of a pixel at a time.
constexpr int64_t block_channels = 64;
constexpr int64_t most_taps = 64;  // of a window whose result stays in registers

template <typename T, typename Index>
struct MaxPoolLast {
  Pooling pool;
  int64_t channels, images;
  std::vector<Span> rows, columns;
  Loops<T, Found<Index>> loops;

  // `first` is the op in the other layout.
  MaxPoolLast(const ir::Op& first, const ir::Type& image)
      : pool(ops::pooling({first}, image)), channels(image.sizes[1]), images(image.sizes[0]) {
    for (int64_t i = 0; i < pool.h.out; ++i) rows.push_back(taps_of(pool.h, i));
    for (int64_t j = 0; j < pool.w.out; ++j) columns.push_back(taps_of(pool.w, j));
  }

  int64_t blocks() const { return ceil_div(channels, block_channels); }
  int64_t block_size(int64_t first) const { return std::min(block_channels, channels - first); }
  int64_t in_size() const { return pool.h.size * pool.w.size * channels; }
  int64_t out_size() const { return pool.h.out * pool.w.out * channels; }

  // fn(offset of the pixel in the image, position) for each pixel under the window at (i, j).
  void for_each_tap(int64_t i, int64_t j, const auto& fn) const {
    const Span &row = rows[static_cast<size_t>(i)], &column = columns[static_cast<size_t>(j)];
    for (int64_t k = row.begin; k < row.end; ++k) {
      for (int64_t l = column.begin; l < column.end; ++l) {
        const int64_t y = row.first + k * pool.h.dilation, x = column.first + l * pool.w.dilation;
        fn((y * pool.w.size + x) * channels, position<Index>(pool, row.first, column.first, k, l));
      }
    }
  }

  // The result's pixel (i, j), `n` channels of it from where the pointers are.
  void pixel(const T* image, int64_t i, int64_t j, int64_t n, T* best, Index* positions) const {
    Found<Index> where[block_channels];
    const Span &row = rows[static_cast<size_t>(i)], &column = columns[static_cast<size_t>(j)];
    if constexpr (std::is_same_v<T, float> && std::is_same_v<Found<Index>, int32_t>) {
      simd::PoolTap taps[most_taps];
      const int64_t count = (row.end - row.begin) * (column.end - column.begin);
      if (count > 0 && count <= most_taps) {
        int64_t k = 0;
        for_each_tap(i, j, [&](int64_t at, int32_t position) { taps[k++] = {at, position}; });
        loops.simd->largest(image, taps, count, n, best, where);
        return store_positions(where, n, positions);
      }
    }
    std::fill_n(best, n, -std::numeric_limits<T>::infinity());
    std::fill_n(where, n,
                position<Index>(pool, row.first, column.first, row.begin, column.begin));
    for_each_tap(i, j, [&](int64_t at, Found<Index> position) {
      loops.take_larger(image + at, n, position, 0, best, where);
    });
    store_positions(where, n, positions);
  }

  // The gradient of an image, `n` channels of it.
  void gradient(const T* grad, const Index* positions, int64_t n, T* result) const {
    const int64_t pixels = pool.h.size * pool.w.size;
    for (int64_t p = 0; p < pixels; ++p) std::fill_n(result + p * channels, n, T{0});
    for (int64_t i = 0; i < pool.h.out; ++i) {
      for (int64_t j = 0; j < pool.w.out; ++j) {
        const int64_t at = (i * pool.w.out + j) * channels;
        Found<Index> where[block_channels];
        store_positions(positions + at, n, where);
        for_each_tap(i, j, [&](int64_t to, Found<Index> position) {
          loops.add_taken(grad + at, where, position, n, result + to);
        });
      }
    }
  }
};

template <typename T, typename Index>
Prepared max_pool_last(const Call& call) {
  const ops::ChannelsFirst first(call.op);
  const MaxPoolLast<T, Index> last(first.op(), first.op().operand(0)->type);
  const Pooling& pool = last.pool;
  const int64_t row_work = pool.w.out * last.channels * pool.h.kernel * pool.w.kernel;
  const int64_t grain = std::max<int64_t>(1, grain_elements / std::max<int64_t>(1, row_work));
  return {[=, keeps = keeps_positions(call)](const Args& args) {
    const Pooling& pool = last.pool;
    parallel_for(args.threads, last.images * pool.h.out, grain, [&](int64_t row) {
      const T* image = args.in<T>(0) + row / pool.h.out * last.in_size();
      for (int64_t j = 0; j < pool.w.out; ++j) {
        const int64_t out = (row * pool.w.out + j) * last.channels;
        for (int64_t c = 0; c < last.channels; c += block_channels) {
          last.pixel(image + c, row % pool.h.out, j, last.block_size(c),
                     args.out<T>(0) + out + c, positions_at<Index>(args, keeps, out + c));
        }
      }
    });
  }};
}

template <typename T, typename Index>
Prepared max_pool_backward_last(const Call& call) {
  const ops::ChannelsFirst first(call.op);
  const MaxPoolLast<T, Index> last(first.op(), ops::pooled_image({first.op()}));
  const int64_t unit = last.in_size() / std::max<int64_t>(1, last.blocks());
  const int64_t grain = std::max<int64_t>(1, grain_elements / std::max<int64_t>(1, unit));
  return {[=](const Args& args) {
    const int64_t blocks = last.blocks();
    parallel_for(args.threads, last.images * blocks, grain, [&](int64_t unit) {
      const int64_t c = unit % blocks * block_channels, image = unit / blocks;
      last.gradient(args.in<T>(0) + image * last.out_size() + c,
                    args.in<Index>(2) + image * last.out_size() + c, last.block_size(c),
                    args.out<T>() + image * last.in_size() + c);
    });
  }};
}

Prepared max_pool2d(const Call& call) {
  return with_position_type(call, call.out(1).dtype, [&]<typename Index>(Index) {
    return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) {
      return ops::is_channels_last(call.op) ? max_pool_last<T, Index>(call)
                                            : max_pool_typed<T, Index>(call);
    });
  });
}

Prepared max_pool2d_backward(const Call& call) {
  return with_position_type(call, call.in(2).dtype, [&]<typename Index>(Index) {
    return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) {
      return ops::is_channels_last(call.op) ? max_pool_backward_last<T, Index>(call)
                                            : max_pool_backward_typed<T, Index>(call);
    });
  });
}

KERNEL("max_pool2d", max_pool2d)
KERNEL("max_pool2d_backward", max_pool2d_backward)

}  // namespace

}  // namespace poptorch::kernels

// max_pool2d, avg_pool2d and their gradients, line by line. A padded line of the image is split by
// the stride into phases: then the entries that one place in the window sees for all columns of the
// result lie side by side.
#include "ops/pooling.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/pooling_loops.h"
#include "kernels/slots.h"
#include "kernels/reduction_types.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

namespace {

using ops::Args;
using ops::Call;
using ops::Pooling;
using ops::Prepared;
using ops::WindowAxis;

// The loops for any other type than f32 (with i32 positions).
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
    length = (std::max(reach, padding) + stride - 1) / stride;
    copied = std::clamp<int64_t>(length * stride - padding, 0, w.size);
  }

  int64_t padded() const { return length * stride; }
  int64_t elements() const { return (phases() + padded() + 15) / 16 * 16; }
  // Where the phases start, behind the padded line.
  int64_t phases() const { return stride == 1 ? 0 : padded(); }
  // What place `offset` of the first window sees, in the phases.
  int64_t place(int64_t offset) const { return offset % stride * length + offset / stride; }
};

// The places of the window along one axis that lie inside the image for entry `at`: [begin, end).
struct Span {
  int64_t begin, end, first;  // `first`: the image position of place 0, maybe negative
};

Span places_of(const WindowAxis& axis, int64_t at) {
  const auto places_before = [&](int64_t n) {
    return std::clamp<int64_t>(n > 0 ? (n + axis.dilation - 1) / axis.dilation : 0, 0, axis.kernel);
  };
  const int64_t first = at * axis.stride - axis.padding;
  const int64_t begin = places_before(-first);
  return {begin, std::max(begin, places_before(axis.size - first)), first};
}

// The positions that windows start from: those of a window of -inf.
std::vector<int32_t> first_columns(const WindowAxis& w) {
  std::vector<int32_t> columns;
  for (int64_t i = 0; i < w.out; ++i) {
    const Span span = places_of(w, i);
    columns.push_back(static_cast<int32_t>(span.first + span.begin * w.dilation));
  }
  return columns;
}

template <typename T, typename Index>
struct MaxPool {
  Pooling pool;
  Line line;
  std::vector<int32_t> columns;
  Loops<T, Index> loops;

  int64_t scratch_bytes() const {
    return (line.elements() + line.columns) * static_cast<int64_t>(sizeof(T)) +
           line.columns * static_cast<int64_t>(sizeof(Index));
  }

  // Row `row` of the result, from the plane of the image.
  void run(const T* plane, int64_t row, T* buffer, T* out, Index* positions) const {
    T* best = buffer + line.elements();
    auto* where = reinterpret_cast<Index*>(best + line.columns);
    const WindowAxis& w = pool.w;
    const Span places = places_of(pool.h, row);
    const auto start = [&](int64_t k) { return (places.first + k * pool.h.dilation) * w.size; };
    std::fill_n(best, line.columns, -std::numeric_limits<T>::infinity());
    for (int64_t i = 0; i < w.out; ++i) {
      where[i] = static_cast<Index>(start(places.begin) + columns[static_cast<size_t>(i)]);
    }
    for (int64_t k = places.begin; k < places.end; ++k) {
      std::copy_n(plane + start(k), line.copied, buffer + line.padding);
      T* phases = buffer + line.phases();
      if (line.stride > 1) loops.split(buffer, phases, line.stride, line.length);
      for (int64_t l = 0; l < w.kernel; ++l) {
        const int64_t offset = l * w.dilation;
        loops.take_larger(phases + line.place(offset), line.columns,
                          static_cast<Index>(start(k) + offset - line.padding),
                          static_cast<Index>(line.stride), best, where);
      }
    }
    std::copy_n(best, w.out, out);
    std::copy_n(where, w.out, positions);
  }
};

template <typename T, typename Index>
Prepared max_pool_typed(const Call& call) {
  const Pooling pool = ops::pooling({call.op}, call.in(0));
  const MaxPool<T, Index> row{pool, Line(pool.w), first_columns(pool.w), {}};
  const Slots slots(call.threads, pool.planes * pool.h.out,
                    pool.w.out * pool.h.kernel * pool.w.kernel, row.scratch_bytes());
  const auto run = [row, slots](const Args& args) {
    const Pooling& pool = row.pool;
    slots.run(args.threads, args.scratch, [&](int64_t begin, int64_t end, std::byte* scratch) {
      auto* buffer = reinterpret_cast<T*>(scratch);
      std::fill_n(buffer, row.line.padded(), -std::numeric_limits<T>::infinity());
      for (int64_t i = begin; i < end; ++i) {
        const T* plane = args.in<T>(0) + i / pool.h.out * pool.h.size * pool.w.size;
        row.run(plane, i % pool.h.out, buffer, args.out<T>(0) + i * pool.w.out,
                args.out<Index>(1) + i * pool.w.out);
      }
    });
  };
  return {run, slots.scratch_bytes()};
}

Prepared max_pool2d(const Call& call) {
  return with_index_type(call, call.out(1).dtype, [&]<typename Index>(Index) {
    return with_float_type(call, call.in(0).dtype,
                           [&]<typename T>(T) { return max_pool_typed<T, Index>(call); });
  });
}

template <typename T, typename Index>
Prepared max_pool_backward_typed(const Call& call) {
  const Pooling pool = ops::pooling({call.op}, call.in(1));
  const auto run = [pool](const Args& args) {
    const int64_t in = pool.h.size * pool.w.size, out = pool.h.out * pool.w.out;
    const int64_t grain = std::max<int64_t>(1, 16384 / (in + out));
    parallel_for(args.threads, pool.planes, grain, [&](int64_t begin, int64_t end) {
      for (int64_t plane = begin; plane < end; ++plane) {
        const T* grad = args.in<T>(0) + plane * out;
        const Index* where = args.in<Index>(2) + plane * out;
        T* result = args.out<T>() + plane * in;
        std::fill_n(result, in, T{0});
        for (int64_t i = 0; i < out; ++i) {
          // A window that holds nothing but padding has a position outside the plane.
          if (where[i] >= 0 && where[i] < in) result[where[i]] += grad[i];
        }
      }
    });
  };
  return {run};
}

Prepared max_pool2d_backward(const Call& call) {
  return with_index_type(call, call.in(2).dtype, [&]<typename Index>(Index) {
    return with_float_type(call, call.in(1).dtype,
                           [&]<typename T>(T) { return max_pool_backward_typed<T, Index>(call); });
  });
}

// What sums of windows are divided by: rows[i] * columns[j].
template <typename T>
struct Divisors {
  std::vector<T> rows, columns;

  Divisors(const Call& call, const Pooling& pool) {
    const bool with_padding = call.attrs().get_bool("count_include_pad");
    const auto fixed = call.attrs().maybe_int("divisor_override");
    for (int64_t i = 0; i < pool.h.out; ++i) {
      rows.push_back(static_cast<T>(fixed ? *fixed : extent(pool.h, i, with_padding)));
    }
    for (int64_t i = 0; i < pool.w.out; ++i) {
      columns.push_back(static_cast<T>(fixed ? 1 : extent(pool.w, i, with_padding)));
    }
  }

  // Entries of the window at `at` along one axis.
  static int64_t extent(const WindowAxis& axis, int64_t at, bool with_padding) {
    const int64_t start = at * axis.stride - axis.padding;
    const int64_t end = std::min(start + axis.kernel, axis.size + axis.padding);
    if (with_padding) return end - start;
    return std::max<int64_t>(1, std::min(end, axis.size) - std::max<int64_t>(start, 0));
  }
};

template <typename T>
struct AvgPool {
  Pooling pool;
  Line line;
  Divisors<T> divisors;
  Loops<T, int32_t> loops;

  int64_t scratch_bytes() const {
    return (line.elements() + line.columns) * static_cast<int64_t>(sizeof(T));
  }

  void divide(const T* x, int64_t row, T* out) const {
    const T of_row = divisors.rows[static_cast<size_t>(row)];
    const T* of_columns = divisors.columns.data();
    for (int64_t i = 0; i < pool.w.out; ++i) out[i] = x[i] / (of_row * of_columns[i]);
  }

  void forward(const T* plane, int64_t row, T* buffer, T* out) const {
    const Span places = places_of(pool.h, row);
    T* sums = buffer + line.elements();
    std::fill_n(sums, line.columns, T{0});
    for (int64_t k = places.begin; k < places.end; ++k) {
      std::copy_n(plane + (places.first + k) * pool.w.size, line.copied, buffer + line.padding);
      T* phases = buffer + line.phases();
      if (line.stride > 1) loops.split(buffer, phases, line.stride, line.length);
      for (int64_t l = 0; l < pool.w.kernel; ++l)
        loops.add(phases + line.place(l), line.columns, sums);
    }
    divide(sums, row, out);
  }

  // All lines under the windows of a row get the same gradient: it is made once, in phases.
  void backward(const T* grad, int64_t row, T* buffer, T* plane) const {
    T* shares = buffer + line.elements();  // 0 behind the last column
    divide(grad, row, shares);
    T* phases = buffer + line.phases();
    std::fill_n(phases, line.padded(), T{0});
    for (int64_t l = 0; l < pool.w.kernel; ++l) {
      loops.add(shares, line.columns, phases + line.place(l));
    }
    if (line.stride > 1) loops.join(phases, buffer, line.stride, line.length);
    const Span places = places_of(pool.h, row);
    for (int64_t k = places.begin; k < places.end; ++k) {
      loops.add(buffer + line.padding, line.copied, plane + (places.first + k) * pool.w.size);
    }
  }
};

template <typename T>
Prepared avg_pool_typed(const Call& call) {
  const Pooling pool = ops::pooling({call.op}, call.in(0));
  const AvgPool<T> row{pool, Line(pool.w), Divisors<T>(call, pool), {}};
  const Slots slots(call.threads, pool.planes * pool.h.out,
                    pool.w.out * pool.h.kernel * pool.w.kernel, row.scratch_bytes());
  const auto run = [row, slots](const Args& args) {
    const Pooling& pool = row.pool;
    slots.run(args.threads, args.scratch, [&](int64_t begin, int64_t end, std::byte* scratch) {
      auto* buffer = reinterpret_cast<T*>(scratch);
      std::fill_n(buffer, row.line.padded(), T{0});
      for (int64_t i = begin; i < end; ++i) {
        row.forward(args.in<T>(0) + i / pool.h.out * pool.h.size * pool.w.size, i % pool.h.out,
                    buffer, args.out<T>() + i * pool.w.out);
      }
    });
  };
  return {run, slots.scratch_bytes()};
}

Prepared avg_pool2d(const Call& call) {
  return with_float_type(call, call.in(0).dtype,
                         [&]<typename T>(T) { return avg_pool_typed<T>(call); });
}

template <typename T>
Prepared avg_pool_backward_typed(const Call& call) {
  const Pooling pool = ops::pooling({call.op}, call.in(1));
  const AvgPool<T> row{pool, Line(pool.w), Divisors<T>(call, pool), {}};
  const int64_t in = pool.h.size * pool.w.size;
  const Slots slots(call.threads, pool.planes, in * pool.h.kernel, row.scratch_bytes());
  const auto run = [row, slots, in](const Args& args) {
    const Pooling& pool = row.pool;
    slots.run(args.threads, args.scratch, [&](int64_t begin, int64_t end, std::byte* scratch) {
      auto* buffer = reinterpret_cast<T*>(scratch);
      std::fill_n(buffer + row.line.elements(), row.line.columns, T{0});
      for (int64_t plane = begin; plane < end; ++plane) {
        T* result = args.out<T>() + plane * in;
        std::fill_n(result, in, T{0});
        for (int64_t i = 0; i < pool.h.out; ++i) {
          const T* grad = args.in<T>(0) + (plane * pool.h.out + i) * pool.w.out;
          row.backward(grad, i, buffer, result);
        }
      }
    });
  };
  return {run, slots.scratch_bytes()};
}

Prepared avg_pool2d_backward(const Call& call) {
  return with_float_type(call, call.in(0).dtype,
                         [&]<typename T>(T) { return avg_pool_backward_typed<T>(call); });
}

KERNEL("max_pool2d", max_pool2d)
KERNEL("max_pool2d_backward", max_pool2d_backward)
KERNEL("avg_pool2d", avg_pool2d)
KERNEL("avg_pool2d_backward", avg_pool2d_backward)

}  // namespace

}  // namespace poptorch::kernels

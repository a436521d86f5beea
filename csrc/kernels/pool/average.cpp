// avg_pool2d and its gradient, line by line.
#include <algorithm>
#include <vector>

#include "kernels/pool/lines.h"
#include "kernels/reduction/types.h"
#include "kernels/slots.h"
#include "ops/kernel.h"
#include "support/mutant.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ops::Pooling;

// What sums of windows are divided by: rows[i] * columns[j].
template <typename T>
struct Divisors {
  std::vector<T> rows, columns;

  Divisors(const Call& call, const Pooling& pool) {
    const bool with_padding = call.attrs().get_bool(ir::attr::count_include_pad);
    const auto fixed = call.attrs().maybe_int(ir::attr::divisor_override);
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
    const int64_t beyond = MUTANT(average_counts_overhang) ? axis.kernel : 0;
    const int64_t end = std::min(start + axis.kernel, axis.size + axis.padding + beyond);
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
    const Span taps = taps_of(pool.h, row);
    T* sums = buffer + line.elements();
    std::fill_n(sums, line.columns, T{0});
    for (int64_t k = taps.begin; k < taps.end; ++k) {
      std::copy_n(plane + (taps.first + k) * pool.w.size, line.copied, buffer + line.padding);
      T* phases = buffer + line.phases();
      if (line.stride > 1) loops.split(buffer, phases, line.stride, line.length);
      for (int64_t l = 0; l < pool.w.kernel; ++l)
        loops.add(phases + line.tap(l), line.columns, sums);
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
      loops.add(shares, line.columns, phases + line.tap(l));
    }
    if (line.stride > 1) loops.join(phases, buffer, line.stride, line.length);
    const Span taps = taps_of(pool.h, row);
    for (int64_t k = taps.begin; k < taps.end; ++k) {
      loops.add(buffer + line.padding, line.copied, plane + (taps.first + k) * pool.w.size);
    }
  }
};

Prepared avg_pool2d(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const Pooling pool = ops::pooling({call.op}, call.in(0));
    const AvgPool<T> row{pool, Line(pool.w), Divisors<T>(call, pool), {}};
    const Slots slots(call.threads, pool.planes * pool.h.out,
                      pool.w.out * pool.h.kernel * pool.w.kernel, row.scratch_bytes());
    return slots.prepared([row](const Args& args, const Slot& slot) {
      const Pooling& pool = row.pool;
      auto* buffer = reinterpret_cast<T*>(slot.scratch);
      std::fill_n(buffer, row.line.padded(), T{0});
      for (int64_t i = slot.begin; i < slot.end; ++i) {
        row.forward(args.in<T>(0) + i / pool.h.out * pool.h.size * pool.w.size, i % pool.h.out,
                    buffer, args.out<T>() + i * pool.w.out);
      }
    });
  });
}

Prepared avg_pool2d_backward(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const Pooling pool = ops::pooling({call.op}, call.in(1));
    const AvgPool<T> row{pool, Line(pool.w), Divisors<T>(call, pool), {}};
    const int64_t in = pool.h.size * pool.w.size;
    const Slots slots(call.threads, pool.planes, in * pool.h.kernel, row.scratch_bytes());
    return slots.prepared([row, in](const Args& args, const Slot& slot) {
      const Pooling& pool = row.pool;
      auto* buffer = reinterpret_cast<T*>(slot.scratch);
      std::fill_n(buffer + row.line.elements(), row.line.columns, T{0});
      for (int64_t plane = slot.begin; plane < slot.end; ++plane) {
        T* result = args.out<T>() + plane * in;
        std::fill_n(result, in, T{0});
        for (int64_t i = 0; i < pool.h.out; ++i) {
          const T* grad = args.in<T>(0) + (plane * pool.h.out + i) * pool.w.out;
          row.backward(grad, i, buffer, result);
        }
      }
    });
  });
}

KERNEL("avg_pool2d", avg_pool2d)
KERNEL("avg_pool2d_backward", avg_pool2d_backward)

}  // namespace

}  // namespace poptorch::kernels

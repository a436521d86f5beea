// adaptive_avg_pool2d, upsample_nearest2d, upsample_bilinear2d and their gradients. All of them are
// separable: what an output row and an output column take from the image is a table made once.
#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/slots.h"
#include "kernels/reduction_types.h"
#include "ops/kernel.h"
#include "ops/shape.h"

namespace poptorch::kernels {

namespace {

using ir::Dims;
using ops::Args;
using ops::Call;
using ops::Prepared;

// One entry of the result takes image entries [begin, end), each by its weight in `weights` from
// `at` on.
struct Taps {
  struct Entry {
    int64_t begin, end, at;
  };
  std::vector<Entry> entries;
  std::vector<double> weights;

  void add(int64_t begin, const std::vector<double>& parts) {
    const auto count = static_cast<int64_t>(parts.size());
    entries.push_back({begin, begin + count, static_cast<int64_t>(weights.size())});
    weights.insert(weights.end(), parts.begin(), parts.end());
  }
};

Taps adaptive_taps(int64_t size, int64_t out) {
  Taps taps;
  for (int64_t i = 0; i < out; ++i) {
    const int64_t begin = i * size / out, end = ((i + 1) * size + out - 1) / out;
    taps.add(begin, std::vector<double>(end - begin, 1.0 / static_cast<double>(end - begin)));
  }
  return taps;
}

// In f32 whatever the image is, as torch does: otherwise some pixels would come from a neighbour.
Taps nearest_taps(int64_t size, int64_t out, std::optional<double> scale) {
  const bool given = scale.has_value() && *scale > 0;
  const float step =
      given ? static_cast<float>(1.0 / *scale) : static_cast<float>(size) / static_cast<float>(out);
  Taps taps;
  for (int64_t i = 0; i < out; ++i) {
    int64_t at = static_cast<int64_t>(std::floor(static_cast<float>(i) * step));
    if (out == size) at = i;
    if (out == 2 * size) at = i / 2;
    taps.add(std::min(at, size - 1), {1.0});
  }
  return taps;
}

Taps linear_taps(int64_t size, int64_t out, bool align_corners, std::optional<double> scale) {
  double step = static_cast<double>(size) / static_cast<double>(out);
  if (align_corners)
    step = out > 1 ? static_cast<double>(size - 1) / static_cast<double>(out - 1) : 0;
  else if (scale.has_value() && *scale > 0)
    step = 1.0 / *scale;
  Taps taps;
  for (int64_t i = 0; i < out; ++i) {
    const double at = align_corners ? step * static_cast<double>(i)
                                    : std::max(0.0, (static_cast<double>(i) + 0.5) * step - 0.5);
    const int64_t low = std::min(static_cast<int64_t>(at), size - 1);
    const double part = std::min(at - static_cast<double>(low), 1.0);
    if (low + 1 < size && out != size) {
      taps.add(low, {1 - part, part});
    } else {
      taps.add(out == size ? i : low, {1.0});
    }
  }
  return taps;
}

// Entries made from one or two image entries, in a form without inner loops.
template <typename T>
struct Pairs {
  std::vector<int32_t> first, second;
  std::vector<T> first_weight, second_weight;

  explicit Pairs(const Taps& taps) {
    for (const Taps::Entry& entry : taps.entries) {
      const bool two = entry.end - entry.begin > 1;
      first.push_back(static_cast<int32_t>(entry.begin));
      second.push_back(static_cast<int32_t>(entry.begin + (two ? 1 : 0)));
      first_weight.push_back(static_cast<T>(taps.weights[entry.at]));
      second_weight.push_back(static_cast<T>(two ? taps.weights[entry.at + 1] : 0));
    }
  }
};

enum class Kind { copy, pair, window };  // entries of one place, of at most two, of more

Kind kind_of(const Taps& taps) {
  int64_t most = 1;
  for (const Taps::Entry& entry : taps.entries) most = std::max(most, entry.end - entry.begin);
  return most == 1 ? Kind::copy : most == 2 ? Kind::pair : Kind::window;
}

// Rows are combined first, into one line of the image's width, then columns.
template <typename T>
struct Resize {
  int64_t planes = 1, rows_in, columns_in, rows_out, columns_out;
  Taps rows, columns;
  Pairs<T> pairs;
  Kind kind;  // of the columns

  // `out` and `image`: the sizes of the result and the operand of the op that is not a gradient.
  template <typename MakeTaps>
  Resize(const Dims& image, const Dims& out, const MakeTaps& taps)
      : rows_in(image[image.size() - 2]),
        columns_in(image.back()),
        rows_out(out[out.size() - 2]),
        columns_out(out.back()),
        rows(taps(rows_in, rows_out, "scales_h")),
        columns(taps(columns_in, columns_out, "scales_w")),
        pairs(columns),
        kind(kind_of(columns)) {
    for (size_t d = 0; d + 2 < image.size(); ++d) planes *= image[d];
  }

  // Whether rows `row` and `row - 1` of the result are the same.
  bool repeats(int64_t row) const {
    const auto &a = rows.entries[row], &b = rows.entries[row > 0 ? row - 1 : 0];
    return row > 0 && a.begin == b.begin && a.end - a.begin == 1 && b.end - b.begin == 1;
  }

  void forward_row(const T* plane, int64_t row, T* line, T* out) const {
    const Taps::Entry& entry = rows.entries[row];
    const T* from = plane + entry.begin * columns_in;
    if (entry.end - entry.begin > 1) {
      combine_rows(from, entry, line);
      from = line;
    }
    if (kind == Kind::copy) {
      for (int64_t i = 0; i < columns_out; ++i) out[i] = from[pairs.first[i]];
    } else if (kind == Kind::pair) {
      for (int64_t i = 0; i < columns_out; ++i) {
        out[i] = pairs.first_weight[i] * from[pairs.first[i]] +
                 pairs.second_weight[i] * from[pairs.second[i]];
      }
    } else {
      for (int64_t i = 0; i < columns_out; ++i) {
        const Taps::Entry& column = columns.entries[i];
        T sum = 0;
        for (int64_t w = column.begin; w < column.end; ++w) sum += from[w];
        out[i] = sum * static_cast<T>(columns.weights[column.at]);
      }
    }
  }

  void combine_rows(const T* from, const Taps::Entry& entry, T* line) const {
    for (int64_t h = 0; h < entry.end - entry.begin; ++h) {
      const T weight = static_cast<T>(rows.weights[entry.at + h]);
      const T* x = from + h * columns_in;
      if (h == 0) {
        for (int64_t w = 0; w < columns_in; ++w) line[w] = weight * x[w];
      } else {
        for (int64_t w = 0; w < columns_in; ++w) line[w] += weight * x[w];
      }
    }
  }

  // Adds what row `row` of the gradient gives to the rows of the plane that it came from.
  void backward_row(const T* grad, int64_t row, T* line, T* plane) const {
    std::fill_n(line, columns_in, T{0});
    if (kind == Kind::copy) {
      for (int64_t i = 0; i < columns_out; ++i) line[pairs.first[i]] += grad[i];
    } else if (kind == Kind::pair) {
      for (int64_t i = 0; i < columns_out; ++i) {
        line[pairs.first[i]] += pairs.first_weight[i] * grad[i];
        line[pairs.second[i]] += pairs.second_weight[i] * grad[i];
      }
    } else {
      for (int64_t i = 0; i < columns_out; ++i) {
        const Taps::Entry& column = columns.entries[i];
        const T share = grad[i] * static_cast<T>(columns.weights[column.at]);
        for (int64_t w = column.begin; w < column.end; ++w) line[w] += share;
      }
    }
    const Taps::Entry& entry = rows.entries[row];
    for (int64_t h = entry.begin; h < entry.end; ++h) {
      const T weight = static_cast<T>(rows.weights[entry.at + h - entry.begin]);
      T* to = plane + h * columns_in;
      for (int64_t w = 0; w < columns_in; ++w) to[w] += weight * line[w];
    }
  }
};

template <typename MakeTaps>
Prepared forward(const Call& call, const MakeTaps& taps) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const Resize<T> resize(call.in(0).sizes, call.out().sizes, taps);
    const Slots slots(call.threads, resize.planes * resize.rows_out,
                      resize.columns_in + 2 * resize.columns_out,
                      resize.columns_in * static_cast<int64_t>(sizeof(T)));
    const auto run = [r = resize, slots](const Args& args) {
      slots.run(args.threads, args.scratch, [&](int64_t begin, int64_t end, std::byte* scratch) {
        for (int64_t i = begin; i < end; ++i) {
          T* out = args.out<T>() + i * r.columns_out;
          if (i > begin && r.repeats(i % r.rows_out)) {
            std::copy_n(out - r.columns_out, r.columns_out, out);
          } else {
            r.forward_row(args.in<T>(0) + i / r.rows_out * r.rows_in * r.columns_in, i % r.rows_out,
                          reinterpret_cast<T*>(scratch), out);
          }
        }
      });
    };
    return {run, slots.scratch_bytes()};
  });
}

template <typename MakeTaps>
Prepared backward(const Call& call, const MakeTaps& taps) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const Resize<T> resize(call.out().sizes, call.in(0).sizes, taps);
    const int64_t in = resize.rows_in * resize.columns_in;
    const Slots slots(call.threads, resize.planes, in + 2 * resize.rows_out * resize.columns_out,
                      resize.columns_in * static_cast<int64_t>(sizeof(T)));
    const auto run = [r = resize, slots, in](const Args& args) {
      slots.run(args.threads, args.scratch, [&](int64_t begin, int64_t end, std::byte* scratch) {
        std::fill(args.out<T>() + begin * in, args.out<T>() + end * in, T{0});
        for (int64_t i = begin * r.rows_out; i < end * r.rows_out; ++i) {
          r.backward_row(args.in<T>(0) + i * r.columns_out, i % r.rows_out,
                         reinterpret_cast<T*>(scratch), args.out<T>() + i / r.rows_out * in);
        }
      });
    };
    return {run, slots.scratch_bytes()};
  });
}

auto adaptive_of() {
  return [](int64_t size, int64_t out, const char*) { return adaptive_taps(size, out); };
}

auto nearest_of(const Call& call) {
  return [&call](int64_t size, int64_t out, const char* scale) {
    return nearest_taps(size, out, call.attrs().maybe_float(scale));
  };
}

auto linear_of(const Call& call) {
  return [&call](int64_t size, int64_t out, const char* scale) {
    return linear_taps(size, out, call.attrs().get_bool("align_corners"),
                       call.attrs().maybe_float(scale));
  };
}

Prepared adaptive(const Call& call) { return forward(call, adaptive_of()); }
Prepared adaptive_backward(const Call& call) { return backward(call, adaptive_of()); }
Prepared nearest(const Call& call) { return forward(call, nearest_of(call)); }
Prepared nearest_backward(const Call& call) { return backward(call, nearest_of(call)); }
Prepared bilinear(const Call& call) { return forward(call, linear_of(call)); }
Prepared bilinear_backward(const Call& call) { return backward(call, linear_of(call)); }

KERNEL("adaptive_avg_pool2d", adaptive)
KERNEL("adaptive_avg_pool2d_backward", adaptive_backward)
KERNEL("upsample_nearest2d", nearest)
KERNEL("upsample_nearest2d_backward", nearest_backward)
KERNEL("upsample_bilinear2d", bilinear)
KERNEL("upsample_bilinear2d_backward", bilinear_backward)

}  // namespace

}  // namespace poptorch::kernels

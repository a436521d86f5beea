// adaptive_avg_pool2d, the upsampling of images and their gradients. All of them are separable:
// what an output row and an output column take from the image is a table made once. A gradient is
// the same with the tables turned round: what an image row takes from the rows of the gradient.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/reduction/types.h"
#include "kernels/slots.h"
#include "ops/families/shape.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"

namespace poptorch::kernels {

namespace {

using ir::Dims;

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

// What each of `size` image entries gives to the result, as a table of its own: the entries of the
// result that take from it are neighbours.
Taps turned_round(const Taps& taps, int64_t size) {
  std::vector<int64_t> begin(size, 0);
  std::vector<std::vector<double>> parts(size);
  for (size_t i = 0; i < taps.entries.size(); ++i) {
    const Taps::Entry& entry = taps.entries[i];
    for (int64_t from = entry.begin; from < entry.end; ++from) {
      const auto at = static_cast<int64_t>(i);
      if (parts[from].empty()) begin[from] = at;
      parts[from].resize(at - begin[from], 0.0);
      parts[from].push_back(taps.weights[entry.at + from - entry.begin]);
    }
  }
  Taps out;
  for (int64_t from = 0; from < size; ++from) out.add(begin[from], parts[from]);
  return out;
}

// For gradients each entry is a share of what it goes to; a result is a sum that is divided last,
// so that what adds up to 0 gives 0.
Taps adaptive_taps(int64_t size, int64_t out, bool is_gradient) {
  Taps taps;
  for (int64_t i = 0; i < out; ++i) {
    const int64_t begin = i * size / out, end = ceil_div((i + 1) * size, out);
    const double weight = is_gradient ? 1.0 / static_cast<double>(end - begin) : 1.0;
    taps.add(begin, std::vector<double>(end - begin, weight));
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

// Image entries from one entry of the result to the next.
double step_of(int64_t size, int64_t out, bool align_corners, std::optional<double> scale) {
  if (align_corners) {
    return out > 1 ? static_cast<double>(size - 1) / static_cast<double>(out - 1) : 0;
  }
  if (scale.has_value() && *scale > 0) return 1.0 / *scale;
  return static_cast<double>(size) / static_cast<double>(out);
}

Taps linear_taps(int64_t size, int64_t out, bool align_corners, std::optional<double> scale) {
  const double step = step_of(size, out, align_corners, scale);
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

// Entries past the edges are those at the edges.
Taps cubic_taps(int64_t size, int64_t out, bool align_corners, std::optional<double> scale) {
  constexpr double a = -0.75;
  const double step = step_of(size, out, align_corners, scale);
  Taps taps;
  for (int64_t i = 0; i < out; ++i) {
    const double at = align_corners ? step * static_cast<double>(i)
                                    : (static_cast<double>(i) + 0.5) * step - 0.5;
    const double low = std::floor(at), t = at - low, u = 1 - t;
    const double weights[] = {((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a,
                              ((a + 2) * t - (a + 3)) * t * t + 1,
                              ((a + 2) * u - (a + 3)) * u * u + 1,
                              ((a * (u + 1) - 5 * a) * (u + 1) + 8 * a) * (u + 1) - 4 * a};
    const int64_t first = static_cast<int64_t>(low) - 1;
    const int64_t begin = std::clamp<int64_t>(first, 0, size - 1);
    const int64_t last = std::clamp<int64_t>(first + 3, 0, size - 1);
    std::vector<double> parts(last - begin + 1, 0.0);
    for (int64_t k = 0; k < 4; ++k) {
      parts[std::clamp<int64_t>(first + k, 0, size - 1) - begin] += weights[k];
    }
    taps.add(begin, parts);
  }
  return taps;
}

// Entries made from one or two image entries, in a form without inner loops. Half of a single entry
// is added twice: an infinity in a second entry times 0 would be NaN.
template <typename T>
struct Pairs {
  std::vector<int32_t> first, second;
  std::vector<T> first_weight, second_weight;

  explicit Pairs(const Taps& taps) {
    for (const Taps::Entry& entry : taps.entries) {
      if (entry.end == entry.begin) continue;
      const bool two = entry.end - entry.begin > 1;
      first.push_back(static_cast<int32_t>(entry.begin));
      second.push_back(static_cast<int32_t>(entry.begin + (two ? 1 : 0)));
      const double weight = taps.weights[entry.at];
      first_weight.push_back(static_cast<T>(two ? weight : weight / 2));
      second_weight.push_back(static_cast<T>(two ? taps.weights[entry.at + 1] : weight / 2));
    }
  }
};

enum class Kind { copy, pair, window };  // one entry, at most two, more

Kind kind_of(const Taps& taps) {
  int64_t most = 1, least = 1;
  for (const Taps::Entry& entry : taps.entries) {
    most = std::max(most, entry.end - entry.begin);
    least = std::min(least, entry.end - entry.begin);
  }
  const bool plain = std::all_of(taps.weights.begin(), taps.weights.end(),
                                 [](double weight) { return weight == 1; });
  if (least == 0 || most > 2) return Kind::window;
  return most == 1 && plain ? Kind::copy : Kind::pair;
}

// Resizes `planes` images; rows are combined first, into one line of the image's width, then
// columns.
template <typename T>
struct Resize {
  int64_t planes, rows_in, columns_in, rows_out, columns_out;
  Taps rows, columns;
  Pairs<T> pairs;
  std::vector<T> weights;  // of the columns
  Kind kind;               // of the columns
  bool averages = false;   // sums are divided by the number of entries

  Resize(int64_t planes, int64_t rows_in, int64_t columns_in, Taps rows_taps, Taps columns_taps)
      : planes(planes),
        rows_in(rows_in),
        columns_in(columns_in),
        rows_out(static_cast<int64_t>(rows_taps.entries.size())),
        columns_out(static_cast<int64_t>(columns_taps.entries.size())),
        rows(std::move(rows_taps)),
        columns(std::move(columns_taps)),
        pairs(columns),
        weights(columns.weights.begin(), columns.weights.end()),
        kind(kind_of(columns)) {}

  // Whether rows `row` and `row - 1` of the result are the same.
  bool repeats(int64_t row) const {
    if (row == 0) return false;
    const auto &a = rows.entries[row], &b = rows.entries[row - 1];
    return a.begin == b.begin && a.end - a.begin == 1 && b.end - b.begin == 1 &&
           rows.weights[a.at] == rows.weights[b.at];
  }

  void make_row(const T* plane, int64_t row, T* line, T* out) const {
    const Taps::Entry& entry = rows.entries[row];
    const int64_t count = entry.end - entry.begin;
    const T* from = plane + entry.begin * columns_in;
    if (count == 0) return static_cast<void>(std::fill_n(out, columns_out, T{0}));
    if (count > 1 || rows.weights[entry.at] != 1) {
      combine_rows(from, entry, line);
      from = line;
    }
    switch (kind) {
      case Kind::copy:
        for (int64_t i = 0; i < columns_out; ++i) out[i] = from[pairs.first[i]];
        break;
      case Kind::pair:
        for (int64_t i = 0; i < columns_out; ++i) {
          out[i] = pairs.first_weight[i] * from[pairs.first[i]] +
                   pairs.second_weight[i] * from[pairs.second[i]];
        }
        break;
      case Kind::window:
        for (int64_t i = 0; i < columns_out; ++i) out[i] = window(from, columns.entries[i]);
        break;
    }
    if (!averages) return;
    for (int64_t i = 0; i < columns_out; ++i) {
      out[i] /= static_cast<T>(count * (columns.entries[i].end - columns.entries[i].begin));
    }
  }

  T window(const T* from, const Taps::Entry& column) const {
    const T* weight = weights.data() + column.at;
    T sum = 0;
    for (int64_t w = column.begin; w < column.end; ++w) sum += *weight++ * from[w];
    return sum;
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
};

template <typename T>
Prepared prepare_resize(const Call& call, const Resize<T>& resize) {
  const Slots slots(call.threads, resize.planes * resize.rows_out,
                    resize.columns_in + 2 * resize.columns_out,
                    resize.columns_in * static_cast<int64_t>(sizeof(T)));
  return slots.prepared([r = resize](const Args& args, const Slot& slot) {
    for (int64_t i = slot.begin; i < slot.end; ++i) {
      T* out = args.out<T>() + i * r.columns_out;
      if (i > slot.begin && r.repeats(i % r.rows_out)) {
        std::copy_n(out - r.columns_out, r.columns_out, out);
      } else {
        r.make_row(args.in<T>(0) + i / r.rows_out * r.rows_in * r.columns_in, i % r.rows_out,
                   reinterpret_cast<T*>(slot.scratch), out);
      }
    }
  });
}

int64_t planes_of(const Dims& image) {
  return ir::product({image.begin(), image.end() - 2});
}

Prepared forward(const Call& call, const auto& taps, bool averages = false) {
  const Dims &image = call.in(0).sizes, &out = call.out().sizes;
  const int64_t rows = image[image.size() - 2], columns = image.back();
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) {
    Resize<T> resize(planes_of(image), rows, columns,
                     taps(rows, out[out.size() - 2], ir::attr::scales_h),
                     taps(columns, out.back(), ir::attr::scales_w));
    resize.averages = averages;
    return prepare_resize(call, resize);
  });
}

Prepared backward(const Call& call, const auto& taps) {
  const Dims &image = call.out().sizes, &grad = call.in(0).sizes;
  const int64_t rows = image[image.size() - 2], columns = image.back();
  const int64_t grad_rows = grad[grad.size() - 2], grad_columns = grad.back();
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) {
    return prepare_resize(
        call, Resize<T>(planes_of(image), grad_rows, grad_columns,
                        turned_round(taps(rows, grad_rows, ir::attr::scales_h), rows),
                        turned_round(taps(columns, grad_columns, ir::attr::scales_w), columns)));
  });
}

auto adaptive_of(bool is_gradient) {
  return [=](int64_t size, int64_t out, ir::AttrName) {
    return adaptive_taps(size, out, is_gradient);
  };
}

auto nearest_of(const Call& call) {
  return [&call](int64_t size, int64_t out, ir::AttrName scale) {
    return nearest_taps(size, out, call.attrs().maybe_float(scale));
  };
}

template <Taps (*make)(int64_t, int64_t, bool, std::optional<double>)>
auto corners_of(const Call& call) {
  return [&call](int64_t size, int64_t out, ir::AttrName scale) {
    return make(size, out, call.attrs().get_bool(ir::attr::align_corners),
                       call.attrs().maybe_float(scale));
  };
}

Prepared adaptive(const Call& call) { return forward(call, adaptive_of(false), true); }
Prepared adaptive_backward(const Call& call) { return backward(call, adaptive_of(true)); }
Prepared nearest(const Call& call) { return forward(call, nearest_of(call)); }
Prepared nearest_backward(const Call& call) { return backward(call, nearest_of(call)); }
Prepared bilinear(const Call& call) { return forward(call, corners_of<linear_taps>(call)); }
Prepared bilinear_backward(const Call& call) {
  return backward(call, corners_of<linear_taps>(call));
}
Prepared bicubic(const Call& call) { return forward(call, corners_of<cubic_taps>(call)); }
Prepared bicubic_backward(const Call& call) {
  return backward(call, corners_of<cubic_taps>(call));
}

KERNEL("adaptive_avg_pool2d", adaptive)
KERNEL("adaptive_avg_pool2d_backward", adaptive_backward)
KERNEL("upsample_nearest2d", nearest)
KERNEL("upsample_nearest2d_backward", nearest_backward)
KERNEL("upsample_bilinear2d", bilinear)
KERNEL("upsample_bilinear2d_backward", bilinear_backward)
KERNEL("upsample_bicubic2d", bicubic)
KERNEL("upsample_bicubic2d_backward", bicubic_backward)

}  // namespace

}  // namespace poptorch::kernels

#include "kernels/conv/depthwise/depthwise.h"

#include <algorithm>
#include <vector>

#include "kernels/conv/depthwise/depthwise_loops.h"
#include "support/ceil_div.h"
#include "support/parallel.h"

namespace poptorch::kernels {
namespace {

using simd::DepthwiseColumns;
using simd::DepthwiseTap;
using simd::DepthwiseWindow;

constexpr int64_t grain_products = 32768;

// What the entries of a result take from an image, along one axis.
struct Taps {
  std::vector<int32_t> first = {0};
  std::vector<DepthwiseTap> taps;

  int64_t count() const { return static_cast<int64_t>(first.size()) - 1; }
  const DepthwiseTap* of(int64_t i) const { return taps.data() + first[static_cast<size_t>(i)]; }
  int64_t count_of(int64_t i) const {
    return first[static_cast<size_t>(i) + 1] - first[static_cast<size_t>(i)];
  }

  // One past the last source of entry i, sources being in order; 0: it has none.
  int64_t end(int64_t i) const { return count_of(i) == 0 ? 0 : of(i)[count_of(i) - 1].source + 1; }

  void add(int64_t source, int64_t weight) {
    taps.push_back({static_cast<int32_t>(source), static_cast<int32_t>(weight)});
  }
  void finish_entry() { first.push_back(static_cast<int32_t>(taps.size())); }

  // Whether entries i and j take by the same weights, `apart` entries from each other.
  bool follows(int64_t i, int64_t j, int64_t apart) const {
    const DepthwiseTap *a = of(i), *b = of(j);
    return count_of(i) == count_of(j) &&
           std::equal(a, a + count_of(i), b, [&](const DepthwiseTap& s, const DepthwiseTap& t) {
             return s.weight == t.weight && t.source - s.source == apart;
           });
  }

  // Whether `quad` entries from i on, `step` from each other, take alike.
  bool are_spread(int64_t i, int64_t step) const {
    if (count_of(i) == 0 || count_of(i + step) == 0) return false;
    const int64_t apart = of(i + step)->source - of(i)->source;
    for (int64_t j = i; j < i + (simd::quad - 1) * step; j += step) {
      if (!follows(j, j + step, apart)) return false;
    }
    return true;
  }

  // Whether entry i takes by all weights of a window, from neighbours.
  bool is_window(int64_t i, const DepthwiseWindow& window) const {
    const DepthwiseTap* a = of(i);
    if (count_of(i) != window.taps) return false;
    for (int32_t k = 1; k < count_of(i); ++k) {
      if (a[k].source != a[0].source + k) return false;
    }
    return true;
  }

  // Of each entry: what can be computed together from it on.
  std::vector<DepthwiseColumns::Alike> alike(const DepthwiseWindow& window, int64_t step) const {
    std::vector<DepthwiseColumns::Alike> marks(static_cast<size_t>(count()),
                                               DepthwiseColumns::unlike);
    for (int64_t i = 0; i + simd::quad * step <= count(); ++i) {
      bool are_alike = true;
      for (int64_t j = i; j < i + step; ++j) are_alike = are_alike && are_spread(j, step);
      if (!are_alike) continue;
      const bool are_windows = step == 1 && is_window(i, window) &&
                               of(i + 1)->source - of(i)->source == window.apart;
      marks[static_cast<size_t>(i)] =
          are_windows ? DepthwiseColumns::windows : DepthwiseColumns::spread;
    }
    return marks;
  }
};

// What the convolution takes from the image for each entry of its result.
Taps forward_taps(const ConvolutionAxis& axis) {
  Taps taps;
  for (int64_t i = 0; i < axis.to; ++i) {
    for (int64_t k = 0; k < axis.kernel; ++k) {
      const int64_t source = i * axis.stride - axis.padding + k * axis.dilation;
      if (source >= 0 && source < axis.from) taps.add(source, k);
    }
    taps.finish_entry();
  }
  return taps;
}

// The entries of the result that read each weight.
std::vector<simd::DepthwiseRange> ranges(const ConvolutionAxis& axis) {
  std::vector<simd::DepthwiseRange> found;
  for (int64_t k = 0; k < axis.kernel; ++k) {
    const int64_t start = k * axis.dilation - axis.padding;  // of entry 0, maybe negative
    const auto entries_before = [&](int64_t position) {
      const int64_t away = position - start;
      return std::clamp<int64_t>(away > 0 ? ceil_div(away, axis.stride) : 0, 0, axis.to);
    };
    const int64_t begin = entries_before(0), end = std::max(begin, entries_before(axis.from));
    const int64_t source = end > begin ? start + begin * axis.stride : 0;
    found.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(end - begin),
                     static_cast<int32_t>(source), static_cast<int32_t>(axis.stride)});
  }
  return found;
}

// What the columns take, of the image and of its gradient.
DepthwiseWindow forward_window(const ConvolutionAxis& axis) {
  return axis.dilation == 1 ? DepthwiseWindow{axis.kernel, axis.stride} : DepthwiseWindow{};
}
DepthwiseWindow backward_window(const ConvolutionAxis& axis) {
  return axis.stride == 1 ? forward_window(axis) : DepthwiseWindow{};
}

// What each entry of the image's gradient takes from that of the result.
Taps backward_taps(const ConvolutionAxis& axis) {
  Taps taps;
  for (int64_t i = 0; i < axis.from; ++i) {
    for (int64_t k = axis.kernel - 1; k >= 0; --k) {
      const int64_t at = i + axis.padding - k * axis.dilation;
      if (at >= 0 && at % axis.stride == 0 && at / axis.stride < axis.to) {
        taps.add(at / axis.stride, k);
      }
    }
    taps.finish_entry();
  }
  return taps;
}

int64_t row_grain(const ConvolutionShape& s, int64_t columns) {
  return std::max<int64_t>(1, grain_products / (columns * s.channels * s.taps()));
}

// [channels, taps] as [taps, channels].
void turn_weights(const ConvolutionShape& s, const float* weight, float* out) {
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int64_t k = 0; k < s.taps(); ++k) out[k * s.channels + c] = weight[c * s.taps() + k];
  }
}

// Rows and columns of a result, from images of `width` columns.
struct Pass {
  Taps rows, columns;
  std::vector<DepthwiseColumns::Alike> alike;
  int64_t width, image_size, channels, kernel_width, step;
  const simd::DepthwiseLoops* loops;

  // From the image to the result, and back.
  static Pass forward(const ConvolutionShape& s) {
    return {s, forward_taps(s.h), forward_taps(s.w), s.h.from, s.w.from, forward_window(s.w), 1};
  }
  static Pass backward(const ConvolutionShape& s) {
    return {s,      backward_taps(s.h),   backward_taps(s.w), s.h.to,
            s.w.to, backward_window(s.w), s.w.stride};
  }

  simd::DepthwiseRow row(const float* image, int64_t i) const {
    const int64_t seen = rows.end(i), line = width * channels;
    const int64_t next = i + 1 < rows.count() ? std::max(rows.end(i + 1), seen) : seen;
    const float* ahead = image + seen * line;
    return {image,        width, channels,           rows.of(i), rows.count_of(i),
            kernel_width, ahead, (next - seen) * line};
  }
  DepthwiseColumns taken() const {
    return {columns.first.data(), columns.taps.data(), alike.data(), columns.count(), step};
  }

 private:
  Pass(const ConvolutionShape& s, Taps rows_taken, Taps columns_taken, int64_t image_height,
       int64_t image_width, const DepthwiseWindow& window, int64_t columns_step)
      : rows(std::move(rows_taken)),
        columns(std::move(columns_taken)),
        alike(columns.alike(window, columns_step)),
        width(image_width),
        image_size(image_height * image_width * s.channels),
        channels(s.channels),
        kernel_width(s.w.kernel),
        step(columns_step),
        loops(&simd::depthwise_loops(window)) {}
};

struct Operands {
  const float *images, *weight, *bias;
  float* out;
};

void convolve(const ConvolutionShape& s, const Pass& pass, const Operands& in, const Args& args) {
  auto* weights = reinterpret_cast<float*>(args.scratch);
  turn_weights(s, in.weight, weights);
  const int64_t height = pass.rows.count(), line = pass.columns.count() * s.channels;
  parallel_for(args.threads, s.images * height, row_grain(s, pass.columns.count()), [&](int64_t i) {
    const float* image = in.images + i / height * pass.image_size;
    pass.loops->convolve(pass.row(image, i % height), pass.taken(), weights,
                         in.bias, in.out + i * line);
  });
}

size_t weights_bytes(const ConvolutionShape& s) {
  return static_cast<size_t>(s.taps() * s.channels) * sizeof(float);
}

// Sums are taken over at most this many parts of the rows, whatever the number of threads.
constexpr int64_t most_parts = 8;

// The sum of all parts [taps, channels], in place of the first, as [channels, taps].
void add_parts(const ConvolutionShape& s, double* sums, int64_t parts, float* out) {
  const int64_t numbers = s.taps() * s.channels;
  for (int64_t part = 1; part < parts; ++part) {
    const double* other = sums + part * numbers;
    for (int64_t i = 0; i < numbers; ++i) sums[i] += other[i];
  }
  for (int64_t c = 0; c < s.channels; ++c) {
    for (int64_t k = 0; k < s.taps(); ++k) {
      out[c * s.taps() + k] = static_cast<float>(sums[k * s.channels + c]);
    }
  }
}

}  // namespace

Prepared depthwise_convolution(const ConvProblem& p) {
  const ConvolutionShape s = p.shape();
  const bool is_forward = p.is(ConvProblem::Direction::forward);
  const Pass pass = is_forward ? Pass::forward(s) : Pass::backward(s);
  const auto run = [=](const Args& args) {
    convolve(s, pass,
             {args.in<float>(0), args.in<float>(is_forward ? 1 : 2),
              is_forward ? args.in<float>(2) : nullptr, args.out<float>(0)},
             args);
  };
  return {run, weights_bytes(s)};
}

Prepared depthwise_weight_gradient(const ConvProblem& p) {
  const ConvolutionShape s = p.shape();
  const Pass pass = Pass::forward(s);
  const std::vector<simd::DepthwiseRange> columns = ranges(s.w);
  const int64_t rows = s.images * s.h.to, parts = std::min(most_parts, rows);
  const int64_t numbers = s.taps() * s.channels;
  const auto run = [=](const Args& args) {
    auto* sums = reinterpret_cast<double*>(args.scratch);
    parallel_parts(args.threads, parts, rows, [&](int64_t part, int64_t begin, int64_t end) {
      double* own = sums + part * numbers;
      std::fill_n(own, numbers, 0.0);
      for (int64_t i = begin; i < end; ++i) {
        const float* image = args.in<float>(1) + i / s.h.to * pass.image_size;
        const float* grad = args.in<float>(0) + i * s.w.to * s.channels;
        pass.loops->weight_sums(pass.row(image, i % s.h.to), columns.data(), grad, own);
      }
    });
    add_parts(s, sums, parts, args.out<float>(1));
  };
  return {run, static_cast<size_t>(parts * numbers) * sizeof(double)};
}

}  // namespace poptorch::kernels

#include "kernels/conv/depthwise.h"

#include <algorithm>
#include <vector>

#include "kernels/conv/depthwise_loops.h"
#include "kernels/conv/shape.h"
#include "kernels/move/copy.h"
#include "ops/layout.h"
#include "support/align.h"
#include "support/ceil_div.h"
#include "support/parallel.h"

namespace poptorch::kernels {
namespace {

using simd::DepthwiseTap;

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

  void add(int64_t source, int64_t weight) {
    taps.push_back({static_cast<int32_t>(source), static_cast<int32_t>(weight)});
  }
  void finish_entry() { first.push_back(static_cast<int32_t>(taps.size())); }

  // Whether entries i and i + 1 take by the same weights, `apart` entries from each other.
  bool follows(int64_t i, int64_t apart) const {
    const DepthwiseTap *a = of(i), *b = of(i + 1);
    return count_of(i) == count_of(i + 1) &&
           std::equal(a, a + count_of(i), b, [&](const DepthwiseTap& s, const DepthwiseTap& t) {
             return s.weight == t.weight && t.source - s.source == apart;
           });
  }

  // 1 where four entries can be computed together.
  std::vector<uint8_t> alike() const {
    std::vector<uint8_t> marks(static_cast<size_t>(count()), 0);
    for (int64_t i = 0; i + 4 <= count(); ++i) {
      if (count_of(i) == 0 || count_of(i + 1) == 0) continue;
      const int64_t apart = of(i + 1)->source - of(i)->source;
      marks[static_cast<size_t>(i)] =
          follows(i, apart) && follows(i + 1, apart) && follows(i + 2, apart);
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

// What each entry of the image's gradient takes from that of the result.
Taps backward_taps(const ConvolutionAxis& axis) {
  Taps taps;
  for (int64_t i = 0; i < axis.from; ++i) {
    for (int64_t k = 0; k < axis.kernel; ++k) {
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
  std::vector<uint8_t> alike;
  int64_t width, channels, kernel_width;
  const simd::DepthwiseLoops* loops = &simd::depthwise_loops();

  Pass(const ConvolutionShape& s, Taps rows_taken, Taps columns_taken, int64_t image_width)
      : rows(std::move(rows_taken)),
        columns(std::move(columns_taken)),
        alike(columns.alike()),
        width(image_width),
        channels(s.channels),
        kernel_width(s.w.kernel) {}

  simd::DepthwiseRow row(const float* image, int64_t i) const {
    return {image, width, channels, rows.of(i), rows.count_of(i), kernel_width};
  }
  simd::DepthwiseColumns taken() const {
    return {columns.first.data(), columns.taps.data(), alike.data(), columns.count()};
  }
};

// Images of an operand with channels last: as they lie, or copied into scratch.
struct Images {
  size_t operand;
  bool copied;
  CopyPlan plan;
  int64_t elements;

  Images(const Call& call, size_t operand)
      : operand(operand),
        copied(!ops::lies_channels_last(call.in(operand))),
        elements(call.in(operand).numel()) {
    const ir::Type last = ops::channels_last(call.in(operand));
    plan = CopyPlan(last.sizes, ir::contiguous_strides(last.sizes), last.actual_strides(), 4);
  }

  size_t scratch_bytes() const { return copied ? align_up(static_cast<size_t>(elements) * 4) : 0; }
  const float* get(const Args& args) const {
    if (!copied) return args.in<float>(operand);
    plan.run(args.scratch, args.inputs[operand], args.threads);
    return reinterpret_cast<const float*>(args.scratch);
  }
};

struct Operands {
  const float *weight, *bias;
  float* out;
};

void convolve(const ConvolutionShape& s, const Pass& pass, const Images& images, const Operands& in,
              const Args& args) {
  const float* from = images.get(args);
  const int64_t image_size = images.elements / s.images;
  auto* weights = reinterpret_cast<float*>(args.scratch + images.scratch_bytes());
  turn_weights(s, in.weight, weights);
  const int64_t height = pass.rows.count(), line = pass.columns.count() * s.channels;
  parallel_for(args.threads, s.images * height, row_grain(s, pass.columns.count()), [&](int64_t i) {
    const float* image = from + i / height * image_size;
    pass.loops->convolve(pass.row(image, i % height), pass.taken(), weights,
                         in.bias, in.out + i * line);
  });
}

size_t weights_bytes(const ConvolutionShape& s) {
  return static_cast<size_t>(s.taps() * s.channels) * sizeof(float);
}

// Sums are made of this many parts of the rows, whatever the threads.
constexpr int64_t most_parts = 8;

}  // namespace

Prepared depthwise_convolution(const Call& call) {
  const ConvolutionShape s = shape_of(call.attrs(), call.in(0), call.in(1), call.out());
  const Pass pass(s, forward_taps(s.h), forward_taps(s.w), s.w.from);
  const Images images(call, 0);
  const auto run = [=](const Args& args) {
    convolve(s, pass, images, {args.in<float>(1), args.in<float>(2), args.out<float>()}, args);
  };
  return {run, images.scratch_bytes() + weights_bytes(s)};
}

Prepared depthwise_input_gradient(const Call& call) {
  const ConvolutionShape s = shape_of(call.attrs(), call.in(1), call.in(2), call.in(0));
  const Pass pass(s, backward_taps(s.h), backward_taps(s.w), s.w.to);
  const Images images(call, 0);
  const auto run = [=](const Args& args) {
    convolve(s, pass, images, {args.in<float>(2), nullptr, args.out<float>(0)}, args);
  };
  return {run, images.scratch_bytes() + weights_bytes(s)};
}

Prepared depthwise_weight_gradient(const Call& call) {
  const ConvolutionShape s = shape_of(call.attrs(), call.in(1), call.in(2), call.in(0));
  const Pass pass(s, forward_taps(s.h), forward_taps(s.w), s.w.from);
  const std::vector<simd::DepthwiseRange> columns = ranges(s.w);
  const int64_t rows = s.images * s.h.to, parts = std::min(most_parts, rows);
  const int64_t numbers = s.taps() * s.channels;
  const Images images(call, 1);
  const auto run = [=](const Args& args) {
    const float* from = images.get(args);
    auto* sums = reinterpret_cast<double*>(args.scratch + images.scratch_bytes());
    parallel_parts(args.threads, parts, rows, [&](int64_t part, int64_t begin, int64_t end) {
      double* own = sums + part * numbers;
      std::fill_n(own, numbers, 0.0);
      for (int64_t i = begin; i < end; ++i) {
        const float* image = from + i / s.h.to * s.h.from * s.w.from * s.channels;
        const float* grad = args.in<float>(0) + i * s.w.to * s.channels;
        pass.loops->weight_sums(pass.row(image, i % s.h.to), columns.data(), grad, own);
      }
    });
    float* out = args.out<float>(1);
    for (int64_t c = 0; c < s.channels; ++c) {
      for (int64_t k = 0; k < s.taps(); ++k) {
        double total = 0;
        for (int64_t part = 0; part < parts; ++part) {
          total += sums[part * numbers + k * s.channels + c];
        }
        out[c * s.taps() + k] = static_cast<float>(total);
      }
    }
  };
  return {run, images.scratch_bytes() + static_cast<size_t>(parts * numbers) * sizeof(double)};
}

}  // namespace poptorch::kernels

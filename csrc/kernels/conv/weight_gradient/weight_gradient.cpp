#include "kernels/conv/weight_gradient/weight_gradient.h"

#include <algorithm>
#include <cstring>

#include "kernels/conv/im2col_last.h"
#include "kernels/gemm/gemm.h"
#include "support/ceil_div.h"
#include "support/memory/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {
namespace {

// Pixels of a strip: enough that a product is worth more than adding it to the sum.
constexpr int64_t strip_pixels = 384, most_pixels = 448;
// Numbers that are worth a thread when they are copied.
constexpr int64_t copy_grain = 16384;
using Axis = ConvolutionAxis;

// `image` is what the kernel stands on: the input, or for a transposed convolution the gradient of
// the output. `rows` are the channels of the other one, as many as the weight has rows.
struct Shape {
  int64_t images, groups, channels, rows;  // of one group
  Axis h, w;

  int64_t pixels() const { return h.to * w.to; }
  int64_t columns() const { return h.kernel * w.kernel * channels; }
  // A strip is some rows of pixels of an image, or several whole images.
  int64_t strip_images() const {
    return std::clamp<int64_t>(strip_pixels / pixels(), 1, images);
  }
  int64_t strip_height() const {
    return strip_images() > 1 ? h.to : std::clamp<int64_t>(strip_pixels / w.to, 1, h.to);
  }
  // Numbers of the padded image, channels last, that a strip sees of one image.
  int64_t seen_width() const { return w.seen(w.to) * channels; }
  int64_t seen_height() const { return h.seen(strip_height()); }
};

Shape sizes_of(const ConvProblem& p) {
  return {p.image().sizes[0], p.groups, p.image().sizes[1] / p.groups,
          p.pixels().sizes[1] / p.groups, p.axis(2), p.axis(1)};
}

template <typename T>
struct Buffers {
  T *seen, *matrix, *values, *sums;
};

template <typename T>
size_t lay_out(const Shape& s, std::byte* scratch, Buffers<T>& out) {
  const int64_t images = s.strip_images();
  const int64_t pixels = images * s.strip_height() * s.w.to;
  size_t offset = 0;
  const auto take = [&](int64_t numbers) {
    T* p = reinterpret_cast<T*>(scratch + offset);
    offset += align_up(static_cast<size_t>(numbers) * sizeof(T));
    return p;
  };
  out.seen = take(images * s.seen_height() * s.seen_width());
  out.matrix = take(pixels * s.columns());
  out.values = take(images > 1 ? s.rows * pixels : 0);
  out.sums = take(s.rows * s.columns());
  return offset;
}

// Rows of the padded image, channels last. `image` is one image's channels of one group, `top` the
// first row, which may lie in the padding.
template <typename T>
void see(const Shape& s, const T* image, int64_t top, int64_t height, T* out, int threads) {
  const int64_t grain = std::max<int64_t>(1, copy_grain / s.seen_width());
  parallel_for(threads, height, grain, [&](int64_t row) {
    T* to = out + row * s.seen_width();
    std::fill_n(to, s.seen_width(), T{0});
    const int64_t y = top + row;
    if (y < 0 || y >= s.h.from) return;
    const int64_t first = s.w.padding;
    const int64_t count = std::min(s.w.from, s.w.seen(s.w.to) - first);  // none when negative
    for (int64_t c = 0; c < s.channels; ++c) {
      const T* from = image + (c * s.h.from + y) * s.w.from;
      for (int64_t x = 0; x < count; ++x) to[(first + x) * s.channels + c] = from[x];
    }
  });
}

// im2col of rows of pixels, from what they see: a row of the matrix for each pixel.
template <typename T>
void im2col(const Shape& s, const T* seen, int64_t height, T* out, int threads) {
  const int64_t grain = std::max<int64_t>(1, copy_grain / (s.w.to * s.columns()));
  const bool is_dense = s.w.dilation == 1;
  const int64_t run = (is_dense ? s.w.kernel : 1) * s.channels;
  const int64_t runs = is_dense ? 1 : s.w.kernel;
  parallel_for(threads, height, grain, [&](int64_t begin, int64_t end) {
    T* to = out + begin * s.w.to * s.columns();
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t x = 0; x < s.w.to; ++x) {
        for (int64_t kh = 0; kh < s.h.kernel; ++kh) {
          const int64_t y = row * s.h.stride + kh * s.h.dilation;
          const T* from = seen + y * s.seen_width() + x * s.w.stride * s.channels;
          for (int64_t i = 0; i < runs; ++i, to += run) {
            std::memcpy(to, from + i * s.w.dilation * s.channels,
                        static_cast<size_t>(run) * sizeof(T));
          }
        }
      }
    }
  });
}

// From [rows, kh, kw, channels] to the weight's [rows, channels, kh, kw].
template <typename T>
void write_weight(const Shape& s, const T* sums, T* dw, int threads) {
  const int64_t kernel = s.h.kernel * s.w.kernel;
  const int64_t grain = std::max<int64_t>(1, copy_grain / s.columns());
  parallel_for(threads, s.rows, grain, [&](int64_t begin, int64_t end) {
    T* to = dw + begin * s.columns();
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t c = 0; c < s.channels; ++c) {
        for (int64_t k = 0; k < kernel; ++k) *to++ = sums[(row * kernel + k) * s.channels + c];
      }
    }
  });
}

// A group's tensors: the images from its first channel on.
template <typename T>
struct Group {
  const T *image, *values;
  T* dw;
};

// The strips that begin at `image`: adds their products to the sums.
template <typename T>
void add_strip(const Shape& s, const Group<T>& group, const Buffers<T>& buffers, int64_t image,
               int64_t top, int threads) {
  const int64_t image_size = s.groups * s.channels * s.h.from * s.w.from;
  const int64_t values_size = s.groups * s.rows * s.pixels();
  const int64_t images = std::min(s.strip_images(), s.images - image);
  const int64_t height = std::min(s.strip_height(), s.h.to - top);
  const int64_t pixels = height * s.w.to;
  for (int64_t i = 0; i < images; ++i) {
    T* seen = buffers.seen + i * s.seen_height() * s.seen_width();
    see(s, group.image + (image + i) * image_size, top * s.h.stride - s.h.padding,
        s.h.seen(height), seen, threads);
    im2col(s, seen, height, buffers.matrix + i * pixels * s.columns(), threads);
  }
  const T* values = group.values + image * values_size + top * s.w.to;
  int64_t stride = s.pixels();
  if (images > 1) {
    stride = images * pixels;
    for (int64_t i = 0; i < images * s.rows; ++i) {
      std::memcpy(buffers.values + i % s.rows * stride + i / s.rows * pixels,
                  values + i / s.rows * values_size + i % s.rows * pixels,
                  static_cast<size_t>(pixels) * sizeof(T));
    }
    values = buffers.values;
  }
  const double beta = image == 0 && top == 0 ? 0 : 1;
  const int64_t columns = s.columns();
  gemm<T>({s.rows, columns, images * pixels, false, false, stride, columns, columns, 1, beta},
          values, buffers.matrix, buffers.sums, threads);
}

template <typename T>
void weight_gradient(const Shape& s, bool transposed, const Args& args) {
  Buffers<T> buffers;
  lay_out(s, args.scratch, buffers);
  const T *image = args.in<T>(transposed ? 0 : 1), *values = args.in<T>(transposed ? 1 : 0);
  for (int64_t g = 0; g < s.groups; ++g) {
    const Group<T> group{image + g * s.channels * s.h.from * s.w.from,
                         values + g * s.rows * s.pixels(),
                         args.out<T>(1) + g * s.rows * s.columns()};
    for (int64_t i = 0; i < s.images; i += s.strip_images()) {
      for (int64_t top = 0; top < s.h.to; top += s.strip_height()) {
        add_strip(s, group, buffers, i, top, args.threads);
      }
    }
    write_weight(s, buffers.sums, group.dw, args.threads);
  }
}

template <typename T>
Prepared prepare(const ConvProblem& p) {
  const Shape s = sizes_of(p);
  const bool transposed = p.transposed;
  Buffers<T> buffers;
  const size_t bytes = lay_out(s, nullptr, buffers);
  return {[=](const Args& args) { weight_gradient<T>(s, transposed, args); }, bytes};
}

template <typename T>
Prepared prepare_last(const ConvProblem& p) {
  const ConvolutionShape s = p.shape();
  const MatrixColumns columns{0, s.taps() * s.channels};
  const int64_t all = s.lines() * s.w.to, strips = ceil_div(all, most_pixels);
  const int64_t strip = ceil_div(all, strips);  // all alike: short ones only add to the sum
  const auto run = [=](const Args& args) {
    const T *values = args.in<T>(0), *images = args.in<T>(1);
    T* matrix = reinterpret_cast<T*>(args.scratch);
    const int64_t grain = std::max<int64_t>(1, copy_grain / columns.count());
    for (int64_t first = 0; first < all; first += strip) {
      const int64_t count = std::min(strip, all - first);
      parallel_for(args.threads, count, grain, [&](int64_t begin, int64_t end) {
        im2col_rows(s, images, first + begin, first + end, columns,
                    matrix + begin * columns.count());
      });
      gemm<T>({s.outputs, columns.count(), count, true, false, s.outputs, columns.count(),
               columns.count(), 1, first == 0 ? 0.0 : 1.0},
              values + first * s.outputs, matrix, args.out<T>(1), args.threads);
    }
  };
  return {run, align_up(static_cast<size_t>(strip * columns.count()) * sizeof(T))};
}

}  // namespace

Prepared im2col_weight_gradient_last(const ConvProblem& p) {
  return p.x.dtype == ir::DType::f64 ? prepare_last<double>(p) : prepare_last<float>(p);
}

Prepared im2col_weight_gradient(const ConvProblem& p) {
  return p.x.dtype == ir::DType::f64 ? prepare<double>(p) : prepare<float>(p);
}

}  // namespace poptorch::kernels

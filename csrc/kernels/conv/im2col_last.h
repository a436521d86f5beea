// im2col of images that lie channels-last: what the kernel sees of the image at a pixel of the
// result is a row [(line of the kernel, column of the kernel, channel)], zero where it reaches into
// the padding.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/conv/shape.h"

namespace poptorch::kernels {

// Numbers [first, first + n) of a line of `length` numbers; those outside of it are 0.
template <typename T>
void copy_clipped(const T* line, int64_t length, int64_t first, int64_t n, T* to) {
  const int64_t begin = std::clamp<int64_t>(-first, 0, n);
  const int64_t end = std::clamp<int64_t>(length - first, begin, n);
  std::fill_n(to, begin, T{0});
  std::copy_n(line + first + begin, end - begin, to + begin);
  std::fill_n(to + end, n - end, T{0});
}

// Columns of an im2col matrix.
struct MatrixColumns {
  int64_t begin, end;

  int64_t count() const { return end - begin; }
};

// The row of pixel `pixel` of all images, in these columns.
template <typename T>
void im2col_row(const ConvolutionShape& s, const T* images, int64_t pixel, MatrixColumns columns,
                T* to) {
  const int64_t of_image = s.h.to * s.w.to, line_size = s.w.from * s.channels;
  const T* image = images + pixel / of_image * s.h.from * line_size;
  const int64_t top = pixel / s.w.to % s.h.to * s.h.stride - s.h.padding;
  const int64_t left = pixel % s.w.to * s.w.stride - s.w.padding;
  // What columns of the kernel see that are side by side is one run of memory.
  const int64_t runs = s.w.dilation == 1 ? 1 : s.w.kernel;
  const int64_t run = s.w.kernel / runs * s.channels;
  for (int64_t at = columns.begin; at < columns.end;) {
    const int64_t tap = at / run, in_run = at % run;
    const int64_t n = std::min(run - in_run, columns.end - at);
    const int64_t y = top + tap / runs * s.h.dilation;
    const int64_t x = left + tap % runs * s.w.dilation;
    if (y < 0 || y >= s.h.from) {
      std::fill_n(to, n, T{0});
    } else {
      copy_clipped(image + y * line_size, line_size, x * s.channels + in_run, n, to);
    }
    at += n;
    to += n;
  }
}

// Those of pixels [begin, end), one behind the other.
template <typename T>
void im2col_rows(const ConvolutionShape& s, const T* images, int64_t begin, int64_t end,
                 MatrixColumns columns, T* to) {
  for (int64_t pixel = begin; pixel < end; ++pixel, to += columns.count()) {
    im2col_row(s, images, pixel, columns, to);
  }
}

}  // namespace poptorch::kernels

// im2col, col2im: row by row of the images.
#include <algorithm>

#include "kernels/index/rows.h"
#include "kernels/reduction/types.h"
#include "ops/families/columns.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ops::SlidingBlocks;
using ops::WindowAxis;

// The blocks whose pixel `tap` lies inside the image along one axis, [begin, end), and the image
// position of the first of them.
struct Inside {
  int64_t begin, end, first;

  Inside(const WindowAxis& axis, int64_t tap) {
    const int64_t start = tap * axis.dilation - axis.padding;  // of block 0, maybe negative
    const auto blocks_before = [&](int64_t position) {
      const int64_t away = position - start;
      return std::clamp<int64_t>(away > 0 ? ceil_div(away, axis.stride) : 0, 0,
                                 axis.out);
    };
    begin = blocks_before(0);
    end = std::max(begin, blocks_before(axis.size));
    first = start + begin * axis.stride;
  }
};

// A row of the matrix: what one pixel of the block sees in all blocks.
template <typename T>
void fill_row(const SlidingBlocks& s, const T* plane, int64_t k, int64_t l, T* out) {
  const Inside rows(s.h, k), columns(s.w, l);
  std::fill_n(out, rows.begin * s.w.out, T{0});
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int64_t row = rows.first + (i - rows.begin) * s.h.stride;
    const T* from = plane + row * s.w.size + columns.first;
    T* to = out + i * s.w.out;
    const int64_t n = columns.end - columns.begin;
    std::fill_n(to, columns.begin, T{0});
    if (s.w.stride == 1) {
      std::copy_n(from, n, to + columns.begin);
    } else {
      for (int64_t j = 0; j < n; ++j) to[columns.begin + j] = from[j * s.w.stride];
    }
    std::fill(to + columns.end, to + s.w.out, T{0});
  }
  std::fill(out + rows.end * s.w.out, out + s.blocks(), T{0});
}

// Adds a row of the matrix to the image.
template <typename T>
void add_row(const SlidingBlocks& s, const T* in, int64_t k, int64_t l, T* plane) {
  const Inside rows(s.h, k), columns(s.w, l);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int64_t row = rows.first + (i - rows.begin) * s.h.stride;
    T* __restrict to = plane + row * s.w.size + columns.first;
    const T* __restrict from = in + i * s.w.out + columns.begin;
    const int64_t n = columns.end - columns.begin;
    if (s.w.stride == 1) {
      for (int64_t j = 0; j < n; ++j) to[j] = static_cast<T>(to[j] + from[j]);
    } else {
      for (int64_t j = 0; j < n; ++j) {
        to[j * s.w.stride] = static_cast<T>(to[j * s.w.stride] + from[j]);
      }
    }
  }
}

Prepared im2col(const Call& call) {
  const SlidingBlocks s = ops::sliding_blocks({call.op}, call.in(0).sizes);
  return with_item_type(ir::item_bytes(call.in(0).dtype), [&]<typename T>(T) -> Prepared {
    return {[s](const Args& args) {
      const int64_t each = s.in_block();
      parallel_for(args.threads, s.planes * each, grain_for(s.blocks()), [&](int64_t i) {
        const T* plane = args.in<T>(0) + i / each * s.h.size * s.w.size;
        fill_row(s, plane, i % each / s.w.kernel, i % s.w.kernel,
                 args.out<T>() + i * s.blocks());
      });
    }};
  });
}

Prepared col2im(const Call& call) {
  const SlidingBlocks s = ops::sliding_blocks({call.op}, call.out().sizes);
  return with_type(call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    return {[s](const Args& args) {
      const int64_t each = s.in_block(), pixels = s.h.size * s.w.size;
      parallel_for(args.threads, s.planes, grain_for(each * s.blocks()), [&](int64_t p) {
        T* plane = args.out<T>() + p * pixels;
        std::fill_n(plane, pixels, T{0});
        for (int64_t i = 0; i < each; ++i) {
          add_row(s, args.in<T>(0) + (p * each + i) * s.blocks(), i / s.w.kernel,
                  i % s.w.kernel, plane);
        }
      });
    }};
  });
}

KERNEL("im2col", im2col, true)
KERNEL("col2im", col2im)

}  // namespace

}  // namespace poptorch::kernels

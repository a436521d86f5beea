// The loops of conv/direct_weight_gradient.h. Included by each_isa.h.

#include "kernels/gemm/tiles.inl"
#include "kernels/conv/window.inl"

using kernels::WeightPart;
using kernels::DirectGradient;

// A tile of R rows and V vectors from the pixels of a strip; `first`: of what a line sees.
template <int R, int V>
void multiply_pixels(const DirectGradient& t, const PixelStrip& strip, const float* values,
                     const Seen& panel, int64_t first, const Tile& tile) {
  vf sums[R][V];
  begin_tile(sums, tile);
  for (int64_t line = 0; line < strip.lines; ++line) {
    const float* seen = panel.numbers + panel.starts[line] + first;
    for (int64_t p = 0; p < t.w.to; ++p) {
      rank_1_update(sums, values, 1, seen);
      values += R;
      seen += t.w.stride * V * width;
    }
  }
  put_tile(sums, tile);
}

// A panel of one vector has twice as many rows in the same registers.
constexpr int one_vector_mr = 2 * MR;
inline auto multiply_of(const Seen& panel, int64_t rows) {
  if (panel.step > width) {
    return for_rows<MR>(rows, []<int R>() { return &multiply_pixels<R, 2>; });
  }
  return for_rows<one_vector_mr>(rows, []<int R>() { return &multiply_pixels<R, 1>; });
}

// Adds what a strip gives for some rows of the part, at its taps of the kernel; its first strip
// writes dw.
inline void add_rows(const DirectGradient& t, const WeightPart& part, const PixelStrip& strip,
                     const Seen& panel, int64_t rows, const float* values, float* dw) {
  const auto multiply = multiply_of(panel, rows);
  Tile tile{.stride = t.taps() * t.channels,
            .columns = part.channels,
            .beta = strip.first > t.first_line(part.strip) ? 1.0f : 0.0f};
  for (int64_t tap = part.tap; tap < part.tap + part.taps; ++tap) {
    const int64_t kh = tap / t.w.kernel, kw = tap % t.w.kernel;
    const int64_t first = (kh * t.h.dilation * panel.width + kw * t.w.dilation) * panel.step;
    tile.c = dw + tap * t.channels;
    multiply(t, strip, values, panel, first, tile);
  }
}

// Memory of a thread: a panel, values of a group of rows, where lines begin.
inline int64_t panel_numbers(const DirectGradient& t) {
  return align_numbers<float>(seen_numbers(t, t.most_lines(), NR));
}
inline int64_t value_numbers(const DirectGradient& t) {
  return align_numbers<float>(t.most_lines() * t.w.to * one_vector_mr + width);
}
inline int64_t weight_memory(const DirectGradient& t) {
  return panel_numbers(t) + value_numbers(t) + 2 * t.most_lines();
}

inline void sum_weights(const DirectGradient& t, const WeightPart& part, const float* x,
                        const float* dy, float* dw, float* memory) {
  float* values = memory + panel_numbers(t);
  const Seen panel{.numbers = memory,
                   .starts = reinterpret_cast<int64_t*>(values + value_numbers(t)),
                   .first = part.channel,
                   .count = part.channels,
                   .step = panel_step(part.channels),
                   .width = t.w.seen(t.w.to)};
  const Groups groups(part.rows, panel.step > width ? MR : one_vector_mr);
  for (int64_t i = part.strip; i < part.strip + part.strips; ++i) {
    const PixelStrip strip{t.first_line(i), t.first_line(i + 1) - t.first_line(i)};
    see(t, strip, x, panel);
    for (int64_t group = 0; group < groups.count; ++group) {
      const int64_t row = part.row + groups.begin(group), rows = groups.size(group);
      copy_transposed(dy + strip.first * t.w.to * t.outputs + row, t.outputs, rows,
                  strip.lines * t.w.to, values);
      add_rows(t, part, strip, panel, rows, values,
               dw + row * t.taps() * t.channels + part.channel);
    }
  }
}

inline constexpr DirectGradientFunctions direct_gradient_functions = {sum_weights,
                                                                      weight_memory, NR};

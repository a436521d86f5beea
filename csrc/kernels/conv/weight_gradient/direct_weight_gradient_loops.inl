// The loops of direct_weight_gradient.h, of each type of numbers T: floats, or bfloat16
// numbers; those of two pixels make a word. Included after gemm/tiles.inl,
// conv/window.inl and
//
//   Words<T>                        see gemm/tiles.inl;
//   see_line(..., const T* ...)     as that of floats, of words: of two numbers, what a pixel sees
//                                   and what the next one sees, `stride` further;
//   copy_transposed(const T* ...)   as that of floats, of words.

using kernels::WeightPart;
using kernels::DirectGradient;

// A tile of R rows and V vectors from the pixels of a strip; `first`: of what a line sees.
template <typename T, int R, int V>
void multiply_pixels(const DirectGradient& t, const PixelStrip& strip, const float* values,
                     const Seen& panel, int64_t first, const Tile& tile) {
  vf sums[R][V];
  begin_tile(sums, tile);
  const int64_t whole = t.w.to / Words<T>::numbers;  // words of a line
  for (int64_t line = 0; line < strip.lines; ++line) {
    const float* seen = panel.numbers + panel.starts[line] + first;
    for (int64_t p = 0; p < whole; ++p) {
      rank_1_update<typename Words<T>::Product>(sums, values, 1, seen);
      values += R;
      seen += Words<T>::numbers * t.w.stride * V * width;
    }
    if (whole * Words<T>::numbers == t.w.to) continue;
    // What the last pixel is packed with would be multiplied by 0, and may be infinite.
    alignas(alignment_bytes) float last[V * width];
    for (int j = 0; j < V; ++j) {
      store(last + j * width, Words<T>::first_numbers(load(seen + j * width)));
    }
    rank_1_update<typename Words<T>::Product>(sums, values, 1, last);
    values += R;
  }
  put_tile(sums, tile);
}

// A panel of one vector has twice as many rows in the same registers.
constexpr int one_vector_mr = 2 * MR;
template <typename T>
auto multiply_of(const Seen& panel, int64_t rows) {
  if (panel.step > width) {
    return for_rows<MR>(rows, []<int R>() { return &multiply_pixels<T, R, 2>; });
  }
  return for_rows<one_vector_mr>(rows, []<int R>() { return &multiply_pixels<T, R, 1>; });
}

// Adds what a strip gives for some rows of the part, at its taps of the kernel; its first strip
// writes dw.
template <typename T>
void add_rows(const DirectGradient& t, const WeightPart& part, const PixelStrip& strip,
              const Seen& panel, int64_t rows, const float* values, float* dw) {
  const auto multiply = multiply_of<T>(panel, rows);
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

// The values of some rows, as words. Those of a line begin with a word of their own.
template <typename T>
void pack_values(const DirectGradient& t, int64_t lines, const T* dy, int64_t rows, float* values) {
  const bool ends_in_words = t.w.to % Words<T>::numbers == 0;
  const int64_t runs = ends_in_words ? 1 : lines, run = lines / runs * t.w.to;
  for (int64_t i = 0; i < runs; ++i) {
    copy_transposed(dy + i * run * t.outputs, t.outputs, rows, run,
                    values + i * Words<T>::of(run) * rows);
  }
}

template <typename T>
void sum_weights(const DirectGradient& t, const WeightPart& part, const T* x, const T* dy,
                 float* dw, float* memory) {
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
    see(t, strip, x, panel, see_line);
    for (int64_t group = 0; group < groups.count; ++group) {
      const int64_t row = part.row + groups.begin(group), rows = groups.size(group);
      pack_values(t, strip.lines, dy + strip.first * t.w.to * t.outputs + row, rows, values);
      add_rows<T>(t, part, strip, panel, rows, values,
               dw + row * t.taps() * t.channels + part.channel);
    }
  }
}

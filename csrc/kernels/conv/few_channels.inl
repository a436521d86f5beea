// The loops of conv/few_channels.h. Included by each_isa.h.

#include "kernels/gemm/tiles.inl"
#include "kernels/conv/window.inl"

using kernels::ConvolutionWeights;

// Pixels of a tile: two vectors of sums for each fill the registers.
constexpr int most_pixels = SIMD_WIDTH == 16 ? 14 : 6;

inline int64_t columns_of(const ConvolutionShape& s) { return s.taps() * s.channels; }

// All weights of a panel of outputs, then those of the next one. Outputs past the last one are 0.
inline void pack_few(const ConvolutionShape& s, const ConvolutionWeights& from, float* packed) {
  for (int64_t panel = 0; panel < s.outputs; panel += NR) {
    const int64_t step = panel_step(s.outputs - panel);
    for (int64_t tap = 0; tap < s.taps(); ++tap) {
      for (int64_t c = 0; c < s.channels; ++c) {
        const float* w = from.weights + tap / s.w.kernel * from.line +
                         tap % s.w.kernel * from.column + c * from.channel;
        for (int64_t i = 0; i < step; ++i) {
          const int64_t output = panel + i;
          *packed++ = output < s.outputs ? w[output * from.output] : 0.0f;
        }
      }
    }
  }
}

// R pixels. The first one sees the image from `seen` on.
template <int R, int V>
void convolve_pixels(const ConvolutionShape& s, const float* seen, const float* weights,
                     const Tile& tile) {
  const int64_t step = s.w.stride * s.channels, run = s.w.kernel * s.channels;
  const int64_t line = s.h.dilation * s.w.seen(s.w.to) * s.channels;
  vf sums[R][V] = {};
  for (int64_t kh = 0; kh < s.h.kernel; ++kh, seen += line) {
    for (int64_t t = 0; t < run; ++t, weights += V * width) {
      rank_1_update(sums, seen + t, step, weights);
    }
  }
  put_tile(sums, tile);
}

template <int V>
inline auto convolve_of(int64_t pixels) {
  return for_rows<most_pixels>(pixels, []<int R>() { return &convolve_pixels<R, V>; });
}

// A line of pixels. `tile` is that of its first pixel and output, for all outputs.
inline void convolve_line(const ConvolutionShape& s, const float* seen, const float* packed,
                          const Tile& tile) {
  const Groups groups(s.w.to, most_pixels);
  for (int64_t at = 0; at < s.outputs; at += NR) {
    const bool is_wide = panel_step(s.outputs - at) > width;
    for (int64_t group = 0; group < groups.count; ++group) {
      const int64_t pixel = groups.begin(group), pixels = groups.size(group);
      const Tile part = tile_at(tile, s.outputs, tile.c + pixel * s.outputs, at);
      (is_wide ? convolve_of<2>(pixels) : convolve_of<1>(pixels))(
          s, seen + pixel * s.w.stride * s.channels, packed + at * columns_of(s), part);
    }
  }
}

// Memory of a thread for what it sees at once.
inline int64_t line_memory(const ConvolutionShape& s) {
  return align_numbers<float>(seen_numbers(s, s.lines_at_once(), s.channels)) +
         2 * s.lines_at_once();
}

inline Seen see_all(const ConvolutionShape& s, const PixelStrip& strip, const float* x,
                    float* memory) {
  float* starts =
      memory + align_numbers<float>(seen_numbers(s, s.lines_at_once(), s.channels));
  const Seen seen{.numbers = memory,
                  .starts = reinterpret_cast<int64_t*>(starts),
                  .first = 0,
                  .count = s.channels,
                  .step = s.channels,
                  .width = s.w.seen(s.w.to)};
  see(s, strip, x, seen, see_line);
  return seen;
}

// `lines` lines of pixels, from one on.
inline void convolve_few(const kernels::FewConvolution& f, int64_t first, int64_t lines,
                         const kernels::FewData& data, float* memory) {
  const ConvolutionShape& s = f.shape;
  for (int64_t at = first; at < first + lines; at += s.lines_at_once()) {
    const PixelStrip strip{at, std::min(s.lines_at_once(), first + lines - at)};
    const Seen seen = see_all(s, strip, data.x, memory);
    for (int64_t i = 0; i < strip.lines; ++i) {
      Tile tile{.c = data.y + (at + i) * s.w.to * s.outputs,
                .stride = s.outputs,
                .beta = f.has_residual ? 1.0f : 0.0f,
                .scale = data.scale,
                .bias = data.bias,
                .relu = f.relu};
      convolve_line(s, seen.numbers + seen.starts[i], data.packed, tile);
    }
  }
}

// Sums for R adjacent columns of im2col and V vectors of outputs. `first`: of what a line sees.
template <int R, int V>
void multiply_lines(const ConvolutionShape& s, const PixelStrip& strip, const Seen& seen,
                    int64_t first, const float* dy, const Tile& tile) {
  vf sums[R][V] = {};
  for (int64_t line = 0; line < strip.lines; ++line) {
    const float* from = seen.numbers + seen.starts[line] + first;
    for (int64_t p = 0; p < s.w.to; ++p) {
      rank_1_update(sums, from, 1, dy);
      from += s.w.stride * s.channels;
      dy += s.outputs;
    }
  }
  put_tile(sums, tile);
}

template <int V>
inline auto lines_of(int64_t columns) {
  return for_rows<MR>(columns, []<int R>() { return &multiply_lines<R, V>; });
}

// Adds a strip to sums[column][output], or sets them.
inline void sum_strip(const ConvolutionShape& s, const PixelStrip& strip, const Seen& seen,
                      const float* dy, bool is_first, float* sums) {
  const int64_t run = s.w.kernel * s.channels;
  const Groups groups(run);
  Tile tile{.stride = s.outputs, .beta = is_first ? 0.0f : 1.0f};
  for (int64_t at = 0; at < s.outputs; at += tile.columns) {
    tile.columns = panel_step(s.outputs - at);
    for (int64_t kh = 0; kh < s.h.kernel; ++kh) {
      for (int64_t group = 0; group < groups.count; ++group) {
        const int64_t column = groups.begin(group), columns = groups.size(group);
        tile.c = sums + (kh * run + column) * s.outputs + at;
        (tile.columns > width ? lines_of<2>(columns) : lines_of<1>(columns))(
            s, strip, seen, kh * s.h.dilation * seen.width * s.channels + column, dy + at,
            tile);
      }
    }
  }
}

// What `lines` lines of pixels give, sums[column][output].
inline void sum_few(const kernels::FewConvolution& f, int64_t first, int64_t lines, const float* x,
                    const float* dy, float* sums, float* memory) {
  const ConvolutionShape& s = f.shape;
  for (int64_t at = first; at < first + lines; at += s.lines_at_once()) {
    const PixelStrip strip{at, std::min(s.lines_at_once(), first + lines - at)};
    const Seen seen = see_all(s, strip, x, memory);
    sum_strip(s, strip, seen, dy + at * s.w.to * s.outputs, at == first, sums);
  }
}

inline constexpr FewFunctions few_functions = {pack_few, convolve_few, sum_few, line_memory,
                                               width};

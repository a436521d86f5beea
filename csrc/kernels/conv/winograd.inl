// The loops of conv/winograd.h. Included by each_isa.h.

#include "kernels/gemm/tiles.inl"

using kernels::ConvolutionShape;
using kernels::ConvolutionWeights;
using kernels::Winograd;
using kernels::WinogradData;
using kernels::TileBlock;

constexpr int side = kernels::winograd_side, elements = kernels::winograd_elements;
constexpr int kernel_taps = 9;

// Tiles that are multiplied at once: two vectors of sums for each fill the registers.
constexpr int most_tiles = SIMD_WIDTH == 16 ? 14 : 6;

using Square = vf[side][side];

// What the tile of some pixels becomes: B^T tile B.
[[gnu::always_inline]] inline void transform_tile(Square& d) {
  const auto turn = [](vf& a, vf& b, vf& c, vf& e) {
    const vf first = a - c, second = b + c, third = c - b, fourth = b - e;
    a = first, b = second, c = third, e = fourth;
  };
#pragma GCC unroll 4
  for (int j = 0; j < side; ++j) turn(d[0][j], d[1][j], d[2][j], d[3][j]);
#pragma GCC unroll 4
  for (int i = 0; i < side; ++i) turn(d[i][0], d[i][1], d[i][2], d[i][3]);
}

// What three weights in a row become: one dimension of G kernel G^T.
inline void transform_weights(vf a, vf b, vf c, vf (&out)[side]) {
  out[0] = a;
  out[1] = 0.5f * (a + b + c);
  out[2] = 0.5f * (a - b + c);
  out[3] = c;
}

// Weights of a vector of outputs, of channels [c, c + count): channel after channel, their nine
// taps. A row of memory is read side by side, whichever it is.
inline void gather_weights(const ConvolutionWeights& from, const float* first, int64_t c,
                           int64_t count, float* to) {
  first += c * from.channel;
  const bool is_by_channel = from.column == 1 && from.line == 3 && from.channel == kernel_taps;
  if (is_by_channel) {
    return transpose_rows(first, from.output, width, count * kernel_taps, to, width);
  }
  for (int64_t tap = 0; tap < kernel_taps; ++tap, to += width) {
    const float* of_tap = first + tap / 3 * from.line + tap % 3 * from.column;
    constexpr int64_t step = kernel_taps * width;
    if (from.channel == 1) {
      transpose_rows(of_tap, from.output, width, count, to, step);
      continue;
    }
    for (int64_t i = 0; i < count; ++i) {
      const float* of_channel = of_tap + i * from.channel;
      if (from.output == 1) {
        store(to + i * step, load(of_channel));
      } else {
        for (int64_t j = 0; j < width; ++j) to[i * step + j] = of_channel[j * from.output];
      }
    }
  }
}

// Transforms the nine vectors of a channel: the 16 that they become are put `next` apart.
inline void pack_kernels(const float* weights, vf scale, float* packed, int64_t next) {
  vf lines[3][side];
  for (int64_t i = 0; i < 3; ++i) {
    const float* of_line = weights + 3 * i * width;
    transform_weights(scale * load(of_line), scale * load(of_line + width),
                      scale * load(of_line + 2 * width), lines[i]);
  }
  for (int64_t j = 0; j < side; ++j) {
    vf column[side];
    transform_weights(lines[0][j], lines[1][j], lines[2][j], column);
    for (int64_t i = 0; i < side; ++i) store(packed + (i * side + j) * next, column[i]);
  }
}

// Element after element, of each channel after channel.
inline void pack_panel(const Winograd& s, const kernels::WinogradWeights& weights, int64_t output,
                       float* packed) {
  constexpr int64_t at_once = 16;
  alignas(alignment_bytes) float gathered[at_once * kernel_taps * width];
  const int64_t channels = s.shape.channels, step = panel_step(s.shape.outputs - output);
  for (int64_t at = 0; at < step; at += width) {
    const float* first = weights.plain.weights + (output + at) * weights.plain.output;
    const vf scale = weights.scale == nullptr ? splat(1.0f) : load(weights.scale + output + at);
    for (int64_t c = 0; c < channels; c += at_once) {
      gather_weights(weights.plain, first, c, at_once, gathered);
      for (int64_t i = 0; i < at_once; ++i) {
        pack_kernels(gathered + i * kernel_taps * width, scale, packed + (c + i) * step + at,
                     s.weight_step(step));
      }
    }
  }
}

// A tile of the image: where its pixels are. Those in the padding are zeros.
struct ImageTile {
  int64_t image, line, column;  // of the result, of its first pixel
  const float* pixels[side][side];

  ImageTile(const Winograd& s, int64_t index, const WinogradData& data) {
    const int64_t in_line = s.in_line(), in_image = in_line * s.lines();
    image = index / in_image;
    line = 2 * (index % in_image / in_line);
    column = 2 * (index % in_line);
    const ConvolutionShape& shape = s.shape;
    for (int64_t i = 0; i < side; ++i) {
      const int64_t h = line - shape.h.padding + i;
      const float* from = data.x + (image * shape.h.from + h) * shape.w.from * shape.channels;
      for (int64_t j = 0; j < side; ++j) {
        const int64_t w = column - shape.w.padding + j;
        const bool inside = h >= 0 && h < shape.h.from && w >= 0 && w < shape.w.from;
        pixels[i][j] = inside ? from + w * shape.channels : data.zeros;
      }
    }
  }
};

inline void transform_pixels(const Winograd& s, const ImageTile& tile, float* to) {
  for (int64_t c = 0; c < s.shape.channels; c += width) {
    Square d;
#pragma GCC unroll 4
    for (int i = 0; i < side; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < side; ++j) d[i][j] = load(tile.pixels[i][j] + c);
    }
    transform_tile(d);
#pragma GCC unroll 4
    for (int i = 0; i < side; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < side; ++j) store(to + (i * side + j) * s.element_step() + c, d[i][j]);
    }
  }
}

inline void transform_tiles(const Winograd& s, const WinogradData& data, const TileBlock& block,
                            int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    transform_pixels(s, ImageTile(s, block.first + i, data), block.numbers + i * s.tile_step());
  }
}

// Sums over some channels, which are added to those of the channels before: long sums round less
// in parts, whose weights stay in the first cache. For R tiles and V vectors of outputs.
template <int R, int V>
void sum_channels(const float* tiles, int64_t apart, const float* weights, int64_t channels,
                  bool is_first, float* sums) {
  vf sum[R][V] = {};
  for (int64_t c = 0; c < channels; ++c) {
    rank_1_update(sum, tiles + c, apart, weights + c * V * width);
  }
#pragma GCC unroll 24
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) {
      float* to = sums + i * NR + j * width;
      store(to, is_first ? sum[i][j] : load(to) + sum[i][j]);
    }
  }
}

template <int V>
inline auto sums_of(int64_t tiles) {
  return for_rows<most_tiles>(tiles, []<int R>() { return &sum_channels<R, V>; });
}

// The sums of a panel of outputs, for all elements and tiles.
inline void sum_panel(const Winograd& s, const TileBlock& block, const float* weights,
                      int64_t step, float* sums) {
  constexpr int64_t most_channels = 64;
  const Groups groups(block.count, most_tiles);
  for (int64_t element = 0; element < elements; ++element) {
    const float* tiles = block.numbers + element * s.element_step();
    const float* of_weights = weights + element * s.weight_step(step);
    float* of_element = sums + element * s.sum_step();
    for (int64_t c = 0; c < s.shape.channels; c += most_channels) {
      const int64_t channels = std::min(most_channels, s.shape.channels - c);
      for (int64_t group = 0; group < groups.count; ++group) {
        const int64_t first = groups.begin(group), count = groups.size(group);
        (step > width ? sums_of<2>(count) : sums_of<1>(count))(
            tiles + first * s.tile_step() + c, s.tile_step(), of_weights + c * step, channels,
            c == 0, of_element + first * NR);
      }
    }
  }
}

// Pixels [0, 2) x [0, 2) of the result: A^T sums A.
[[gnu::always_inline]] inline void transform_sums(const float* sums, int64_t next, vf (&y)[2][2]) {
  vf half[2][side];
#pragma GCC unroll 4
  for (int j = 0; j < side; ++j) {
    vf m[side];
#pragma GCC unroll 4
    for (int i = 0; i < side; ++i) m[i] = load(sums + (i * side + j) * next);
    half[0][j] = m[0] + m[1] + m[2];
    half[1][j] = m[1] - m[2] - m[3];
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    y[i][0] = half[i][0] + half[i][1] + half[i][2];
    y[i][1] = half[i][1] - half[i][2] - half[i][3];
  }
}

// The weights of a channel and some outputs as they were before they were packed.
inline vf unpacked(const float* packed, int64_t next, int64_t line, int64_t column) {
  const auto of_line = [&](int64_t i) {
    const float* at = packed + i * side * next;
    if (column == 1) return load(at + next) - load(at + 2 * next);
    return load(at + (column == 0 ? 0 : 3) * next);
  };
  return line == 1 ? of_line(1) - of_line(2) : of_line(line == 0 ? 0 : 3);
}

// The same pixels for any numbers, each from what its kernel sees and no more.
[[gnu::noinline]] inline void convolve_directly(const Winograd& s, const ImageTile& tile,
                                                const float* weights, int64_t step,
                                                vf (&y)[2][2]) {
  const int64_t next = s.weight_step(step);
  for (int64_t pixel = 0; pixel < 4; ++pixel) {
    vf sum = {};
    for (int64_t tap = 0; tap < kernel_taps; ++tap) {
      const float* from = tile.pixels[pixel / 2 + tap / 3][pixel % 2 + tap % 3];
      for (int64_t c = 0; c < s.shape.channels; ++c) {
        const vf w = unpacked(weights + c * step, next, tap / 3, tap % 3);
        sum = multiply_add(splat(from[c]), w, sum);
      }
    }
    y[pixel / 2][pixel % 2] = sum;
  }
}

// Writes a vector of outputs, from `output` on, of the pixels of a tile that there are.
inline void put_pixels(const Winograd& s, const ImageTile& tile, const WinogradData& data,
                       int64_t output, const vf (&y)[2][2]) {
  const ConvolutionShape& shape = s.shape;
  const vf bias = data.bias == nullptr ? vf{} : load(data.bias + output);
  for (int64_t i = 0; i < std::min<int64_t>(2, shape.h.to - tile.line); ++i) {
    for (int64_t j = 0; j < std::min<int64_t>(2, shape.w.to - tile.column); ++j) {
      const int64_t line = tile.image * shape.h.to + tile.line + i;
      const int64_t at = (line * shape.w.to + tile.column + j) * shape.outputs + output;
      vf value = y[i][j] + bias;
      if (data.residual != nullptr) value += load(data.residual + at);
      if (s.relu) value = select(value < 0, vf{}, value);
      store(data.y + at, value);
    }
  }
}

inline bool is_finite(const vf (&y)[2][2]) {
  const vf sum = abs(y[0][0]) + abs(y[0][1]) + abs(y[1][0]) + abs(y[1][1]);
  return !any(!(sum < std::numeric_limits<float>::infinity()));
}

// A panel of outputs from `output` on, of all tiles of a block.
inline void convolve_panel(const Winograd& s, const WinogradData& data, const TileBlock& block,
                           int64_t output, const float* weights, float* sums) {
  const int64_t step = panel_step(s.shape.outputs - output);
  sum_panel(s, block, weights, step, sums);
  for (int64_t i = 0; i < block.count; ++i) {
    const ImageTile tile(s, block.first + i, data);
    for (int64_t at = 0; at < step; at += width) {
      vf y[2][2];
      transform_sums(sums + i * NR + at, s.sum_step(), y);
      if (!is_finite(y)) convolve_directly(s, tile, weights + at, step, y);
      put_pixels(s, tile, data, output + at, y);
    }
  }
}

inline constexpr WinogradFunctions winograd_functions = {transform_tiles, pack_panel,
                                                         convolve_panel, NR};

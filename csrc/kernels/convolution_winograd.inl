// The loops of convolution_winograd.h. Included by each_isa.h.

#include "kernels/gemm_tiles.inl"

using kernels::ConvolutionShape;
using kernels::Winograd;
using kernels::WinogradData;

constexpr int side = ops::winograd_side, places = ops::winograd_places;

// Patches that are multiplied at once: two vectors of sums for each fill the registers.
constexpr int most_patches = SIMD_WIDTH == 16 ? 14 : 6;

using Square = vf[side][side];

// What the patch of some pixels becomes: B^T patch B.
[[gnu::always_inline]] inline void transform_patch(Square& d) {
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

// A weight of each output of a vector.
inline vf load_outputs(const float* from, int64_t apart) {
  if (apart == 1) return load(from);
  alignas(alignment_bytes) float lanes[width];
  for (int64_t i = 0; i < width; ++i) lanes[i] = from[i * apart];
  return load(lanes);
}

// The kernels of a channel, of a vector of outputs: their 16 numbers are put `next` apart.
inline void pack_kernels(const kernels::ConvolutionWeights& from, const float* first,
                         const float* scale, float* packed, int64_t next) {
  vf lines[3][side];
  for (int64_t i = 0; i < 3; ++i) {
    vf w[3];
    for (int64_t j = 0; j < 3; ++j) {
      w[j] = load_outputs(first + i * from.line + j * from.column, from.output);
      if (scale != nullptr) w[j] *= load(scale);
    }
    transform_weights(w[0], w[1], w[2], lines[i]);
  }
  for (int64_t j = 0; j < side; ++j) {
    vf column[side];
    transform_weights(lines[0][j], lines[1][j], lines[2][j], column);
    for (int64_t i = 0; i < side; ++i) store(packed + (i * side + j) * next, column[i]);
  }
}

// Of vectors [first, last) of outputs: panel after panel, of each place after place, of each
// channel after channel.
inline void pack_winograd(const Winograd& s, const kernels::ConvolutionWeights& from,
                          const float* scale, int64_t first, int64_t last, float* packed) {
  const int64_t channels = s.shape.channels;
  for (int64_t output = first * width; output < last * width; output += width) {
    const int64_t panel = output / panel_columns * panel_columns;
    const int64_t step = panel_step(s.shape.outputs - panel);
    float* to = packed + panel * places * channels + (output - panel);
    for (int64_t c = 0; c < channels; ++c) {
      pack_kernels(from, from.weights + output * from.output + c * from.channel,
                   scale == nullptr ? nullptr : scale + output, to + c * step, channels * step);
    }
  }
}

// A patch of the image: where it begins, which may be in the padding, and its pixels. Those in the
// padding are `zeros`.
struct Patch {
  int64_t image, line, column;  // of the result, of its first pixel
  const float* pixels[side][side];

  Patch(const Winograd& s, int64_t index, const float* x, const float* zeros) {
    const int64_t in_line = s.in_line(), in_image = in_line * s.lines();
    image = index / in_image;
    line = 2 * (index % in_image / in_line);
    column = 2 * (index % in_line);
    const ConvolutionShape& shape = s.shape;
    for (int64_t i = 0; i < side; ++i) {
      const int64_t h = line - shape.h.padding + i;
      const float* from = x + (image * shape.h.from + h) * shape.w.from * shape.channels;
      for (int64_t j = 0; j < side; ++j) {
        const int64_t w = column - shape.w.padding + j;
        const bool inside = h >= 0 && h < shape.h.from && w >= 0 && w < shape.w.from;
        pixels[i][j] = inside ? from + w * shape.channels : zeros;
      }
    }
  }
};

// The memory of a strip of patches. Numbers of a patch lie `s.patch_step()` apart, and those of a
// place `of_place` apart; sums of a patch `panel_columns`, and those of a place `sums_of_place`.
struct StripMemory {
  float *zeros, *patches, *sums;
  int64_t of_place, sums_of_place;

  StripMemory(const Winograd& s, float* memory)
      : zeros(memory),
        patches(memory + align_numbers<float>(s.shape.channels)),
        // Places do not lie a power of two apart, or they would contend for few cache lines.
        of_place(s.strip * s.patch_step() + width),
        sums_of_place(s.strip * panel_columns + width) {
    sums = patches + align_numbers<float>(places * of_place);
  }
  int64_t numbers() const { return sums - zeros + align_numbers<float>(places * sums_of_place); }
};

inline int64_t winograd_memory(const Winograd& s) { return StripMemory(s, nullptr).numbers(); }

inline void transform_pixels(const Winograd& s, const Patch& patch, float* to, int64_t next) {
  for (int64_t c = 0; c < s.shape.channels; c += width) {
    Square d;
#pragma GCC unroll 4
    for (int i = 0; i < side; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < side; ++j) d[i][j] = load(patch.pixels[i][j] + c);
    }
    transform_patch(d);
#pragma GCC unroll 4
    for (int i = 0; i < side; ++i) {
#pragma GCC unroll 4
      for (int j = 0; j < side; ++j) store(to + (i * side + j) * next + c, d[i][j]);
    }
  }
}

// Sums over some channels, which are added to those of the channels before: long sums round less
// in parts, whose weights stay in the first cache. For R patches and V vectors of outputs.
template <int R, int V>
void sum_channels(const float* patches, int64_t apart, const float* weights, int64_t channels,
                  bool is_first, float* sums) {
  vf sum[R][V] = {};
  for (int64_t c = 0; c < channels; ++c) add_term(sum, patches + c, apart, weights + c * V * width);
#pragma GCC unroll 24
  for (int i = 0; i < R; ++i) {
#pragma GCC unroll 2
    for (int j = 0; j < V; ++j) {
      float* to = sums + i * panel_columns + j * width;
      store(to, is_first ? sum[i][j] : load(to) + sum[i][j]);
    }
  }
}

template <int V>
inline auto sums_of(int64_t patches) {
  return for_rows<most_patches>(patches, []<int R>() { return &sum_channels<R, V>; });
}

// The sums of a panel of outputs, for all places and patches.
inline void sum_panel(const Winograd& s, const StripMemory& memory, int64_t patches,
                      const float* weights, int64_t step) {
  constexpr int64_t most_channels = 64;
  const Groups groups(patches, most_patches);
  for (int64_t place = 0; place < places; ++place) {
    const float* numbers = memory.patches + place * memory.of_place;
    float* sums = memory.sums + place * memory.sums_of_place;
    for (int64_t c = 0; c < s.shape.channels; c += most_channels) {
      const int64_t channels = std::min(most_channels, s.shape.channels - c);
      for (int64_t group = 0; group < groups.count; ++group) {
        const int64_t first = groups.begin(group), count = groups.size(group);
        (step > width ? sums_of<2>(count) : sums_of<1>(count))(
            numbers + first * s.patch_step() + c, s.patch_step(), weights, channels, c == 0,
            sums + first * panel_columns);
      }
      weights += channels * step;
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
[[gnu::noinline]] inline void convolve_directly(const Winograd& s, const Patch& patch,
                                                const float* weights, int64_t step,
                                                vf (&y)[2][2]) {
  const int64_t next = s.shape.channels * step;
  for (int64_t pixel = 0; pixel < 4; ++pixel) {
    vf sum = {};
    for (int64_t place = 0; place < 9; ++place) {
      const float* from = patch.pixels[pixel / 2 + place / 3][pixel % 2 + place % 3];
      for (int64_t c = 0; c < s.shape.channels; ++c) {
        const vf w = unpacked(weights + c * step, next, place / 3, place % 3);
        sum = multiply_add(splat(from[c]), w, sum);
      }
    }
    y[pixel / 2][pixel % 2] = sum;
  }
}

// Writes a vector of outputs, from `output` on, of the pixels of a patch that there are.
inline void put_pixels(const Winograd& s, const Patch& patch, const WinogradData& data,
                       int64_t output, const vf (&y)[2][2]) {
  const ConvolutionShape& shape = s.shape;
  const vf bias = data.bias == nullptr ? vf{} : load(data.bias + output);
  for (int64_t i = 0; i < std::min<int64_t>(2, shape.h.to - patch.line); ++i) {
    for (int64_t j = 0; j < std::min<int64_t>(2, shape.w.to - patch.column); ++j) {
      const int64_t line = patch.image * shape.h.to + patch.line + i;
      const int64_t at = (line * shape.w.to + patch.column + j) * shape.outputs + output;
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

// A panel of outputs from `output` on, of all patches from `first` on.
inline void put_panel(const Winograd& s, const StripMemory& memory, int64_t first, int64_t patches,
                      const WinogradData& data, int64_t output, const float* weights,
                      int64_t step) {
  for (int64_t i = 0; i < patches; ++i) {
    const Patch patch(s, first + i, data.x, memory.zeros);
    for (int64_t at = 0; at < step; at += width) {
      vf y[2][2];
      transform_sums(memory.sums + i * panel_columns + at, memory.sums_of_place, y);
      if (!is_finite(y)) convolve_directly(s, patch, weights + at, step, y);
      put_pixels(s, patch, data, output + at, y);
    }
  }
}

// Patches [first, first + count), of strips that the memory holds.
inline void convolve_winograd(const Winograd& s, int64_t first, int64_t count,
                              const WinogradData& data, float* numbers) {
  const StripMemory memory(s, numbers);
  std::fill_n(memory.zeros, s.shape.channels, 0.0f);
  for (const int64_t end = first + count; first < end; first += s.strip) {
    const int64_t patches = std::min(s.strip, end - first);
    for (int64_t i = 0; i < patches; ++i) {
      transform_pixels(s, Patch(s, first + i, data.x, memory.zeros),
                       memory.patches + i * s.patch_step(), memory.of_place);
    }
    for (int64_t output = 0; output < s.shape.outputs; output += panel_columns) {
      const float* weights = data.packed + output * places * s.shape.channels;
      const int64_t step = panel_step(s.shape.outputs - output);
      sum_panel(s, memory, patches, weights, step);
      put_panel(s, memory, first, patches, data, output, weights, step);
    }
  }
}

inline constexpr WinogradFunctions winograd_functions = {pack_winograd, convolve_winograd,
                                                         winograd_memory, width};

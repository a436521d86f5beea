// The loops of bf16x3_convolve. A pixel is packed as the row of a tile, in all parts, for each step
// of 32 channels; the pixels of a step and part lie side by side, so that 16 of them are a tile
// wherever they start.
#include <atomic>
#include <limits>

#include "kernels/conv/bf16/bf16x3.h"
#include "kernels/gemm/bf16/bf16x3_tiles.h"
#include "support/ceil_div.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using namespace bf16x3;

constexpr int64_t row_bytes = 64;
// Steps that are summed in the tile registers. With 6, a panel's part would stay in the first
// cache, but storing and adding the sums takes a third of the time.
constexpr int64_t depth_steps = 24;
constexpr float infinity = std::numeric_limits<float>::infinity();

// Some rows of the result of some images.
struct Unit {
  int64_t image, images, top, rows;
};

// Which part of the depth is summed.
struct Turn {
  bool is_first, is_last;
};

class Convolution {
 public:
  Convolution(const Bf16x3Convolution& s, const Bf16x3Units& cut, const Bf16x3Data& data,
              int threads)
      : s_(s),
        cut_(cut),
        data_(data),
        weights_(data.scratch),
        images_(data.scratch + cut.weight_bytes),
        threads_(threads) {}

  int64_t run() {
    if (data_.residual == data_.y && !images_have_parts()) return 0;
    const int64_t strips = ceil_div(s_.out_height(), cut_.rows);
    const int64_t groups = ceil_div(s_.images, cut_.images);
    const int64_t units = strips * groups;
    for (first_ = 0; first_ < cut_.panels; first_ += cut_.in_block) {
      const int64_t count = std::min(cut_.in_block, cut_.panels - first_);
      pack_weights(count);
      if (!have_parts_) break;
      // Few units: their panels are shared out.
      const int64_t shares = std::clamp<int64_t>(ceil_div(threads_, units), 1, count);
      const int64_t items = units * shares;
      const int slots = static_cast<int>(std::min<int64_t>(threads_, items));
      // A thread that has one unit packs its images once.
      must_pack_ = first_ == 0 || items > slots;
      parallel_for(threads_, slots, 1, [&](int64_t begin, int64_t end) {
        const Tiles tiles;
        for (int64_t slot = begin; slot < end; ++slot) {
          std::byte* packed = images_ + slot * cut_.unit_bytes();
          for (int64_t i = items * slot / slots; i < items * (slot + 1) / slots; ++i) {
            const int64_t share = i % shares;
            run_unit(unit_at(i / shares, strips), packed, count * share / shares,
                     count * (share + 1) / shares);
          }
        }
      });
      if (!have_parts_) break;
    }
    return std::min(first_ * bf16x3_side, s_.outputs);
  }

 private:
  int64_t steps() const { return s_.channels / step; }          // of one tap
  int64_t all_steps() const { return steps() * s_.taps(); }
  int64_t pixels() const { return cut_.image_bytes / (steps() * parts * row_bytes); }
  int64_t panel_bytes() const { return all_steps() * step_bytes; }

  // Before y is written.
  bool images_have_parts() {
    constexpr int64_t grain = 1 << 14;
    const int64_t pixels = s_.images * s_.height * s_.width;
    parallel_for(threads_, pixels, grain / s_.channels + 1, [&](int64_t begin, int64_t end) {
      __m512i largest = _mm512_setzero_si512();
      for (int64_t i = begin * s_.channels; i < end * s_.channels; i += lanes) {
        largest = larger(largest, _mm512_loadu_ps(data_.x + i));
      }
      if (!have_parts(largest)) have_parts_ = false;
    });
    return have_parts_;
  }

  Unit unit_at(int64_t i, int64_t strips) const {
    const int64_t image = i / strips * cut_.images, top = i % strips * cut_.rows;
    return {image, std::min(cut_.images, s_.images - image), top,
            std::min(cut_.rows, s_.out_height() - top)};
  }

  void pack_weights(int64_t count) {
    if (s_.is_by_tap()) return pack_weights_by_tap(count);
    const int64_t taps = s_.taps();
    parallel_for(threads_, count * taps, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t panel = i / taps, tap = i % taps;
        const Operand of_tap{data_.w + s_.first + tap * s_.next, s_.line, s_.depth};
        const Panel lines = lines_of(first_ + panel);
        std::byte* to = weights_ + panel * panel_bytes() + tap * steps() * step_bytes;
        for (int64_t k = 0; k < steps(); ++k) {
          if (!pack_step<false>(of_tap, lines, k * step, to + k * step_bytes)) {
            have_parts_ = false;
          }
        }
      }
    });
  }

  Panel lines_of(int64_t panel) const {
    const int64_t output = panel * bf16x3_side;
    return {output, std::min(bf16x3_side, s_.outputs - output), 0, s_.channels};
  }

  void pack_weights_by_tap(int64_t count) {
    parallel_for(threads_, count * steps(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t panel = i / steps(), k = i % steps();
        std::byte* to = weights_ + panel * panel_bytes() + k * step_bytes;
        if (!pack_places(lines_of(first_ + panel), k * step, to)) have_parts_ = false;
      }
    });
  }

  // A step of one panel, for all taps: channels and taps are the columns of one matrix.
  bool pack_places(const Panel& lines, int64_t channel, std::byte* to) const {
    const int64_t taps = s_.taps();
    __m512 columns[step * most_taps];
    bool all_have_parts = true;
    for (int64_t t = 0; t < 2; ++t) {
      const int64_t skipped = t * lanes;
      const float* from = data_.w + (lines.first + skipped) * s_.line + channel * taps;
      for (int64_t i = 0; i < step * taps; i += lanes) {
        load_square(from + i, s_.line, lines.count - skipped, lanes, columns + i);
        transpose(columns + i);
      }
      for (int64_t tap = 0; tap < taps; ++tap) {
        all_have_parts &= pack_tile(columns + tap, columns + lanes * taps + tap, taps,
                                    to + tap * steps() * step_bytes + t * tile_bytes);
      }
    }
    return all_have_parts;
  }

  // The rows of one padded image that `rows` rows of the result from `top` on see.
  void pack_image(const float* image, int64_t top, int64_t rows, std::byte* to) {
    const int64_t width = s_.padded_width(), all = pixels();
    int64_t pixel = 0;
    for (int64_t row = 0; row < rows + s_.kernel_height - 1; ++row) {
      const int64_t y = top + row - s_.padding_height;
      const bool is_inside = y >= 0 && y < s_.height;
      for (int64_t column = 0; column < width; ++column, ++pixel) {
        const int64_t x = column - s_.padding_width;
        const bool is_pixel = is_inside && x >= 0 && x < s_.width;
        pack_pixel(is_pixel ? image + (y * s_.width + x) * s_.channels : nullptr, pixel, to);
      }
    }
    for (; pixel < all; ++pixel) pack_pixel(nullptr, pixel, to);
  }

  void pack_pixel(const float* from, int64_t pixel, std::byte* to) {
    const int64_t part = pixels() * row_bytes;
    std::byte* row = to + pixel * row_bytes;
    if (from == nullptr) {
      for (int64_t i = 0; i < steps() * parts; ++i, row += part) {
        _mm512_store_si512(row, _mm512_setzero_si512());
      }
      return;
    }
    __m512i largest = _mm512_setzero_si512();
    for (int64_t k = 0; k < steps(); ++k, row += parts * part) {
      const __m512 first = _mm512_loadu_ps(from + k * step);
      const __m512 second = _mm512_loadu_ps(from + k * step + lanes);
      largest = larger(larger(largest, first), second);
      const Parts a(first), b(second);
      store_pairs(a.high, b.high, row);
      store_pairs(a.middle, b.middle, row + part);
      store_pairs(a.low, b.low, row + 2 * part);
    }
    if (!have_parts(largest)) have_parts_ = false;
  }

  void run_unit(const Unit& unit, std::byte* packed, int64_t begin, int64_t end) {
    const int64_t image_size = s_.height * s_.width * s_.channels;
    for (int64_t i = 0; must_pack_ && i < unit.images; ++i) {
      pack_image(data_.x + (unit.image + i) * image_size, unit.top, unit.rows,
                 packed + i * cut_.image_bytes);
    }
    const int64_t computed = unit.rows * s_.padded_width();
    for (int64_t k = 0; k < all_steps(); k += depth_steps) {
      const int64_t count = std::min(depth_steps, all_steps() - k);
      for (int64_t panel = begin; panel < end; ++panel) {
        const std::byte* columns = weights_ + panel * panel_bytes() + k * step_bytes;
        for (int64_t i = 0; i < unit.images; ++i) {
          const std::byte* image = packed + i * cut_.image_bytes;
          for (int64_t pixel = 0; pixel < computed; pixel += bf16x3_side) {
            alignas(64) float sums[bf16x3_side * bf16x3_side];
            multiply(image + pixel * row_bytes, columns, k, count, sums);
            add(unit, unit.image + i, pixel, (first_ + panel) * bf16x3_side,
                {k == 0, k + count == all_steps()}, sums);
          }
        }
      }
    }
  }

  void multiply(const std::byte* image, const std::byte* columns, int64_t first, int64_t count,
                float* sums) const {
    const int64_t part = pixels() * row_bytes, channel_steps = steps();
    int64_t k = first % channel_steps, tap = first / channel_steps;
    clear_sums();
    for (int64_t i = 0; i < count; ++i, columns += step_bytes) {
      const int64_t shift =
          tap / s_.kernel_width * s_.padded_width() + tap % s_.kernel_width;
      const std::byte* rows = image + k * parts * part + shift * row_bytes;
      multiply_step(rows, part, columns);
      if (++k == channel_steps) {
        k = 0;
        ++tap;
      }
    }
    store_sums(sums);
  }

  // Adds 32 pixels of 32 outputs, times their scale, to the result, or starts it with bias and
  // residual; relu ends it.
  void add(const Unit& unit, int64_t image, int64_t pixel, int64_t output, const Turn& turn,
           const float* sums) const {
    const __m512 least = _mm512_set1_ps(data_.relu && turn.is_last ? 0.0F : -infinity);
    const int64_t width = s_.out_width(), padded = s_.padded_width();
    const int64_t count = std::min(bf16x3_side, s_.outputs - output);
    __m512 scale[] = {_mm512_set1_ps(1.0F), _mm512_set1_ps(1.0F)};
    for (int64_t h = 0; data_.scale != nullptr && h < count; h += lanes) {
      scale[h / lanes] = _mm512_loadu_ps(data_.scale + output + h);
    }
    int64_t row = pixel / padded, column = pixel % padded;
    for (int64_t i = 0; i < bf16x3_side; ++i, sums += bf16x3_side) {
      if (column < width && row < unit.rows) {
        const int64_t at = (image * s_.out_height() + unit.top + row) * width + column;
        const int64_t begin = at * s_.outputs + output;
        for (int64_t h = 0; h < count; h += lanes) {
          const __m512 old = before(turn, begin + h, output + h);
          const __m512 sum = _mm512_fmadd_ps(scale[h / lanes], _mm512_load_ps(sums + h), old);
          // The second operand is the result when one is NaN.
          _mm512_storeu_ps(data_.y + begin + h, _mm512_max_ps(least, sum));
        }
      }
      if (++column == padded) {
        column = 0;
        ++row;
      }
    }
  }

  // What 16 sums at `at` of output `output` are added to.
  __m512 before(const Turn& turn, int64_t at, int64_t output) const {
    if (!turn.is_first) return _mm512_loadu_ps(data_.y + at);
    __m512 sum = _mm512_setzero_ps();
    if (data_.bias != nullptr) sum = _mm512_loadu_ps(data_.bias + output);
    if (data_.residual != nullptr) sum += _mm512_loadu_ps(data_.residual + at);
    return sum;
  }

  const Bf16x3Convolution& s_;
  const Bf16x3Units& cut_;
  const Bf16x3Data& data_;
  std::byte *weights_, *images_;
  int threads_;
  int64_t first_ = 0;  // panel of the present block
  bool must_pack_ = true;
  std::atomic<bool> have_parts_ = true;
};

}  // namespace

int64_t bf16x3_convolve(const Bf16x3Convolution& s, const Bf16x3Units& cut, const Bf16x3Data& data,
                        int threads) {
  return Convolution(s, cut, data, threads).run();
}

}  // namespace poptorch::kernels

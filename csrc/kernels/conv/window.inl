// What lines of pixels see of channels-last images. Included by families inside the namespace of
// each_isa.h, after gemm/tiles.inl.

using kernels::ConvolutionShape;

// Lines of pixels that are computed together.
struct PixelStrip {
  int64_t first, lines;
};

// Channels [first, first + count) of what a strip sees, pixel after pixel, padding too. What line i
// of its pixels sees begins at starts[i].
struct Seen {
  float* numbers;
  int64_t* starts;
  int64_t first, count;
  int64_t step;   // numbers from one pixel to the next: `count`, or whole vectors
  int64_t width;  // pixels of a line, those of the padding included
};

// Numbers that the lines of a strip see, at most; a vector past them may be written.
inline int64_t seen_numbers(const ConvolutionShape& s, int64_t lines, int64_t step) {
  // No image has fewer lines in a strip than there are lines over its first one.
  const int64_t images = std::min(s.images, (lines + s.h.to - 2) / s.h.to + 1);
  return (lines * s.h.stride + images * s.h.seen(1)) * s.w.seen(s.w.to) * step + width;
}

// One line; `line` is nullptr in the padding.
inline void see_line(const ConvolutionShape& s, const float* line, const Seen& seen, float* to) {
  const int64_t left = line == nullptr ? 0 : std::min(seen.width, s.w.padding);
  const int64_t count = line == nullptr ? 0 : std::min(s.w.from, seen.width - left);
  std::fill_n(to, left * seen.step, 0.0f);
  const bool is_copied = seen.step == s.channels;
  if (is_copied && count > 0) std::copy_n(line, count * seen.step, to + left * seen.step);
  for (int64_t i = 0; i < count && !is_copied; ++i) {
    const float* from = line + i * s.channels + seen.first;
    for (int64_t at = 0; at < seen.step; at += width) {
      store(to + (left + i) * seen.step + at, load_lanes(from + at, seen.count - at));
    }
  }
  const int64_t end = left + count;
  std::fill_n(to + end * seen.step, (seen.width - end) * seen.step, 0.0f);
}

// What a strip sees, image by image, by a see_line for its type of numbers.
template <typename T>
void see(const ConvolutionShape& s, const PixelStrip& strip, const T* x, const Seen& seen,
         void (*see_line)(const ConvolutionShape&, const T*, const Seen&, float*)) {
  const int64_t line_numbers = seen.width * seen.step;
  int64_t done = 0;
  for (int64_t i = 0; i < strip.lines;) {
    const int64_t image = (strip.first + i) / s.h.to, top = (strip.first + i) % s.h.to;
    const int64_t lines = std::min(strip.lines - i, s.h.to - top);
    for (int64_t j = 0; j < lines; ++j) {
      seen.starts[i + j] = (done + j * s.h.stride) * line_numbers;
    }
    for (int64_t j = 0; j < s.h.seen(lines); ++j) {
      const int64_t y = top * s.h.stride - s.h.padding + j;
      const bool is_inside = y >= 0 && y < s.h.from;
      const T* line = x + (image * s.h.from + y) * s.w.from * s.channels;
      see_line(s, is_inside ? line : nullptr, seen, seen.numbers + (done + j) * line_numbers);
    }
    done += s.h.seen(lines);
    i += lines;
  }
}

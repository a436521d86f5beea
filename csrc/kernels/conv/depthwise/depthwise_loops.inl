// The loops of depthwise_loops.h.

// Some channels from one on: a whole vector of them, or fewer.
struct Lanes {
  int64_t count;

  [[gnu::always_inline]] inline vf get(const float* p) const {
    return count == width ? load(p) : load_part(p, count);
  }
  [[gnu::always_inline]] inline void put(float* p, vf v) const {
    if (count == width) {
      store(p, v);
    } else {
      store_part(p, v, count);
    }
  }
};

// Brings parts [begin, end) of `all` of what the next row takes.
[[gnu::always_inline]] inline void depthwise_ahead(const DepthwiseRow& row, int64_t begin,
                                                   int64_t end, int64_t all) {
  constexpr int64_t line = alignment_bytes / sizeof(float);  // of a cache
  const float* to = row.ahead + row.ahead_count * end / all;
  for (const float* p = row.ahead + row.ahead_count * begin / all; p < to; p += line) {
    __builtin_prefetch(p);
  }
}

// Column j at channel c.
[[gnu::always_inline]] inline void depthwise_column(const DepthwiseRow& row,
                                                    const DepthwiseColumns& columns, int64_t j,
                                                    int64_t c, const Lanes& lanes,
                                                    const float* weights, vf start, float* out) {
  vf sum = start;
  for (int64_t r = 0; r < row.row_count; ++r) {
    const float* line = row.image + row.rows[r].source * row.width * row.channels + c;
    const float* of_line = weights + row.rows[r].weight * row.kernel_width * row.channels + c;
    for (int32_t t = columns.first[j]; t < columns.first[j + 1]; ++t) {
      const DepthwiseTap tap = columns.taps[t];
      sum += lanes.get(of_line + tap.weight * row.channels) *
             lanes.get(line + tap.source * row.channels);
    }
  }
  lanes.put(out + j * row.channels + c, sum);
}

// Four columns from j on, `step` apart: each weight is loaded once for all of them.
[[gnu::always_inline]] inline void depthwise_columns(const DepthwiseRow& row,
                                                     const DepthwiseColumns& columns, int64_t j,
                                                     int64_t c, const Lanes& lanes,
                                                     const float* weights, vf start, float* out) {
  const int32_t begin = columns.first[j], end = columns.first[j + 1];
  const int64_t n = row.channels, next = columns.first[j + columns.step];
  const int64_t apart = (columns.taps[next].source - columns.taps[begin].source) * n;
  vf s0 = start, s1 = start, s2 = start, s3 = start;
  for (int64_t r = 0; r < row.row_count; ++r) {
    const float* line = row.image + row.rows[r].source * row.width * n + c;
    const float* of_line = weights + row.rows[r].weight * row.kernel_width * n + c;
    for (int32_t t = begin; t < end; ++t) {
      const DepthwiseTap tap = columns.taps[t];
      const vf weight = lanes.get(of_line + tap.weight * n);
      const float* from = line + tap.source * n;
      s0 += weight * lanes.get(from);
      s1 += weight * lanes.get(from + apart);
      s2 += weight * lanes.get(from + 2 * apart);
      s3 += weight * lanes.get(from + 3 * apart);
    }
  }
  float* to = out + j * n + c;
  const int64_t step = columns.step * n;
  lanes.put(to, s0);
  lanes.put(to + step, s1);
  lanes.put(to + 2 * step, s2);
  lanes.put(to + 3 * step, s3);
}

// Four neighbours. Each takes `taps` adjacent columns, which are `apart` from those of the next:
// each of the image's numbers is loaded once, too.
template <int taps, int apart>
[[gnu::always_inline]] inline void depthwise_window(const DepthwiseRow& row,
                                                    const DepthwiseColumns& columns, int64_t j,
                                                    int64_t c, const Lanes& lanes,
                                                    const float* weights, vf start, float* out) {
  constexpr int seen = (quad - 1) * apart + taps;
  const DepthwiseTap* tap = columns.taps + columns.first[j];
  const int64_t n = row.channels;
  vf sums[quad];
  for (vf& sum : sums) sum = start;
  for (int64_t r = 0; r < row.row_count; ++r) {
    const float* line = row.image + (row.rows[r].source * row.width + tap->source) * n + c;
    const float* of_line = weights + row.rows[r].weight * row.kernel_width * n + c;
    vf x[seen];
#pragma GCC unroll 16
    for (int i = 0; i < seen; ++i) x[i] = lanes.get(line + i * n);
#pragma GCC unroll 8
    for (int t = 0; t < taps; ++t) {
      const vf weight = lanes.get(of_line + tap[t].weight * n);
#pragma GCC unroll 4
      for (int i = 0; i < quad; ++i) sums[i] += weight * x[i * apart + t];
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < quad; ++i) lanes.put(out + (j + i) * n + c, sums[i]);
}

// What is marked together from column j on, or column j. Windows are of `taps` columns; 0: of any.
template <int taps, int apart>
[[gnu::always_inline]] inline void depthwise_some(const DepthwiseRow& row,
                                                  const DepthwiseColumns& columns, int64_t j,
                                                  int64_t c, const Lanes& lanes,
                                                  const float* weights, const float* bias,
                                                  float* out) {
  const vf start = bias == nullptr ? vf{} : lanes.get(bias + c);
  if (columns.alike[j] == DepthwiseColumns::unlike) {
    depthwise_column(row, columns, j, c, lanes, weights, start, out);
  } else if (taps > 0 && columns.alike[j] == DepthwiseColumns::windows) {
    depthwise_window<std::max(taps, 1), apart>(row, columns, j, c, lanes, weights, start, out);
  } else {
    for (int64_t i = 0; i < columns.step; ++i) {
      depthwise_columns(row, columns, j + i, c, lanes, weights, start, out);
    }
  }
}

template <int taps, int apart>
inline void depthwise_convolve(const DepthwiseRow& row, const DepthwiseColumns& columns,
                               const float* weights, const float* bias, float* out) {
  // Numbers that lie side by side are read together, and weights stay in the first cache.
  constexpr int64_t channels_at_once = 8 * width;
  for (int64_t first = 0; first < row.channels; first += channels_at_once) {
    const int64_t end = std::min(first + channels_at_once, row.channels);
    for (int64_t j = 0; j < columns.count;) {
      const bool is_single = columns.alike[j] == DepthwiseColumns::unlike;
      const int64_t next = j + (is_single ? 1 : quad * columns.step);
      if (first == 0) depthwise_ahead(row, j, next, columns.count);
      int64_t c = first;
      for (; c + width <= end; c += width) {
        depthwise_some<taps, apart>(row, columns, j, c, Lanes{width}, weights, bias, out);
      }
      if (c < end) {
        depthwise_some<taps, apart>(row, columns, j, c, Lanes{end - c}, weights, bias, out);
      }
      j = next;
    }
  }
}

// The sum over the columns of a range: g * x, four at a time so that additions overlap.
[[gnu::always_inline]] inline vf depthwise_sum(const float* g, const float* x, int64_t n,
                                               int64_t channels, int64_t apart,
                                               const Lanes& lanes) {
  vf s0{}, s1{}, s2{}, s3{};
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) {
    const float *gj = g + j * channels, *xj = x + j * apart;
    s0 += lanes.get(gj) * lanes.get(xj);
    s1 += lanes.get(gj + channels) * lanes.get(xj + apart);
    s2 += lanes.get(gj + 2 * channels) * lanes.get(xj + 2 * apart);
    s3 += lanes.get(gj + 3 * channels) * lanes.get(xj + 3 * apart);
  }
  for (; j < n; ++j) s0 += lanes.get(g + j * channels) * lanes.get(x + j * apart);
  return (s0 + s1) + (s2 + s3);
}

// Adds the lanes in use to sums of twice the precision.
[[gnu::always_inline]] inline void depthwise_add(double* sums, vf v, const Lanes& lanes) {
  float values[width];
  store(values, v);
  for (int64_t i = 0; i < lanes.count; ++i) sums[i] += values[i];
}

[[gnu::always_inline]] inline void depthwise_sums_of(const DepthwiseRow& row,
                                                     const DepthwiseRange* ranges, int64_t c,
                                                     const Lanes& lanes, const float* grad,
                                                     double* sums) {
  for (int64_t r = 0; r < row.row_count; ++r) {
    const float* line = row.image + row.rows[r].source * row.width * row.channels + c;
    double* of_line = sums + row.rows[r].weight * row.kernel_width * row.channels + c;
    for (int64_t k = 0; k < row.kernel_width; ++k) {
      const DepthwiseRange& range = ranges[k];
      const vf sum = depthwise_sum(grad + range.begin * row.channels + c,
                                   line + range.source * row.channels, range.count, row.channels,
                                   range.apart * row.channels, lanes);
      depthwise_add(of_line + k * row.channels, sum, lanes);
    }
  }
}

// Columns [begin, end) of the result.
struct ColumnRange {
  int64_t begin, end;
};

// Those that take by all `taps` weights, or an empty range behind those that take by any.
inline ColumnRange inner_columns(const DepthwiseRange* ranges, int taps) {
  ColumnRange inner{0, std::numeric_limits<int64_t>::max()};
  int64_t last = 0;
  for (int k = 0; k < taps; ++k) {
    const int64_t begin = ranges[k].begin, end = begin + ranges[k].count;
    inner.begin = std::max(inner.begin, begin);
    inner.end = std::min(inner.end, end);
    last = std::max(last, end);
  }
  return inner.begin < inner.end ? inner : ColumnRange{last, last};
}

// Columns at the left and right edge, which take by some of the weights.
template <int taps>
[[gnu::always_inline]] inline void depthwise_edges(const DepthwiseRow& row,
                                                   const DepthwiseRange* ranges,
                                                   const ColumnRange& inner, const Lanes& lanes,
                                                   const float* grad, const float* line, vf* sums) {
#pragma GCC unroll 8
  for (int k = 0; k < taps; ++k) {
    const DepthwiseRange& range = ranges[k];
    const int64_t begin = range.begin, end = begin + range.count;
    const auto add = [&](int64_t from, int64_t to) {
      for (int64_t j = from; j < to; ++j) {
        const int64_t source = range.source + (j - begin) * range.apart;
        sums[k] += lanes.get(grad + j * row.channels) * lanes.get(line + source * row.channels);
      }
    };
    add(begin, std::min(end, inner.begin));
    add(std::max(begin, inner.end), end);
  }
}

// The same where columns take `taps` columns of the image that lie side by side, `apart` from those
// of the next: all of a line's sums are made at once.
template <int taps, int apart>
[[gnu::always_inline]] inline void depthwise_window_sums(const DepthwiseRow& row,
                                                         const DepthwiseRange* ranges,
                                                         const ColumnRange& inner, int64_t c,
                                                         const Lanes& lanes, const float* grad,
                                                         double* all_sums) {
  constexpr int seen = (quad - 1) * apart + taps;
  const int64_t n = row.channels;
  for (int64_t r = 0; r < row.row_count; ++r) {
    const float* line = row.image + row.rows[r].source * row.width * n + c;
    vf sums[taps] = {}, others[taps] = {};
    depthwise_edges<taps>(row, ranges, inner, lanes, grad + c, line, sums);
    int64_t j = inner.begin;
    const float* x = line + (ranges[0].source + (j - ranges[0].begin) * apart) * n;
    for (; j + quad <= inner.end; j += quad, x += quad * apart * n) {
      vf of_image[seen];
#pragma GCC unroll 16
      for (int i = 0; i < seen; ++i) of_image[i] = lanes.get(x + i * n);
#pragma GCC unroll 4
      for (int i = 0; i < quad; ++i) {
        const vf g = lanes.get(grad + (j + i) * n + c);
#pragma GCC unroll 8
        for (int k = 0; k < taps; ++k) (i % 2 ? others : sums)[k] += g * of_image[i * apart + k];
      }
    }
    for (; j < inner.end; ++j, x += apart * n) {
      const vf g = lanes.get(grad + j * n + c);
#pragma GCC unroll 8
      for (int k = 0; k < taps; ++k) sums[k] += g * lanes.get(x + k * n);
    }
    double* of_line = all_sums + row.rows[r].weight * taps * n + c;
#pragma GCC unroll 8
    for (int k = 0; k < taps; ++k) depthwise_add(of_line + k * n, sums[k] + others[k], lanes);
  }
}

// Of windows of `taps` columns; 0: of any.
template <int taps, int apart>
inline void depthwise_weight_sums(const DepthwiseRow& row, const DepthwiseRange* ranges,
                                  const float* grad, double* sums) {
  const auto add = [&](int64_t c, const Lanes& lanes) __attribute__((always_inline)) {
    depthwise_ahead(row, c, c + lanes.count, row.channels);
    if constexpr (taps == 0) {
      depthwise_sums_of(row, ranges, c, lanes, grad, sums);
    } else {
      const ColumnRange inner = inner_columns(ranges, taps);
      depthwise_window_sums<taps, apart>(row, ranges, inner, c, lanes, grad, sums);
    }
  };
  int64_t c = 0;
  for (; c + width <= row.channels; c += width) add(c, Lanes{width});
  if (c < row.channels) add(c, Lanes{row.channels - c});
}

template <int taps, int apart>
inline constexpr DepthwiseLoops depthwise_functions = {depthwise_convolve<taps, apart>,
                                                       depthwise_weight_sums<taps, apart>};

// Of the windows of published networks; others have loops for any.
inline const DepthwiseLoops& depthwise_loops_of(const DepthwiseWindow& window) {
  if (window.apart == 1) {
    switch (window.taps) {
      case 3: return depthwise_functions<3, 1>;
      case 5: return depthwise_functions<5, 1>;
      case 7: return depthwise_functions<7, 1>;
    }
  } else if (window.apart == 2) {
    switch (window.taps) {
      case 3: return depthwise_functions<3, 2>;
      case 5: return depthwise_functions<5, 2>;
    }
  }
  return depthwise_functions<0, 1>;
}

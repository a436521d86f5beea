// The loops of conv/depthwise_loops.h.

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

// Four columns from j on: each weight is loaded once for all of them.
[[gnu::always_inline]] inline void depthwise_columns(const DepthwiseRow& row,
                                                     const DepthwiseColumns& columns, int64_t j,
                                                     int64_t c, const Lanes& lanes,
                                                     const float* weights, vf start, float* out) {
  const int32_t begin = columns.first[j], end = columns.first[j + 1];
  const int64_t n = row.channels;
  const int64_t apart = (columns.taps[end].source - columns.taps[begin].source) * n;
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
  lanes.put(to, s0);
  lanes.put(to + n, s1);
  lanes.put(to + 2 * n, s2);
  lanes.put(to + 3 * n, s3);
}

[[gnu::always_inline]] inline void depthwise_channels(const DepthwiseRow& row,
                                                      const DepthwiseColumns& columns, int64_t c,
                                                      const Lanes& lanes, const float* weights,
                                                      const float* bias, float* out) {
  const vf start = bias == nullptr ? vf{} : lanes.get(bias + c);
  for (int64_t j = 0; j < columns.count;) {
    if (columns.alike[j]) {
      depthwise_columns(row, columns, j, c, lanes, weights, start, out);
      j += 4;
    } else {
      depthwise_column(row, columns, j, c, lanes, weights, start, out);
      ++j;
    }
  }
}

inline void depthwise_convolve(const DepthwiseRow& row, const DepthwiseColumns& columns,
                               const float* weights, const float* bias, float* out) {
  int64_t c = 0;
  for (; c + width <= row.channels; c += width) {
    depthwise_channels(row, columns, c, Lanes{width}, weights, bias, out);
  }
  if (c < row.channels) {
    depthwise_channels(row, columns, c, Lanes{row.channels - c}, weights, bias, out);
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

[[gnu::always_inline]] inline void depthwise_sums_of(const DepthwiseRow& row,
                                                     const DepthwiseRange* ranges, int64_t c,
                                                     const Lanes& lanes, const float* grad,
                                                     double* sums) {
  for (int64_t r = 0; r < row.row_count; ++r) {
    const float* line = row.image + row.rows[r].source * row.width * row.channels + c;
    double* of_line = sums + row.rows[r].weight * row.kernel_width * row.channels + c;
    for (int64_t k = 0; k < row.kernel_width; ++k) {
      const DepthwiseRange& range = ranges[k];
      float values[width];
      store(values, depthwise_sum(grad + range.begin * row.channels + c,
                                  line + range.source * row.channels, range.count, row.channels,
                                  range.apart * row.channels, lanes));
      for (int64_t i = 0; i < lanes.count; ++i) of_line[k * row.channels + i] += values[i];
    }
  }
}

inline void depthwise_weight_sums(const DepthwiseRow& row, const DepthwiseRange* ranges,
                                  const float* grad, double* sums) {
  int64_t c = 0;
  for (; c + width <= row.channels; c += width) {
    depthwise_sums_of(row, ranges, c, Lanes{width}, grad, sums);
  }
  if (c < row.channels) {
    depthwise_sums_of(row, ranges, c, Lanes{row.channels - c}, grad, sums);
  }
}

inline constexpr DepthwiseLoops depthwise_functions = {depthwise_convolve, depthwise_weight_sums};

// The loops of batch_norm.h. Sums over rows are kept for all channels at once, so that memory is
// read in its order.

constexpr int64_t sum_rows = 32;  // rows that are summed in T: more lose digits of a large mean

struct ColumnSums {
  T part[2][most_columns] = {};
  double all[2][most_columns] = {};

  void add(int64_t j, auto io, V first, V second) {
    io.store(part[0] + j, io.load(part[0] + j) + first);
    io.store(part[1] + j, io.load(part[1] + j) + second);
  }
  void close(int64_t columns) {
    for (int64_t which = 0; which < 2; ++which) {
      for (int64_t j = 0; j < columns; ++j) {
        all[which][j] += part[which][j];
        part[which][j] = 0;
      }
    }
  }
};

// Adds fn(offset of the entry, column, io, sums) of all entries.
static inline void sum_columns(Columns c, ColumnSums& sums, const auto& fn) {
  for (int64_t start = 0; start < c.n; start += sum_rows) {
    const int64_t end = start + sum_rows < c.n ? start + sum_rows : c.n;
    for (int64_t i = start; i < end; ++i) {
      each(c.columns, [&](int64_t j, auto io) { fn(i * c.stride + j, j, io); });
    }
    sums.close(c.columns);
  }
}

template <typename E>
static void moments_columns(const E* x, Columns c, Moments* out) {
  // Differences from a value near to the mean lose no digits when they are squared.
  T shift[most_columns] = {};
  const int64_t some = c.n < 32 ? c.n : 32;
  const V share = splat(T{1} / static_cast<T>(some));
  for (int64_t i = 0; i < some; ++i) {
    each(c.columns, [&](int64_t j, auto io) {
      io.store(shift + j, io.load(shift + j) + share * io.load(x + i * c.stride + j));
    });
  }
  for (int64_t j = 0; j < c.columns; ++j) {
    if (!__builtin_isfinite(shift[j])) shift[j] = 0;
  }
  ColumnSums sums;
  sum_columns(c, sums, [&](int64_t at, int64_t j, auto io) {
    const V d = io.load(x + at) - io.load(shift + j);
    sums.add(j, io, d, d * d);
  });
  const auto n = static_cast<double>(c.n);
  for (int64_t j = 0; j < c.columns; ++j) {
    const double off = sums.all[0][j] / n, squares = sums.all[1][j] - off * sums.all[0][j];
    out[j] = {n, shift[j] + off, squares > 0 || squares != squares ? squares : 0};
  }
}

template <typename E>
static inline V finished(const BatchNormRows<E>& rows, int64_t at, auto io, V y) {
  if (rows.residual != nullptr) y += io.load(rows.residual + at);
  return rows.relu ? (y < V{} ? V{} : y) : y;
}

template <typename E>
static void batch_affine(const BatchNormRows<E>& rows, int64_t at, int64_t n, Affine<T> f) {
  const V shift = splat(f.mean), scale = splat(f.scale), offset = splat(f.offset);
  each(n, [&](int64_t i, auto io) {
    const V y = (io.load(rows.x + at + i) - shift) * scale + offset;
    io.store(rows.y + at + i, finished(rows, at + i, io, y));
  });
}

template <typename E>
static void batch_affine_columns(const BatchNormRows<E>& rows, int64_t at, Columns c,
                                 const AffineColumns<T>& f) {
  for (int64_t row = 0; row < c.n; ++row, at += c.stride) {
    each(c.columns, [&](int64_t j, auto io) {
      const V d = io.load(rows.x + at + j) - io.load(f.mean + j);
      const V y = d * io.load(f.scale + j) + io.load(f.offset + j);
      io.store(rows.y + at + j, finished(rows, at + j, io, y));
    });
  }
}

// The gradient behind the relu.
template <typename E>
static inline V masked_grad(const BatchNormGradRows<E>& rows, int64_t at, auto io) {
  const V g = io.load(rows.g + at);
  return rows.out == nullptr ? g : (io.load(rows.out + at) <= V{} ? V{} : g);
}

template <typename E>
static GradSums batch_grad_sums(const BatchNormGradRows<E>& rows, int64_t at, int64_t n, T mean) {
  const V shift = splat(mean);
  const Totals t = totals(n, [&](int64_t i, auto io) {
    const V g = masked_grad(rows, at + i, io);
    if (rows.masked != nullptr) io.store(rows.masked + at + i, g);
    return Two{g, g * (io.load(rows.x + at + i) - shift)};
  });
  return {t.first, t.second};
}

template <typename E>
static void batch_grad_sums_columns(const BatchNormGradRows<E>& rows, int64_t at, Columns c,
                                    const T* mean, GradSums* out) {
  ColumnSums sums;
  sum_columns(c, sums, [&](int64_t offset, int64_t j, auto io) {
    const V g = masked_grad(rows, at + offset, io);
    if (rows.masked != nullptr) io.store(rows.masked + at + offset, g);
    sums.add(j, io, g, g * (io.load(rows.x + at + offset) - io.load(mean + j)));
  });
  for (int64_t j = 0; j < c.columns; ++j) out[j] = {sums.all[0][j], sums.all[1][j]};
}

template <typename E>
static void batch_grad_affine(const BatchNormGradRows<E>& rows, int64_t at, int64_t n,
                              const GradAffine<T>& f) {
  const V shift = splat(f.mean), of_g = splat(f.of_grad), of_x = splat(f.of_x);
  const V offset = splat(f.offset), grad_mean = splat(f.grad_mean);
  if (rows.only_scales) {
    return each(n, [&](int64_t i, auto io) {
      io.store(rows.dx + at + i, of_g * masked_grad(rows, at + i, io));
    });
  }
  each(n, [&](int64_t i, auto io) {
    const V from_x = of_x * (io.load(rows.x + at + i) - shift) + offset;
    io.store(rows.dx + at + i, of_g * (masked_grad(rows, at + i, io) - grad_mean) + from_x);
  });
}

template <typename E>
static void batch_grad_affine_columns(const BatchNormGradRows<E>& rows, int64_t at, Columns c,
                                      const GradAffineColumns<T>& f) {
  for (int64_t row = 0; row < c.n; ++row, at += c.stride) {
    if (rows.only_scales) {
      each(c.columns, [&](int64_t j, auto io) {
        io.store(rows.dx + at + j, io.load(f.of_grad + j) * masked_grad(rows, at + j, io));
      });
      continue;
    }
    each(c.columns, [&](int64_t j, auto io) {
      const V d = io.load(rows.x + at + j) - io.load(f.mean + j);
      const V from_x = io.load(f.of_x + j) * d + io.load(f.offset + j);
      const V from_g = masked_grad(rows, at + j, io) - io.load(f.grad_mean + j);
      io.store(rows.dx + at + j, io.load(f.of_grad + j) * from_g + from_x);
    });
  }
}

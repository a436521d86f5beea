// Loops of normalizations.

// In one pass over memory: each block is read twice while it lies in the cache.
template <typename E>
static Moments moments(const E* x, int64_t n) {
  Moments sum;
  for (int64_t start = 0; start < n; start += sum_block) {
    const int64_t count = n - start < sum_block ? n - start : sum_block;
    const E* block = x + start;
    const double mean =
        total(count, [&](int64_t i, auto io) { return io.load(block + i); }) / count;
    const T near = __builtin_isfinite(mean) ? static_cast<T>(mean) : 0;
    const V shift = splat(near);
    const Totals t = totals(count, [&](int64_t i, auto io) {
      const V d = io.load(block + i) - shift;
      return Two{d, d * d};
    });
    // The mean was rounded to T: the sum of differences gives its rounding error.
    const double rest = t.first / count;
    sum.add({static_cast<double>(count), near + rest, t.second - rest * t.first});
  }
  return sum;
}

static void affine(const T* x, T* y, int64_t n, Affine<T> f) {
  const V shift = splat(f.mean), scale = splat(f.scale), offset = splat(f.offset);
  each(n, [&](int64_t i, auto io) {
    io.store(y + i, (io.load(x + i) - shift) * scale + offset);
  });
}

static GradSums grad_sums(const T* g, const T* x, int64_t n, T mean) {
  const V shift = splat(mean);
  const Totals t = totals(n, [&](int64_t i, auto io) {
    const V v = io.load(g + i);
    return Two{v, v * (io.load(x + i) - shift)};
  });
  return {t.first, t.second};
}

static void grad_affine(const T* g, const T* x, T* dx, int64_t n, const GradAffine<T>& f) {
  const V shift = splat(f.mean), of_g = splat(f.of_grad), of_x = splat(f.of_x);
  const V offset = splat(f.offset);
  each(n, [&](int64_t i, auto io) {
    io.store(dx + i, of_g * io.load(g + i) + (of_x * (io.load(x + i) - shift) + offset));
  });
}

static void layer_norm(const LayerNormRow<T>& row, int64_t n, T* mean_out, T* rstd_out) {
  const T* x = row.x;
  const double mean = total(n, [&](int64_t i, auto io) { return io.load(x + i); }) / n;
  const V shift = splat(static_cast<T>(mean));
  const double rest = mean - static_cast<T>(mean);
  const double squares = total(n, [&](int64_t i, auto io) {
    const V d = io.load(x + i) - shift;
    return d * d;
  });
  const double variance = squares / n - rest * rest;
  const double rstd = 1 / __builtin_sqrt((variance < 0 ? 0 : variance) + row.eps);
  *mean_out = static_cast<T>(mean);
  *rstd_out = static_cast<T>(rstd);
  const V scale = splat(static_cast<T>(rstd));
  each(n, [&](int64_t i, auto io) {
    V y = (io.load(x + i) - shift) * scale;
    if (row.weight != nullptr) y *= io.load(row.weight + i);
    if (row.bias != nullptr) y += io.load(row.bias + i);
    io.store(row.y + i, y);
  });
}

static void layer_norm_backward(const LayerNormGrad<T>& row, int64_t n) {
  const V shift = splat(row.mean), rstd = splat(row.rstd), one = splat(1);
  const auto weight = [&](int64_t i, auto io) {
    return row.weight != nullptr ? io.load(row.weight + i) : one;
  };
  if (row.dx != nullptr) {
    const Totals sums = totals(n, [&](int64_t i, auto io) {
      const V g = io.load(row.g + i) * weight(i, io);
      return Two{g, g * ((io.load(row.x + i) - shift) * rstd)};
    });
    const V plain = splat(static_cast<T>(sums.first / n));
    const V times_x = splat(static_cast<T>(sums.second / n));
    each(n, [&](int64_t i, auto io) {
      const V hat = (io.load(row.x + i) - shift) * rstd;
      const V g = io.load(row.g + i) * weight(i, io);
      io.store(row.dx + i, (g - plain - hat * times_x) * rstd);
    });
  }
  if (row.dweight == nullptr && row.dbias == nullptr) return;
  each(n, [&](int64_t i, auto io) {
    const V g = io.load(row.g + i);
    if (row.dweight != nullptr) {
      const V hat = (io.load(row.x + i) - shift) * rstd;
      io.store(row.dweight + i, io.load(row.dweight + i) + g * hat);
    }
    if (row.dbias != nullptr) io.store(row.dbias + i, io.load(row.dbias + i) + g);
  });
}

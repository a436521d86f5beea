// Softmax over n entries side by side.

static void softmax(const T* x, T* y, int64_t n, bool safe) {
  const T largest = largest_of(x, n);
  if (safe && largest == -__builtin_huge_val()) {
    return each(n, [&](int64_t i, auto io) { io.store(y + i, V{}); });
  }
  const V shift = splat(largest);
  const T sum = join_sum(sum_lanes(n, [&](int64_t i, auto io) {
    const V e = exp_of(io.load(x + i) - shift);
    io.store(y + i, e);
    return e;
  }));
  const V scale = splat(1 / sum);
  each(n, [&](int64_t i, auto io) { io.store(y + i, io.load(y + i) * scale); });
}

static void log_softmax(const T* x, T* y, int64_t n) {
  const V shift = splat(largest_of(x, n));
  const double sum = total(n, [&](int64_t i, auto io) { return exp_of(io.load(x + i) - shift); });
  const V log_sum = splat(static_cast<T>(__builtin_log(sum)));
  each(n, [&](int64_t i, auto io) { io.store(y + i, io.load(x + i) - shift - log_sum); });
}

static void softmax_backward(const T* g, const T* y, T* dx, int64_t n) {
  const V sum = splat(static_cast<T>(
      total(n, [&](int64_t i, auto io) { return io.load(g + i) * io.load(y + i); })));
  each(n, [&](int64_t i, auto io) {
    io.store(dx + i, io.load(y + i) * (io.load(g + i) - sum));
  });
}

static void log_softmax_backward(const T* g, const T* y, T* dx, int64_t n) {
  const V sum =
      splat(static_cast<T>(total(n, [&](int64_t i, auto io) { return io.load(g + i); })));
  each(n, [&](int64_t i, auto io) {
    io.store(dx + i, io.load(g + i) - exp_of(io.load(y + i)) * sum);
  });
}

// The logarithm of the sum of exp(x - largest).
static T log_sum(const T* x, int64_t n, T* largest) {
  *largest = largest_of(x, n);
  const V shift = splat(*largest);
  return static_cast<T>(__builtin_log(
      total(n, [&](int64_t i, auto io) { return exp_of(io.load(x + i) - shift); })));
}

// dx = softmax(x) * scale, from what log_sum gave.
static void scaled_softmax(const T* x, T* dx, int64_t n, const SoftmaxScale<T>& s) {
  const V largest = splat(s.largest), log_sum = splat(s.log_sum), scale = splat(s.scale);
  each(n, [&](int64_t i, auto io) {
    io.store(dx + i, exp_of(io.load(x + i) - largest - log_sum) * scale);
  });
}

// Softmax over n entries `stride` apart, for `columns` neighbours at once.

static void softmax_columns(const T* x, T* y, Columns c, bool safe) {
  constexpr T lowest = -__builtin_huge_val();
  each(c.columns, [&](int64_t j, auto io) {
    V largest = splat(lowest);
    for (int64_t i = 0; i < c.n; ++i) {
      const V v = io.load(x + i * c.stride + j);
      largest = v > largest ? v : largest;
    }
    const V none = V{};
    if (safe) largest = largest == splat(lowest) ? none : largest;
    V sum{};
    for (int64_t i = 0; i < c.n; ++i) {
      const V e = exp_of(io.load(x + i * c.stride + j) - largest);
      io.store(y + i * c.stride + j, e);
      sum += e;
    }
    const V one = none + 1;
    V scale = one / sum;
    if (safe) scale = sum > none ? scale : none;
    for (int64_t i = 0; i < c.n; ++i) {
      io.store(y + i * c.stride + j, io.load(y + i * c.stride + j) * scale);
    }
  });
}

static void log_softmax_columns(const T* x, T* y, Columns c) {
  each(c.columns, [&](int64_t j, auto io) {
    V largest = splat(-__builtin_huge_val());
    for (int64_t i = 0; i < c.n; ++i) {
      const V v = io.load(x + i * c.stride + j);
      largest = v > largest ? v : largest;
    }
    V sum{};
    for (int64_t i = 0; i < c.n; ++i) sum += exp_of(io.load(x + i * c.stride + j) - largest);
    const V log_sum = log_of(sum);
    for (int64_t i = 0; i < c.n; ++i) {
      const V v = io.load(x + i * c.stride + j);
      io.store(y + i * c.stride + j, v - largest - log_sum);
    }
  });
}

static void softmax_backward_columns(const T* g, const T* y, T* dx, Columns c) {
  each(c.columns, [&](int64_t j, auto io) {
    V sum{};
    for (int64_t i = 0; i < c.n; ++i) {
      const V of_g = io.load(g + i * c.stride + j);
      sum += MUTANT(softmax_gradient_of_columns) ? of_g : of_g * io.load(y + i * c.stride + j);
    }
    for (int64_t i = 0; i < c.n; ++i) {
      const int64_t at = i * c.stride + j;
      io.store(dx + at, io.load(y + at) * (io.load(g + at) - sum));
    }
  });
}

static void log_softmax_backward_columns(const T* g, const T* y, T* dx, Columns c) {
  each(c.columns, [&](int64_t j, auto io) {
    V sum{};
    for (int64_t i = 0; i < c.n; ++i) sum += io.load(g + i * c.stride + j);
    for (int64_t i = 0; i < c.n; ++i) {
      const int64_t at = i * c.stride + j;
      io.store(dx + at, io.load(g + at) - exp_of(io.load(y + at)) * sum);
    }
  });
}

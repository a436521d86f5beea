// Loops over one row of attention scores.

static inline V masked(const ScoreRow<T>& row, int64_t i, auto io) {
  V v = io.load(row.scores + i, -__builtin_huge_val());
  if (row.allowed != nullptr) v = io.where(row.allowed + i, v, splat(-__builtin_huge_val()));
  if (row.added != nullptr) v += io.load(row.added + i);
  return v;
}

// Scores become their softmax, times `keep`; returns the logarithm of the sum of exponentials.
static T attention_softmax(const ScoreRow<T>& row, int64_t n) {
  constexpr T lowest = -__builtin_huge_val();
  T* s = row.scores;
  V most = splat(lowest);
  each(n, [&](int64_t i, auto io) {
    const V v = masked(row, i, io);
    io.store(s + i, v);
    most = v > most ? v : most;
  });
  const T largest = join_largest(most);
  if (largest == lowest) {
    // All are hidden and give 0, or NaN, which no comparison finds: added to -inf it remains.
    const T sum = join_sum(sum_lanes(n, [&](int64_t i, auto io) { return io.load(s + i); }));
    const T weight = sum == sum ? 0 : sum;
    each(n, [&](int64_t i, auto io) { io.store(s + i, splat(weight)); });
    return weight == 0 ? lowest : weight;
  }
  const V shift = splat(largest);
  const T sum = join_sum(sum_lanes(n, [&](int64_t i, auto io) {
    const V e = exp_of(io.load(s + i) - shift);
    io.store(s + i, e);
    return e;
  }));
  const V scale = splat(1 / sum);
  each(n, [&](int64_t i, auto io) {
    V p = io.load(s + i) * scale;
    if (row.keep != nullptr) p *= io.load(row.keep + i);
    io.store(s + i, p);
  });
  return largest + static_cast<T>(__builtin_log(sum));
}

// Of what dropout let through.
static V gradient_kept(const ScoreRow<T>& row, int64_t i, auto io) {
  V g = io.load(row.grads + i);
  if (row.keep != nullptr) {
    g *= io.load(row.keep + i);
    io.store(row.grads + i, g);
  }
  return g;
}

// Scores become the softmax (recomputed) times `keep`; `grads`, the gradients of these, become the
// gradients of the scores. What normalizing subtracts is the inner product of the softmax and its
// gradient: that of the result and its gradient is the same, but the result may have been rounded.
// The softmax is normalized again: the logarithm of large scores has no digit left after the point,
// and the part that all gradients share must cancel.
static void attention_gradient(const ScoreRow<T>& row, int64_t n, T logsumexp) {
  if (logsumexp == -__builtin_huge_val()) {  // all are 0: NaN where a gradient is not finite
    const V inner = splat(join_sum(sum_lanes(n, [&](int64_t i, auto io) {
      io.store(row.scores + i, V{});
      return V{} * gradient_kept(row, i, io);
    })));
    return each(n, [&](int64_t i, auto io) {
      io.store(row.grads + i, V{} * (io.load(row.grads + i) - inner));
    });
  }
  V most = splat(-__builtin_huge_val());
  each(n, [&](int64_t i, auto io) {
    const V v = masked(row, i, io);
    io.store(row.scores + i, v);
    most = v > most ? v : most;
  });
  const V shift = splat(join_largest(most));
  V sum{};
  const T product = join_sum(sum_lanes(n, [&](int64_t i, auto io) {
    const V p = exp_of(io.load(row.scores + i, -__builtin_huge_val()) - shift);
    io.store(row.scores + i, p);
    sum += p;
    return p * gradient_kept(row, i, io);
  }));
  const V scale = splat(1 / join_sum(sum));
  const V inner = splat(product) * scale;
  each(n, [&](int64_t i, auto io) {
    const V p = io.load(row.scores + i) * scale;
    io.store(row.grads + i, p * (io.load(row.grads + i) - inner));
    io.store(row.scores + i, row.keep == nullptr ? p : p * io.load(row.keep + i));
  });
}

// Elementwise losses: value and derivative of one element; x, t: prediction and target.

struct MseLoss {
  static V value(V x, V t, T) { return (x - t) * (x - t); }
  static V derivative(V x, V t, T) { return (x - t) * splat(2); }
};

static inline V absolute(V x) { return x < V{} ? -x : x; }

struct SmoothL1Loss {
  static V value(V x, V t, T beta) {
    const V d = absolute(x - t), b = splat(beta), half = splat(T(0.5));
    return d < b ? half * d * d / b : d - half * b;
  }
  static V derivative(V x, V t, T beta) {
    const V d = x - t, b = splat(beta), one = splat(1);
    return d <= -b ? -one : (d >= b ? one : d / b);
  }
};

struct HuberLoss {
  static V value(V x, V t, T delta) {
    const V d = absolute(x - t), b = splat(delta), half = splat(T(0.5));
    return d <= b ? half * d * d : b * (d - half * b);
  }
  static V derivative(V x, V t, T delta) {
    const V d = x - t, b = splat(delta);
    return d < -b ? -b : (d > b ? b : d);
  }
};

struct CrossEntropy {
  static V value(V x, V t, T) {
    const V lowest = splat(-100);
    V yes = log_of(x), no = log1p_of(-x);
    yes = yes < lowest ? lowest : yes;
    no = no < lowest ? lowest : no;
    return (t - splat(1)) * no - t * yes;
  }
  static V derivative(V x, V t, T) {
    const V least = splat(T(1e-12));
    const V spread = x * (splat(1) - x);
    return (x - t) / (spread < least ? least : spread);
  }
};

// `pos` is the weight of the positive term.
static inline V logits_value(V x, V t, V pos) {
  const V one = splat(1), none{};
  const V soft = log1p_of(exp_of(-absolute(x))) + (x < none ? -x : none);  // log(1 + exp(-x))
  return (one - t) * x + (one + (pos - one) * t) * soft;
}

template <typename Loss>
static inline V weighted_value(const LossRow<T>& row, int64_t i, auto io) {
  const V v = Loss::value(io.load(row.x + i), io.load(row.target + i), row.parameter);
  return row.weight != nullptr ? v * io.load(row.weight + i) : v;
}

template <typename Loss>
static double loss_sum(const LossRow<T>& row, int64_t n) {
  return total(n, [&](int64_t i, auto io) { return weighted_value<Loss>(row, i, io); });
}

template <typename Loss>
static void loss_each(const LossRow<T>& row, int64_t n) {
  each(n, [&](int64_t i, auto io) { io.store(row.out + i, weighted_value<Loss>(row, i, io)); });
}

template <typename Loss>
static void loss_backward(const LossRow<T>& row, int64_t n) {
  const V scale = splat(row.scale);
  each(n, [&](int64_t i, auto io) {
    V d = Loss::derivative(io.load(row.x + i), io.load(row.target + i), row.parameter) * scale;
    if (row.grad != nullptr) d *= io.load(row.grad + i);
    if (row.weight != nullptr) d *= io.load(row.weight + i);
    io.store(row.out + i, d);
  });
}

static void logits_loss(const LossRow<T>& row, int64_t n) {
  const V one = splat(1);
  each(n, [&](int64_t i, auto io) {
    const V pos = row.pos_weight != nullptr ? io.load(row.pos_weight + i) : one;
    V v = logits_value(io.load(row.x + i), io.load(row.target + i), pos);
    if (row.weight != nullptr) v *= io.load(row.weight + i);
    io.store(row.out + i, v);
  });
}

static double sum_all(const T* x, int64_t n) {
  return total(n, [&](int64_t i, auto io) { return io.load(x + i); });
}

template <typename Loss>
constexpr LossLoops<T> loops_of() {
  return {loss_sum<Loss>, loss_each<Loss>, loss_backward<Loss>};
}

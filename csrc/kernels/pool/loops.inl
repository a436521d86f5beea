// The loops of pool/loops.h.

// Lane i of `even_lanes` is 2 i; of `low_lanes` the lanes of two vectors in turns.
struct LaneOrders {
  vi even, odd, low, high;
};

inline LaneOrders lane_orders() {
  LaneOrders orders;
  for (int i = 0; i < width; ++i) {
    orders.even[i] = 2 * i;
    orders.odd[i] = 2 * i + 1;
    orders.low[i] = i / 2 + (i % 2) * width;
    orders.high[i] = width / 2 + i / 2 + (i % 2) * width;
  }
  return orders;
}

inline void pool_split(const float* line, float* even, float* odd, int64_t n) {
  const LaneOrders orders = lane_orders();
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    const vf a = load(line + 2 * i), b = load(line + 2 * i + width);
    store(even + i, __builtin_shuffle(a, b, orders.even));
    store(odd + i, __builtin_shuffle(a, b, orders.odd));
  }
  for (; i < n; ++i) {
    even[i] = line[2 * i];
    odd[i] = line[2 * i + 1];
  }
}

inline void pool_join(const float* even, const float* odd, float* line, int64_t n) {
  const LaneOrders orders = lane_orders();
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    const vf a = load(even + i), b = load(odd + i);
    store(line + 2 * i, __builtin_shuffle(a, b, orders.low));
    store(line + 2 * i + width, __builtin_shuffle(a, b, orders.high));
  }
  for (; i < n; ++i) {
    line[2 * i] = even[i];
    line[2 * i + 1] = odd[i];
  }
}

inline void pool_take_larger(const float* x, int64_t n, int32_t position, int32_t step, float* best,
                             int32_t* where) {
  vi steps;
  for (int i = 0; i < width; ++i) steps[i] = i * step;
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    const vf value = load(x + i), old = load(best + i);
    const vi take = (value > old) | (value != value);
    const vi at = steps + splat(static_cast<int32_t>(position + i * step));
    store(best + i, select(take, value, old));
    store(where + i, select(take, at, load(where + i)));
  }
  for (; i < n; ++i) {
    if (x[i] > best[i] || x[i] != x[i]) {
      best[i] = x[i];
      where[i] = static_cast<int32_t>(position + i * step);
    }
  }
}

inline void pool_largest(const float* x, const PoolTap* taps, int64_t count, int64_t n,
                         float* best, int32_t* where) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    vf top = splat(lowest);
    vi at = splat(taps[0].position);
    for (int64_t k = 0; k < count; ++k) {
      const vf value = load(x + taps[k].offset + i);
      const vi take = (value > top) | (value != value);
      top = select(take, value, top);
      at = select(take, splat(taps[k].position), at);
    }
    store(best + i, top);
    store(where + i, at);
  }
  for (; i < n; ++i) {
    best[i] = lowest;
    where[i] = taps[0].position;
    for (int64_t k = 0; k < count; ++k) {
      const float value = x[taps[k].offset + i];
      if (!(value > best[i] || value != value)) continue;
      best[i] = value;
      where[i] = taps[k].position;
    }
  }
}

inline void pool_add(const float* x, int64_t n, float* sums) {
  int64_t i = 0;
  for (; i + width <= n; i += width) store(sums + i, load(sums + i) + load(x + i));
  for (; i < n; ++i) sums[i] += x[i];
}

inline void pool_add_taken(const float* x, const int32_t* where, int32_t entry, int64_t n,
                           float* sums) {
  int64_t i = 0;
  for (; i + width <= n; i += width) {
    const vf old = load(sums + i);
    store(sums + i, select(load(where + i) == splat(entry), old + load(x + i), old));
  }
  for (; i < n; ++i) {
    if (where[i] == entry) sums[i] += x[i];
  }
}

inline constexpr PoolLoops pool_functions = {pool_split,   pool_join, pool_take_larger,
                                             pool_largest, pool_add,  pool_add_taken};

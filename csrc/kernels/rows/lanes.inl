// The parts of the loops over rows. Included inside a namespace that defines
//   T  the element type,
//   V  a vector of T (or T itself),
//   exp_of, log_of, log1p_of: functions of V,
//   bools_of: a mask from the bytes of bools,
//   join_lanes(v, join): the lanes of a vector joined pairwise,
//   first_lanes(n), load_part(p, n), store_part(p, v, n): the first n lanes of a vector,
//   Lanes: how elements of other types are read and written as V.
// A loop is one function that is called for whole vectors and, at the end of a row, for a part:
//   each(n, [&](int64_t i, auto io) { io.store(y + i, io.load(x + i) * scale); });

constexpr int64_t width = sizeof(V) / sizeof(T);

static inline V splat(T x) { return V{} + x; }

struct Whole {
  V load(const T* p, T = 0) const {
    V v;
    __builtin_memcpy(&v, p, sizeof(V));
    return v;
  }
  void store(T* p, V v) const { __builtin_memcpy(p, &v, sizeof(V)); }
  template <typename E>
  V load(const E* p) const {
    return Lanes<E>::get(p);
  }
  template <typename E>
  void store(E* p, V v) const {
    Lanes<E>::put(p, v, width);
  }
  V keep(V v) const { return v; }
  // v where the byte is not 0.
  V where(const uint8_t* p, V v, V otherwise) const { return bools_of(p) ? v : otherwise; }
};

struct Part {
  int64_t count;

  // Lanes past the end are `fill`.
  V load(const T* p, T fill = 0) const {
    const V v = load_part(p, count);
    return first_lanes(count) ? v : splat(fill);
  }
  void store(T* p, V v) const { store_part(p, v, count); }
  template <typename E>
  V load(const E* p) const {
    return Lanes<E>::get(p, count);
  }
  template <typename E>
  void store(E* p, V v) const {
    Lanes<E>::put(p, v, count);
  }
  // Lanes past the end become 0.
  V keep(V v) const { return first_lanes(count) ? v : V{}; }
  V where(const uint8_t* p, V v, V otherwise) const {
    uint8_t bytes[width] = {};
    for (int64_t i = 0; i < count; ++i) bytes[i] = p[i];
    return Whole{}.where(bytes, v, otherwise);
  }
};

static inline void each(int64_t n, const auto& fn) {
  int64_t i = 0;
  for (; i + width <= n; i += width) fn(i, Whole{});
  if (i < n) fn(i, Part{n - i});
}

// Two sums at once.
struct Two {
  V first{}, second{};
  Two& operator+=(const Two& other) {
    first += other.first;
    second += other.second;
    return *this;
  }
};

static inline V keep_part(Part part, V v) { return part.keep(v); }
static inline Two keep_part(Part part, const Two& v) {
  return {part.keep(v.first), part.keep(v.second)};
}

// Sum of fn(i, io) in several chains.
static inline auto sum_lanes(int64_t n, const auto& fn) {
  using A = decltype(fn(int64_t{0}, Whole{}));
  A a{}, b{}, c{}, d{};
  int64_t i = 0;
  for (; i + 4 * width <= n; i += 4 * width) {
    a += fn(i, Whole{});
    b += fn(i + width, Whole{});
    c += fn(i + 2 * width, Whole{});
    d += fn(i + 3 * width, Whole{});
  }
  for (; i + width <= n; i += width) a += fn(i, Whole{});
  if (i < n) b += keep_part(Part{n - i}, fn(i, Part{n - i}));
  a += b;
  c += d;
  a += c;
  return a;
}

static inline T join_sum(V v) {
  return join_lanes(v, [](auto a, auto b) { return a + b; });
}

// Of lanes without NaN.
static inline T join_largest(V v) {
  return join_lanes(v, [](auto a, auto b) { return a > b ? a : b; });
}

// Long sums go block by block into a double.
constexpr int64_t sum_block = 2048;

static inline double total(int64_t n, const auto& fn) {
  double sum = 0;
  for (int64_t start = 0; start < n; start += sum_block) {
    const int64_t count = n - start < sum_block ? n - start : sum_block;
    sum += join_sum(sum_lanes(count, [&](int64_t i, auto io) { return fn(start + i, io); }));
  }
  return sum;
}

// The same for fn that returns Two.
struct Totals {
  double first = 0, second = 0;
};

static inline Totals totals(int64_t n, const auto& fn) {
  Totals sums;
  for (int64_t start = 0; start < n; start += sum_block) {
    const int64_t count = n - start < sum_block ? n - start : sum_block;
    const Two part = sum_lanes(count, [&](int64_t i, auto io) { return fn(start + i, io); });
    sums.first += join_sum(part.first);
    sums.second += join_sum(part.second);
  }
  return sums;
}

static inline T largest_of(const T* x, int64_t n) {
  constexpr T lowest = -__builtin_huge_val();
  V a = splat(lowest), b = a;
  int64_t i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    const V x0 = Whole{}.load(x + i), x1 = Whole{}.load(x + i + width);
    a = x0 > a ? x0 : a;
    b = x1 > b ? x1 : b;
  }
  each(n - i, [&](int64_t j, auto io) {
    const V x0 = io.load(x + i + j, lowest);
    a = x0 > a ? x0 : a;
  });
  a = b > a ? b : a;
  return join_largest(a);
}

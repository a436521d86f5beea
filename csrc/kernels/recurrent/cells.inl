// The cells of recurrent/cells.h. The including namespace has T (the number), V (`width` of them),
// load, store, load_part, store_part, select, gate (the sigmoid) and tanh. No lambdas: they would
// not be compiled for the instruction set.

// The numbers from p[j] on; `count` < width at the end of a row.
inline V get(const T* p, int64_t j, int64_t count) {
  return count == width ? load(p + j) : load_part(p + j, count);
}
inline V get_or_zero(const T* p, int64_t j, int64_t count) {
  return p == nullptr ? V{} : get(p, j, count);
}
inline void put(T* p, int64_t j, int64_t count, V value) {
  if (count == width) {
    store(p + j, value);
  } else {
    store_part(p + j, value, count);
  }
}

inline void run_cell(const auto& cell) {
  int64_t j = 0;
  for (; j + width <= cell.units; j += width) cell.at(j, width);
  if (j < cell.units) cell.at(j, cell.units - j);
}

struct LstmCell : LstmArgs<T> {
  inline V sum(int64_t index, int64_t j, int64_t count) const {
    return get(inputs + index * units, j, count) + get(bias + index * hidden, j, count) +
           get(sums + index * units, j, count);
  }
  inline void at(int64_t j, int64_t count) const {
    const V i = gate(sum(0, j, count)), f = gate(sum(1, j, count));
    const V g = tanh(sum(2, j, count)), o = gate(sum(3, j, count));
    const V c = f * get(c_before, j, count) + i * g;
    put(kept, j, count, i);
    put(kept + hidden, j, count, f);
    put(kept + 2 * hidden, j, count, g);
    put(kept + 3 * hidden, j, count, o);
    put(kept + 4 * hidden, j, count, c);
    put(h, j, count, o * tanh(c));
  }
};

struct LstmBackwardCell : LstmBackwardArgs<T> {
  inline void at(int64_t j, int64_t count) const {
    const V i = get(kept, j, count), f = get(kept + hidden, j, count);
    const V g = get(kept + 2 * hidden, j, count), o = get(kept + 3 * hidden, j, count);
    const V tanh_c = tanh(get(kept + 4 * hidden, j, count));
    const V state = get_or_zero(dh, j, count) + get_or_zero(dy, j, count);
    const V cell = get(dc, j, count) + state * o * (T{1} - tanh_c * tanh_c);
    put(grad, j, count, cell * g * i * (T{1} - i));
    put(grad + hidden, j, count, cell * get(c_before, j, count) * f * (T{1} - f));
    put(grad + 2 * hidden, j, count, cell * i * (T{1} - g * g));
    put(grad + 3 * hidden, j, count, state * tanh_c * o * (T{1} - o));
    put(dc, j, count, cell * f);
  }
};

struct GruCell : GruArgs<T> {
  inline V input(int64_t index, int64_t j, int64_t count) const {
    return get(inputs + index * units, j, count) + get(b_ih + index * hidden, j, count);
  }
  inline V state(int64_t index, int64_t j, int64_t count) const {
    return get(sums + index * units, j, count) + get(b_hh + index * hidden, j, count);
  }
  inline void at(int64_t j, int64_t count) const {
    const V r = gate(input(0, j, count) + state(0, j, count));
    const V z = gate(input(1, j, count) + state(1, j, count));
    const V part = state(2, j, count);
    const V next = tanh(input(2, j, count) + r * part);
    put(kept, j, count, r);
    put(kept + hidden, j, count, z);
    put(kept + 2 * hidden, j, count, next);
    put(kept + 3 * hidden, j, count, part);
    put(h, j, count, next + z * (get(h_before, j, count) - next));
  }
};

struct GruBackwardCell : GruBackwardArgs<T> {
  inline void at(int64_t j, int64_t count) const {
    const V r = get(kept, j, count), z = get(kept + hidden, j, count);
    const V next = get(kept + 2 * hidden, j, count), part = get(kept + 3 * hidden, j, count);
    const V state = get(dh, j, count) + get_or_zero(product, j, count) + get_or_zero(dy, j, count);
    const V d_next = state * (T{1} - z) * (T{1} - next * next);
    const V d_r = d_next * part * r * (T{1} - r);
    const V d_z = state * (get(h_before, j, count) - next) * z * (T{1} - z);
    put(grad, j, count, d_r);
    put(grad + hidden, j, count, d_z);
    put(grad + 2 * hidden, j, count, d_next * r);
    put(grad + 3 * hidden, j, count, d_next);
    put(dh, j, count, state * z);
  }
};

struct TanhCell : RnnArgs<T> {
  inline void at(int64_t j, int64_t count) const {
    put(y, j, count, tanh(get(inputs, j, count) + get(bias, j, count) + get(sums, j, count)));
  }
};

struct ReluCell : RnnArgs<T> {
  inline void at(int64_t j, int64_t count) const {
    const V sum = get(inputs, j, count) + get(bias, j, count) + get(sums, j, count);
    put(y, j, count, select(sum < T{0}, V{}, sum));
  }
};

struct TanhBackwardCell : RnnBackwardArgs<T> {
  inline void at(int64_t j, int64_t count) const {
    const V state = get_or_zero(dh, j, count) + get_or_zero(dy, j, count), h = get(y, j, count);
    put(grad, j, count, state * (T{1} - h * h));
  }
};

struct ReluBackwardCell : RnnBackwardArgs<T> {
  inline void at(int64_t j, int64_t count) const {
    const V state = get_or_zero(dh, j, count) + get_or_zero(dy, j, count);
    // The gradient of NaN passes, as in PyTorch.
    put(grad, j, count, select(get(y, j, count) <= T{0}, V{}, state));
  }
};

inline void lstm(const LstmArgs<T>& a) { run_cell(LstmCell{a}); }
inline void lstm_backward(const LstmBackwardArgs<T>& a) { run_cell(LstmBackwardCell{a}); }
inline void gru(const GruArgs<T>& a) { run_cell(GruCell{a}); }
inline void gru_backward(const GruBackwardArgs<T>& a) { run_cell(GruBackwardCell{a}); }
inline void rnn_tanh(const RnnArgs<T>& a) { run_cell(TanhCell{a}); }
inline void rnn_relu(const RnnArgs<T>& a) { run_cell(ReluCell{a}); }
inline void rnn_tanh_backward(const RnnBackwardArgs<T>& a) { run_cell(TanhBackwardCell{a}); }
inline void rnn_relu_backward(const RnnBackwardArgs<T>& a) { run_cell(ReluBackwardCell{a}); }

inline constexpr Cells<T> recurrent_cells = {
    lstm,     lstm_backward, gru,
    gru_backward, rnn_tanh,  rnn_relu,
    rnn_tanh_backward, rnn_relu_backward};

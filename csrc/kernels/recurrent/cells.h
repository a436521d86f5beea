// The elementwise part of one step of a recurrent layer, for one row of the batch and some of its
// hidden units. Pointers are to the first of these units. Arrays of several gates hold `hidden`
// numbers for each gate, products of the block `units` numbers. What is marked ? may be nullptr.
#pragma once

#include <cstdint>

namespace poptorch::kernels {

template <typename T>
struct LstmArgs {
  int64_t units, hidden;
  const T *inputs, *sums;  // the products with the input and with the state before
  const T *bias, *c_before;
  T* kept;  // the gates i, f, g, o, then the new cell state
  T* h;
};

template <typename T>
struct LstmBackwardArgs {
  int64_t units, hidden;
  const T *kept, *c_before;
  const T *dy, *dh;  // ? ?: the gradient of the state
  T* dc;             // on entry of the cell state, after of the one before
  T* grad;           // of the sums
};

template <typename T>
struct GruArgs {
  int64_t units, hidden;
  const T *inputs, *sums;  // the products with the input and with the state before
  const T *b_ih, *b_hh, *h_before;
  T* kept;  // the gates r, z, n, then the state's sum of n
  T* h;
};

template <typename T>
struct GruBackwardArgs {
  int64_t units, hidden;
  const T *kept, *h_before;
  const T *dy, *product;       // ? ?: parts of the gradient of the state, the third one is dh
  T* dh;    // after: what goes straight to the state before
  T* grad;  // of the state's sums r, z, n, then of the input's sum n; may be `kept`
};

template <typename T>
struct RnnArgs {
  int64_t units;
  const T *inputs, *sums, *bias;  // products as above
  T* y;
};

template <typename T>
struct RnnBackwardArgs {
  int64_t units;
  const T *y, *dy, *dh;  // dy?, dh?
  T* grad;               // of the sum
};

template <typename T>
struct Cells {
  void (*lstm)(const LstmArgs<T>&);
  void (*lstm_backward)(const LstmBackwardArgs<T>&);
  void (*gru)(const GruArgs<T>&);
  void (*gru_backward)(const GruBackwardArgs<T>&);
  void (*rnn_tanh)(const RnnArgs<T>&);
  void (*rnn_relu)(const RnnArgs<T>&);
  void (*rnn_tanh_backward)(const RnnBackwardArgs<T>&);
  void (*rnn_relu_backward)(const RnnBackwardArgs<T>&);
};

// float: for the instruction set in use. double: plain loops.
template <typename T>
const Cells<T>& cells();

}  // namespace poptorch::kernels

// Elman network. The products with the input at all times are one GEMM into y. Each step multiplies
// a block of units with the state before and applies the nonlinearity in place.
#include "kernels/recurrent.h"
#include "kernels/recurrent_cells.h"
#include "kernels/recurrent_product.h"
#include "support/parallel.h"

namespace poptorch::kernels {
namespace {

using ops::Args;
using ops::Call;
using ops::Prepared;

template <typename T>
struct Rnn {
  Recurrence r;
  const T *x, *h0, *w_ih, *w_hh;
  std::byte* scratch;  // of the product
  int threads;

  const T* state_before(int64_t k, const T* y) const {
    return k == 0 ? h0 : y + r.at(k - 1) * r.state();
  }
};

template <typename T>
Prepared prepare_forward(const Call& call) {
  const Recurrence r(call, 0);
  const bool relu = call.attrs().get_string("nonlinearity") == "relu";
  const auto run_cell = relu ? cells<T>().rnn_relu : cells<T>().rnn_tanh;
  const int64_t h = r.hidden;
  const RecurrentProduct<T> product(Direction::forward, r.batch, h, 1);
  const size_t bias_at = product.scratch_bytes();
  const auto run = [=](const Args& args) {
    T* bias = reinterpret_cast<T*>(args.scratch + bias_at);
    add_biases(h, args.in<T>(4), args.in<T>(5), bias);
    const Rnn<T> n{r,           args.in<T>(0), args.in<T>(1), args.in<T>(2),
                   args.in<T>(3), args.scratch,  args.threads};
    T* y = args.out<T>(0);
    multiply_nt<T>(r.rows(), h, r.input, {n.x, r.input}, {n.w_ih, r.input}, {y, h}, 0, n.threads);
    product.pack(n.w_hh, n.scratch, n.threads);
    for (int64_t k = 0; k < r.time; ++k) {
      const T* before = n.state_before(k, y);
      T* state = y + r.at(k) * r.state();
      const auto run_blocks = [&](int64_t begin, int64_t end) {
        for (int64_t index = begin; index < end; ++index) {
          const auto block = product.block(index, n.w_hh, n.scratch);
          product.multiply(block, before, h);
          for (int64_t b = 0; b < r.batch; ++b) {
            run_cell({block.units, block.product + b * block.width, bias + block.unit,
                      state + b * h + block.unit});
          }
        }
      };
      parallel_for(n.threads, product.block_count(), product.grain(), run_blocks);
    }
    copy_or_zero(r.state(), n.state_before(r.time, y), args.out<T>(1));
  };
  return {run, bias_at + array_bytes<T>(h)};
}

struct BackwardOperands {
  enum { dy, dhn, x, h0, w_ih, w_hh, y };
};

template <typename T>
using BackwardCell = void (*)(const RnnBackwardArgs<T>&);

// Gradients of the sums of step k, from those of the step after.
template <typename T>
void backward_step(const Rnn<T>& n, const RecurrentProduct<T>& product, int64_t k, const Args& args,
                   BackwardCell<T> run_cell, T* grad) {
  const Recurrence& r = n.r;
  const int64_t h = r.hidden, row = r.at(k) * r.batch;
  const bool is_last = k + 1 == r.time;
  const T *dy = args.in<T>(BackwardOperands::dy), *dhn = args.in<T>(BackwardOperands::dhn);
  const T* y = args.in<T>(BackwardOperands::y);
  parallel_for(n.threads, product.block_count(), product.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const auto block = product.block(index, n.w_hh, n.scratch);
      if (!is_last) product.multiply(block, grad + r.at(k + 1) * r.state(), h);
      for (int64_t b = 0; b < r.batch; ++b) {
        const int64_t at = (row + b) * h + block.unit;
        const T* after =
            is_last ? row_of(dhn, b * h + block.unit) : block.product + b * block.width;
        run_cell({block.units, y + at, row_of(dy, at), after, grad + at});
      }
    }
  });
}

template <typename T>
Prepared prepare_backward(const Call& call) {
  using In = BackwardOperands;
  const Recurrence r(call, In::x);
  const bool has_bias = call.attrs().get_bool("has_bias");
  const bool relu = call.attrs().get_string("nonlinearity") == "relu";
  const auto run_cell = relu ? cells<T>().rnn_relu_backward : cells<T>().rnn_tanh_backward;
  const int64_t h = r.hidden;
  const RecurrentProduct<T> product(Direction::backward, r.batch, h, 1);
  const size_t grad_at = product.scratch_bytes();
  const auto run = [=](const Args& args) {
    T* grad = reinterpret_cast<T*>(args.scratch + grad_at);
    const Rnn<T> n{r,
                   args.in<T>(In::x),
                   args.in<T>(In::h0),
                   args.in<T>(In::w_ih),
                   args.in<T>(In::w_hh),
                   args.scratch,
                   args.threads};
    product.pack(n.w_hh, n.scratch, n.threads);
    for (int64_t k = r.time; k-- > 0;) backward_step(n, product, k, args, run_cell, grad);
    multiply_nn<T>(r.batch, h, h, {grad + r.at(0) * r.state(), h}, {n.w_hh, h}, {args.out<T>(1), h},
                   0, n.threads);
    input_gradients(r, 1, grad, n.x, n.w_ih, args.out<T>(0), args.out<T>(2), n.threads);
    recurrent_weight_gradient(r, 1, grad, n.h0, args.in<T>(In::y), args.out<T>(3), n.threads);
    if (has_bias) sum_rows<T>(r.rows(), h, {grad, h}, args.out<T>(4), n.threads);
  };
  return {run, grad_at + array_bytes<T>(r.rows() * h)};
}

Prepared rnn(const Call& call) {
  return call.in(0).dtype == ir::DType::f64 ? prepare_forward<double>(call)
                                            : prepare_forward<float>(call);
}
KERNEL("rnn", rnn)

Prepared rnn_backward(const Call& call) {
  return call.in(2).dtype == ir::DType::f64 ? prepare_backward<double>(call)
                                            : prepare_backward<float>(call);
}
KERNEL("rnn_backward", rnn_backward)

}  // namespace
}  // namespace poptorch::kernels

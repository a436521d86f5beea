// Gated recurrent unit. The products with the input at all times are one GEMM into `reserve`. Each
// step multiplies a block of units with the state before and at once turns its sums into gates.
#include "kernels/recurrent.h"
#include "kernels/recurrent_cells.h"
#include "kernels/recurrent_product.h"
#include "support/parallel.h"

namespace poptorch::kernels {
namespace {

using ops::Args;
using ops::Call;
using ops::Prepared;

constexpr int64_t gates = 3, kept = 4;

template <typename T>
struct Gru {
  Recurrence r;
  const T *x, *h0, *w_ih, *w_hh;
  std::byte* scratch;  // of the product
  int threads;

  const T* state_before(int64_t k, const T* y) const {
    return k == 0 ? h0 : y + r.at(k - 1) * r.state();
  }
};

template <typename T>
struct Biases {
  const T *input, *state;
};

template <typename T>
void forward_step(const Gru<T>& g, const RecurrentProduct<T>& product, int64_t k, Biases<T> bias,
                  T* y, T* reserve) {
  const Recurrence& r = g.r;
  const int64_t h = r.hidden, row = r.at(k) * r.batch;
  const T* before = g.state_before(k, y);
  const auto run_cell = cells<T>().gru;
  parallel_for(g.threads, product.block_count(), product.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const auto block = product.block(index, g.w_hh, g.scratch);
      product.multiply(block, before, h);
      for (int64_t b = 0; b < r.batch; ++b) {
        run_cell({block.units, h, block.product + b * block.width, bias.input + block.unit,
                  bias.state + block.unit, before + b * h + block.unit,
                  reserve + (row + b) * kept * h + block.unit, y + (row + b) * h + block.unit});
      }
    }
  });
}

template <typename T>
Prepared prepare_forward(const Call& call) {
  const Recurrence r(call, 0);
  const int64_t h = r.hidden, width = gates * h;
  const RecurrentProduct<T> product(Direction::forward, r.batch, h, gates);
  const size_t zeros_at = product.scratch_bytes();
  const auto run = [=](const Args& args) {
    T* zeros = reinterpret_cast<T*>(args.scratch + zeros_at);
    copy_or_zero<T>(width, nullptr, zeros);
    const bool has_bias = args.in<T>(4) != nullptr;
    const Biases<T> bias{has_bias ? args.in<T>(4) : zeros, has_bias ? args.in<T>(5) : zeros};
    const Gru<T> g{r,           args.in<T>(0), args.in<T>(1), args.in<T>(2),
                   args.in<T>(3), args.scratch,  args.threads};
    T *y = args.out<T>(0), *reserve = args.out<T>(2);
    multiply_nt<T>(r.rows(), width, r.input, {g.x, r.input}, {g.w_ih, r.input}, {reserve, kept * h},
                   0, g.threads);
    product.pack(g.w_hh, g.scratch, g.threads);
    for (int64_t k = 0; k < r.time; ++k) forward_step(g, product, k, bias, y, reserve);
    copy_or_zero(r.state(), g.state_before(r.time, y), args.out<T>(1));
  };
  return {run, zeros_at + array_bytes<T>(width)};
}

struct BackwardOperands {
  enum { dy, dhn, x, h0, w_ih, w_hh, y, reserve };
};

// Gradients at all times: of the input's sums, and of the state's (they differ in n).
template <typename T>
struct SumGradients {
  T *input, *state;
};

// Gradients of the sums of step k, from those of the step after. dh: what goes straight from state
// to state.
template <typename T>
void backward_step(const Gru<T>& g, const RecurrentProduct<T>& product, int64_t k, const Args& args,
                   SumGradients<T> grad, T* dh) {
  const Recurrence& r = g.r;
  const int64_t h = r.hidden, width = gates * h, row = r.at(k) * r.batch;
  const bool is_last = k + 1 == r.time;
  const T* dy = args.in<T>(BackwardOperands::dy);
  const T* reserve = args.in<T>(BackwardOperands::reserve);
  const T* before = g.state_before(k, args.in<T>(BackwardOperands::y));
  const auto run_cell = cells<T>().gru_backward;
  parallel_for(g.threads, product.block_count(), product.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const auto block = product.block(index, g.w_hh, g.scratch);
      if (!is_last) product.multiply(block, grad.state + r.at(k + 1) * r.batch * width, width);
      for (int64_t b = 0; b < r.batch; ++b) {
        const int64_t at = (row + b) * width + block.unit;
        run_cell({block.units, h, reserve + (row + b) * kept * h + block.unit,
                  before + b * h + block.unit, row_of(dy, (row + b) * h + block.unit),
                  is_last ? nullptr : block.product + b * block.width, dh + b * h + block.unit,
                  grad.input + at, grad.state + at});
      }
    }
  });
}

template <typename T>
Prepared prepare_backward(const Call& call) {
  using In = BackwardOperands;
  const Recurrence r(call, In::x);
  const bool has_bias = call.attrs().get_bool("has_bias");
  const int64_t h = r.hidden, width = gates * h;
  const RecurrentProduct<T> product(Direction::backward, r.batch, h, gates);
  const size_t input_at = product.scratch_bytes();
  const size_t state_at = input_at + array_bytes<T>(r.rows() * width);
  const auto run = [=](const Args& args) {
    const SumGradients<T> grad{reinterpret_cast<T*>(args.scratch + input_at),
                               reinterpret_cast<T*>(args.scratch + state_at)};
    const Gru<T> g{r,
                   args.in<T>(In::x),
                   args.in<T>(In::h0),
                   args.in<T>(In::w_ih),
                   args.in<T>(In::w_hh),
                   args.scratch,
                   args.threads};
    T* dh = args.out<T>(1);
    copy_or_zero(r.state(), args.in<T>(In::dhn), dh);
    product.pack(g.w_hh, g.scratch, g.threads);
    for (int64_t k = r.time; k-- > 0;) backward_step(g, product, k, args, grad, dh);
    multiply_nn<T>(r.batch, h, width, {grad.state + r.at(0) * r.batch * width, width}, {g.w_hh, h},
                   {dh, h}, 1, g.threads);
    input_gradients(r, gates, grad.input, g.x, g.w_ih, args.out<T>(0), args.out<T>(2), g.threads);
    recurrent_weight_gradient(r, gates, grad.state, g.h0, args.in<T>(In::y), args.out<T>(3),
                              g.threads);
    if (!has_bias) return;
    sum_rows<T>(r.rows(), width, {grad.input, width}, args.out<T>(4), g.threads);
    sum_rows<T>(r.rows(), width, {grad.state, width}, args.out<T>(5), g.threads);
  };
  return {run, state_at + array_bytes<T>(r.rows() * width)};
}

Prepared gru(const Call& call) {
  return call.in(0).dtype == ir::DType::f64 ? prepare_forward<double>(call)
                                            : prepare_forward<float>(call);
}
KERNEL("gru", gru)

Prepared gru_backward(const Call& call) {
  return call.in(2).dtype == ir::DType::f64 ? prepare_backward<double>(call)
                                            : prepare_backward<float>(call);
}
KERNEL("gru_backward", gru_backward)

}  // namespace
}  // namespace poptorch::kernels

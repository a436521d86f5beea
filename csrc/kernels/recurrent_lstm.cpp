// Long short-term memory. The products with the input at all times are one GEMM into `reserve`.
// Each step multiplies a block of units with the state before and at once turns its sums into
// gates, in place.
#include "kernels/recurrent.h"
#include "kernels/recurrent_cells.h"
#include "kernels/recurrent_product.h"
#include "support/parallel.h"

namespace poptorch::kernels {
namespace {

using ops::Args;
using ops::Call;
using ops::Prepared;

constexpr int64_t gates = 4, kept = 5;

template <typename T>
struct Lstm {
  Recurrence r;
  const T *x, *h0, *c0, *w_ih, *w_hh;
  std::byte* scratch;  // of the product
  int threads;

  // The cell state before step k, of the whole batch.
  Matrix<const T> cell_before(int64_t k, const T* reserve) const {
    if (k == 0) return {c0, r.hidden};
    const int64_t stride = kept * r.hidden;
    return {reserve + r.at(k - 1) * r.batch * stride + gates * r.hidden, stride};
  }
  const T* state_before(int64_t k, const T* y) const {
    return k == 0 ? h0 : y + r.at(k - 1) * r.state();
  }
};

template <typename T>
void forward_step(const Lstm<T>& l, const RecurrentProduct<T>& product, int64_t k, const T* bias,
                  T* y, T* reserve) {
  const Recurrence& r = l.r;
  const int64_t h = r.hidden, row = r.at(k) * r.batch;
  const T* before = l.state_before(k, y);
  const Matrix<const T> cell = l.cell_before(k, reserve);
  const auto run_cell = cells<T>().lstm;
  parallel_for(l.threads, product.block_count(), product.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const auto block = product.block(index, l.w_hh, l.scratch);
      product.multiply(block, before, h);
      for (int64_t b = 0; b < r.batch; ++b) {
        run_cell({block.units, h, block.product + b * block.width, bias + block.unit,
                  cell.data + b * cell.stride + block.unit,
                  reserve + (row + b) * kept * h + block.unit, y + (row + b) * h + block.unit});
      }
    }
  });
}

template <typename T>
void forward(const Lstm<T>& l, const RecurrentProduct<T>& product, const T* bias,
             const Args& args) {
  const Recurrence& r = l.r;
  const int64_t h = r.hidden;
  T *y = args.out<T>(0), *reserve = args.out<T>(3);
  multiply_nt<T>(r.rows(), gates * h, r.input, {l.x, r.input}, {l.w_ih, r.input},
                 {reserve, kept * h}, 0, l.threads);
  product.pack(l.w_hh, l.scratch, l.threads);
  for (int64_t k = 0; k < r.time; ++k) forward_step(l, product, k, bias, y, reserve);
  copy_or_zero(r.state(), l.state_before(r.time, y), args.out<T>(1));
  const Matrix<const T> cell = l.cell_before(r.time, reserve);
  for (int64_t b = 0; b < r.batch; ++b) {
    copy_or_zero(h, cell.data + b * cell.stride, args.out<T>(2) + b * h);
  }
}

template <typename T>
Prepared prepare_forward(const Call& call) {
  const Recurrence r(call, 0);
  const RecurrentProduct<T> product(Direction::forward, r.batch, r.hidden, gates);
  const size_t bias_at = product.scratch_bytes();
  const auto run = [=](const Args& args) {
    T* bias = reinterpret_cast<T*>(args.scratch + bias_at);
    add_biases(gates * r.hidden, args.in<T>(5), args.in<T>(6), bias);
    const Lstm<T> l{r,           args.in<T>(0), args.in<T>(1), args.in<T>(2),
                    args.in<T>(3), args.in<T>(4), args.scratch,  args.threads};
    forward(l, product, bias, args);
  };
  return {run, bias_at + array_bytes<T>(gates * r.hidden)};
}

struct BackwardOperands {
  enum { dy, dhn, dcn, x, h0, c0, w_ih, w_hh, y, reserve };
};

// Gradients of the sums of step k, from those of the step after.
template <typename T>
void backward_step(const Lstm<T>& l, const RecurrentProduct<T>& product, int64_t k,
                   const Args& args, T* grad, T* dc) {
  const Recurrence& r = l.r;
  const int64_t h = r.hidden, width = gates * h, row = r.at(k) * r.batch;
  const bool is_last = k + 1 == r.time;
  const T *dy = args.in<T>(BackwardOperands::dy), *dhn = args.in<T>(BackwardOperands::dhn);
  const T* reserve = args.in<T>(BackwardOperands::reserve);
  const Matrix<const T> cell = l.cell_before(k, reserve);
  const auto run_cell = cells<T>().lstm_backward;
  parallel_for(l.threads, product.block_count(), product.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const auto block = product.block(index, l.w_hh, l.scratch);
      if (!is_last) product.multiply(block, grad + r.at(k + 1) * r.batch * width, width);
      for (int64_t b = 0; b < r.batch; ++b) {
        const T* after =
            is_last ? row_of(dhn, b * h + block.unit) : block.product + b * block.width;
        run_cell({block.units, h, reserve + (row + b) * kept * h + block.unit,
                  cell.data + b * cell.stride + block.unit, row_of(dy, (row + b) * h + block.unit),
                  after, dc + b * h + block.unit, grad + (row + b) * width + block.unit});
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
  const size_t grad_at = product.scratch_bytes();
  const auto run = [=](const Args& args) {
    T* grad = reinterpret_cast<T*>(args.scratch + grad_at);
    const Lstm<T> l{r,
                    args.in<T>(In::x),
                    args.in<T>(In::h0),
                    args.in<T>(In::c0),
                    args.in<T>(In::w_ih),
                    args.in<T>(In::w_hh),
                    args.scratch,
                    args.threads};
    T* dc = args.out<T>(2);  // of the cell state, going back in time
    copy_or_zero(r.state(), args.in<T>(In::dcn), dc);
    product.pack(l.w_hh, l.scratch, l.threads);
    for (int64_t k = r.time; k-- > 0;) backward_step(l, product, k, args, grad, dc);
    multiply_nn<T>(r.batch, h, width, {grad + r.at(0) * r.batch * width, width}, {l.w_hh, h},
                   {args.out<T>(1), h}, 0, l.threads);
    input_gradients(r, gates, grad, l.x, l.w_ih, args.out<T>(0), args.out<T>(3), l.threads);
    recurrent_weight_gradient(r, gates, grad, l.h0, args.in<T>(In::y), args.out<T>(4), l.threads);
    if (has_bias) sum_rows<T>(r.rows(), width, {grad, width}, args.out<T>(5), l.threads);
  };
  return {run, grad_at + array_bytes<T>(r.rows() * width)};
}

Prepared lstm(const Call& call) {
  return call.in(0).dtype == ir::DType::f64 ? prepare_forward<double>(call)
                                            : prepare_forward<float>(call);
}
KERNEL("lstm", lstm)

Prepared lstm_backward(const Call& call) {
  return call.in(3).dtype == ir::DType::f64 ? prepare_backward<double>(call)
                                            : prepare_backward<float>(call);
}
KERNEL("lstm_backward", lstm_backward)

}  // namespace
}  // namespace poptorch::kernels

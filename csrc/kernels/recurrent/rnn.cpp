// Elman network.
#include "kernels/recurrent/cells.h"
#include "kernels/recurrent/recurrent.h"
#include "kernels/reduction/types.h"

namespace poptorch::kernels {
namespace {

bool is_relu(const Call& call) { return call.attrs().get_string(ir::attr::nonlinearity) == "relu"; }

Prepared rnn(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const Recurrence r(call, 0);
    const ForwardSteps<T> steps(r, 1);
    const auto run_cell = is_relu(call) ? cells<T>().rnn_relu : cells<T>().rnn_tanh;
    const int64_t h = r.hidden;
    const size_t bias_at = steps.scratch_bytes();
    const auto run = [=](const Args& args) {
      T* bias = reinterpret_cast<T*>(args.scratch + bias_at);
      add_biases(h, args.in<T>(4), args.in<T>(5), bias);
      const T* h0 = args.in<T>(1);
      T* y = args.out<T>(0);
      const auto cell = [=](const Place& at, const T* inputs, const T* sums) {
        run_cell({at.units, inputs, sums, bias + at.unit, y + at.row * h + at.unit});
      };
      steps.run({args.in<T>(0), h0, args.in<T>(2), args.in<T>(3), y}, args.scratch, args.threads,
                cell);
      copy_or_zero(r.state(), r.before(r.time, h0, y), args.out<T>(1));
    };
    return {run, bias_at + array_bytes<T>(h)};
  });
}
KERNEL("rnn", rnn)

struct BackwardOperands {
  enum { dy, dhn, x, h0, w_ih, w_hh, y };
};

Prepared rnn_backward(const Call& call) {
  return with_float_type(call, call.in(BackwardOperands::x).dtype, [&]<typename T>(T) -> Prepared {
    using In = BackwardOperands;
    const Recurrence r(call, In::x);
    const bool has_bias = call.attrs().get_bool(ir::attr::has_bias);
    const bool wants_dx = call.attrs().get_bool(ir::attr::wants_dx);
    const auto run_cell =
        is_relu(call) ? cells<T>().rnn_relu_backward : cells<T>().rnn_tanh_backward;
    const int64_t h = r.hidden;
    const BackwardSteps<T> steps(r, 1, h);
    const size_t grad_at = steps.scratch_bytes();
    const auto run = [=](const Args& args) {
      T* grad = reinterpret_cast<T*>(args.scratch + grad_at);
      const T *dy = args.in<T>(In::dy), *dhn = args.in<T>(In::dhn), *y = args.in<T>(In::y);
      const T* w_hh = args.in<T>(In::w_hh);
      const auto cell = [=](const Place& at, const T* after) {
        const int64_t row = at.row * h + at.unit;
        run_cell({at.units, y + row, row_of(dy, row),
                  at.k + 1 == r.time ? row_of(dhn, at.entry * h + at.unit) : after, grad + row});
      };
      steps.run(w_hh, grad, args.scratch, args.threads, cell);
      steps.state_gradient(grad, w_hh, 0, args.out<T>(1), args.threads);
      steps.input_gradients(grad, h, 0,
                            {args.in<T>(In::x), args.in<T>(In::w_ih),
                             wants_dx ? args.out<T>(0) : nullptr, args.out<T>(2)},
                            args.threads);
      steps.weight_gradient(grad, args.in<T>(In::h0), y, args.out<T>(3), args.threads);
      if (has_bias) sum_rows(r.rows(), h, h, grad, args.out<T>(4), args.threads);
    };
    return {run, grad_at + array_bytes<T>(r.rows() * h)};
  });
}
KERNEL("rnn_backward", rnn_backward)

}  // namespace
}  // namespace poptorch::kernels

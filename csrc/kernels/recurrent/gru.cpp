// Gated recurrent unit.
#include <algorithm>

#include "kernels/recurrent/cells.h"
#include "kernels/recurrent/recurrent.h"
#include "kernels/reduction/types.h"

namespace poptorch::kernels {
namespace {

constexpr int64_t gates = 3, kept = 4;

Prepared gru(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const Recurrence r(call, 0);
    const ForwardSteps<T> steps(r, gates);
    const int64_t h = r.hidden;
    const bool keeps = call.attrs().get_bool(ir::attr::keep);
    const size_t zeros_at = steps.scratch_bytes(), kept_at = zeros_at + array_bytes<T>(gates * h);
    const auto run = [=](const Args& args) {
      T* zeros = reinterpret_cast<T*>(args.scratch + zeros_at);
      copy_or_zero<T>(gates * h, nullptr, zeros);
      const bool has_bias = args.in<T>(4) != nullptr;
      const T *b_ih = has_bias ? args.in<T>(4) : zeros, *b_hh = has_bias ? args.in<T>(5) : zeros;
      const T* h0 = args.in<T>(1);
      T* y = args.out<T>(0);
      T* rows = keeps ? args.out<T>(2) : reinterpret_cast<T*>(args.scratch + kept_at);
      const auto cell = [=, run = cells<T>().gru](const Place& at, const T* inputs, const T* sums) {
        run({at.units, h, inputs, sums, b_ih + at.unit, b_hh + at.unit,
             r.before(at.k, h0, y) + at.entry * h + at.unit,
             rows + (keeps ? at.row : at.entry) * kept * h + at.unit, y + at.row * h + at.unit});
      };
      steps.run({args.in<T>(0), h0, args.in<T>(2), args.in<T>(3), y}, args.scratch, args.threads,
                cell);
      copy_or_zero(r.state(), r.before(r.time, h0, y), args.out<T>(1));
    };
    return {run, kept_at + (keeps ? 0 : array_bytes<T>(r.batch * kept * h))};
  });
}
KERNEL("gru", gru)

struct BackwardOperands {
  enum { dy, dhn, x, h0, w_ih, w_hh, y, reserve };
};

Prepared gru_backward(const Call& call) {
  return with_float_type(call, call.in(BackwardOperands::x).dtype, [&]<typename T>(T) -> Prepared {
    using In = BackwardOperands;
    const Recurrence r(call, In::x);
    const bool has_bias = call.attrs().get_bool(ir::attr::has_bias);
    const bool wants_dx = call.attrs().get_bool(ir::attr::wants_dx);
    const int64_t h = r.hidden, input = r.input;
    const BackwardSteps<T> steps(r, gates, kept * h);
    const auto run = [=](const Args& args) {
      // At all times: gradients of the state's sums r, z, n, then of the input's sum n. Those of r
      // and z are the same for both. Each row may lie where that of reserve does.
      T* grad = args.out<T>(6);
      const T *dy = args.in<T>(In::dy), *reserve = args.in<T>(In::reserve);
      const T *h0 = args.in<T>(In::h0), *y = args.in<T>(In::y), *w_hh = args.in<T>(In::w_hh);
      T* dh = args.out<T>(1);  // what goes straight from state to state
      copy_or_zero(r.state(), args.in<T>(In::dhn), dh);
      const auto cell = [=, run = cells<T>().gru_backward](const Place& at, const T* after) {
        const int64_t entry = at.entry * h + at.unit, row = at.row * kept * h + at.unit;
        run({at.units, h, reserve + row, r.before(at.k, h0, y) + entry,
             row_of(dy, at.row * h + at.unit), after, dh + entry, grad + row});
      };
      steps.run(w_hh, grad, args.scratch, args.threads, cell);
      steps.state_gradient(grad, w_hh, 1, dh, args.threads);
      steps.weight_gradient(grad, h0, y, args.out<T>(3), args.threads);
      const T *x = args.in<T>(In::x), *w_ih = args.in<T>(In::w_ih);
      T *dx = wants_dx ? args.out<T>(0) : nullptr, *dw_ih = args.out<T>(2);
      const int64_t of_n = 2 * h * input;  // in the weights
      steps.input_gradients(grad, 2 * h, 0, {x, w_ih, dx, dw_ih}, args.threads);
      steps.input_gradients(grad + gates * h, h, 1, {x, w_ih + of_n, dx, dw_ih + of_n},
                            args.threads);
      if (!has_bias) return;
      T *db_ih = args.out<T>(4), *db_hh = args.out<T>(5);
      sum_rows(r.rows(), gates * h, kept * h, grad, db_hh, args.threads);
      std::copy_n(db_hh, 2 * h, db_ih);
      sum_rows(r.rows(), h, kept * h, grad + gates * h, db_ih + 2 * h, args.threads);
    };
    return {run, steps.scratch_bytes()};
  });
}
KERNEL("gru_backward", gru_backward)

}  // namespace
}  // namespace poptorch::kernels

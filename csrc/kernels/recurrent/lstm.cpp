// Long short-term memory.
#include "kernels/recurrent/cells.h"
#include "kernels/recurrent/recurrent.h"
#include "kernels/reduction/types.h"

namespace poptorch::kernels {
namespace {

constexpr int64_t gates = 4, kept = 5;

// What a run keeps of each row of [time, batch], or of the step before only.
template <typename T>
struct Kept {
  T* rows;
  bool all;

  T* at(const Recurrence& r, int64_t k, int64_t entry) const {
    return rows + ((all ? r.at(k) * r.batch : 0) + entry) * kept * r.hidden;
  }
  // The cell state before step k.
  const T* cell_before(const Recurrence& r, int64_t k, int64_t entry, const T* c0) const {
    return k == 0 ? c0 + entry * r.hidden : at(r, k - 1, entry) + gates * r.hidden;
  }
};

Prepared lstm(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const Recurrence r(call, 0);
    const ForwardSteps<T> steps(r, gates);
    const int64_t h = r.hidden;
    const bool keeps = call.attrs().get_bool(ir::attr::keep);
    const size_t bias_at = steps.scratch_bytes(), kept_at = bias_at + array_bytes<T>(gates * h);
    const auto run = [=](const Args& args) {
      T* bias = reinterpret_cast<T*>(args.scratch + bias_at);
      add_biases(gates * h, args.in<T>(5), args.in<T>(6), bias);
      T* y = args.out<T>(0);
      const T *h0 = args.in<T>(1), *c0 = args.in<T>(2);
      const Kept<T> rows{keeps ? args.out<T>(3) : reinterpret_cast<T*>(args.scratch + kept_at),
                         keeps};
      const auto cell = [=, run = cells<T>().lstm](const Place& at, const T* inputs,
                                                   const T* sums) {
        run({at.units, h, inputs, sums, bias + at.unit,
             rows.cell_before(r, at.k, at.entry, c0) + at.unit,
             rows.at(r, at.k, at.entry) + at.unit, y + at.row * h + at.unit});
      };
      steps.run({args.in<T>(0), h0, args.in<T>(3), args.in<T>(4), y}, args.scratch, args.threads,
                cell);
      copy_or_zero(r.state(), r.before(r.time, h0, y), args.out<T>(1));
      for (int64_t b = 0; b < r.batch; ++b) {
        copy_or_zero(h, rows.cell_before(r, r.time, b, c0), args.out<T>(2) + b * h);
      }
    };
    return {run, kept_at + (keeps ? 0 : array_bytes<T>(r.batch * kept * h))};
  });
}
KERNEL("lstm", lstm)

struct BackwardOperands {
  enum { dy, dhn, dcn, x, h0, c0, w_ih, w_hh, y, reserve };
};

Prepared lstm_backward(const Call& call) {
  return with_float_type(call, call.in(BackwardOperands::x).dtype, [&]<typename T>(T) -> Prepared {
    using In = BackwardOperands;
    const Recurrence r(call, In::x);
    const bool has_bias = call.attrs().get_bool(ir::attr::has_bias);
    const bool wants_dx = call.attrs().get_bool(ir::attr::wants_dx);
    const int64_t h = r.hidden, width = gates * h;
    const BackwardSteps<T> steps(r, gates, width);
    const size_t grad_at = steps.scratch_bytes();
    const auto run = [=](const Args& args) {
      T* grad = reinterpret_cast<T*>(args.scratch + grad_at);
      const T *dy = args.in<T>(In::dy), *dhn = args.in<T>(In::dhn), *c0 = args.in<T>(In::c0);
      const T *h0 = args.in<T>(In::h0), *w_hh = args.in<T>(In::w_hh);
      const Kept<const T> rows{args.in<T>(In::reserve), true};
      T* dc = args.out<T>(2);  // of the cell state, going back in time
      copy_or_zero(r.state(), args.in<T>(In::dcn), dc);
      const auto cell = [=, run = cells<T>().lstm_backward](const Place& at, const T* after) {
        const int64_t entry = at.entry * h + at.unit;
        run({at.units, h, rows.at(r, at.k, at.entry) + at.unit,
             rows.cell_before(r, at.k, at.entry, c0) + at.unit, row_of(dy, at.row * h + at.unit),
             at.k + 1 == r.time ? row_of(dhn, entry) : after, dc + entry,
             grad + at.row * width + at.unit});
      };
      steps.run(w_hh, grad, args.scratch, args.threads, cell);
      steps.state_gradient(grad, w_hh, 0, args.out<T>(1), args.threads);
      steps.input_gradients(grad, width, 0,
                            {args.in<T>(In::x), args.in<T>(In::w_ih),
                             wants_dx ? args.out<T>(0) : nullptr, args.out<T>(3)},
                            args.threads);
      steps.weight_gradient(grad, h0, args.in<T>(In::y), args.out<T>(4), args.threads);
      if (has_bias) sum_rows(r.rows(), width, width, grad, args.out<T>(5), args.threads);
    };
    return {run, grad_at + array_bytes<T>(r.rows() * width)};
  });
}
KERNEL("lstm_backward", lstm_backward)

}  // namespace
}  // namespace poptorch::kernels

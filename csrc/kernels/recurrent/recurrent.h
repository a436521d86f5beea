// What recurrent layers share: one direction over [time, batch, ...]. A layer's file gives the
// cells, what goes around them is here: the products with the state in the order of time, the other
// products as large GEMMs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "kernels/recurrent/product.h"
#include "ops/kernel.h"
#include "support/memory/align.h"

namespace poptorch::kernels {

struct Recurrence {
  int64_t time, batch, input, hidden;
  bool reverse;

  // `first`: the position of x among the operands; h0 follows it.
  Recurrence(const ops::Call& call, size_t first);

  // The time of the k-th step.
  int64_t at(int64_t k) const { return reverse ? time - 1 - k : k; }
  int64_t rows() const { return time * batch; }
  int64_t state() const { return batch * hidden; }
  // The state before step k: y of the step before, or h0.
  template <typename T>
  const T* before(int64_t k, const T* h0, const T* y) const {
    return k == 0 ? h0 : y + at(k - 1) * state();
  }
};

// Where a cell works: some hidden units of one row of the batch at one step.
struct Place {
  int64_t k;            // the step
  int64_t entry;        // of the batch
  int64_t row;          // of [time * batch, ...]
  int64_t unit, units;  // hidden units [unit, unit + units)
};

// b_ih + b_hh, or zeros when there is no bias.
template <typename T>
void add_biases(int64_t n, const T* b_ih, const T* b_hh, T* out);

// out[n] = sums over the rows of x, which are `stride` numbers apart.
template <typename T>
void sum_rows(int64_t rows, int64_t n, int64_t stride, const T* x, T* out, int threads);

// The steps of a forward pass: products with the input and with the state, then the cells, block by
// block. Inputs are multiplied for some steps at once and stay in the cache.
template <typename T>
class ForwardSteps {
 public:
  ForwardSteps(const Recurrence& r, int64_t gates);

  size_t scratch_bytes() const { return state_.scratch_bytes() + input_.scratch_bytes(); }

  struct Operands {
    const T *x, *h0, *w_ih, *w_hh, *y;
  };
  // cell(place, inputs, sums): both products of the place's units, gates side by side.
  void run(const Operands& in, std::byte* scratch, int threads, const auto& cell) const {
    std::byte* for_input = scratch + state_.scratch_bytes();
    state_.pack(in.w_hh, scratch, threads);
    input_.pack(in.w_ih, for_input, threads);
    state_.for_steps(threads, r_.time, [&](int64_t k, Range blocks, Range entries) {
      for (int64_t index = blocks.begin; index < blocks.end; ++index) {
        const auto inputs = input_.block(index, in.w_ih, for_input);
        multiply_inputs(k, inputs, entries, in.x);
        const auto sums = state_.block(index, in.w_hh, scratch);
        state_.multiply(sums, r_.before(k, in.h0, in.y), r_.hidden, entries);
        for (int64_t b = entries.begin; b < entries.end; ++b) {
          const int64_t row = r_.at(k) * r_.batch + b;
          cell(Place{k, b, row, sums.unit, sums.units},
               inputs.product + (row - first_row(k)) * inputs.width,
               sums.product + b * sums.width);
        }
      }
    });
  }

 private:
  // The first row of the inputs that are multiplied together with those of step k.
  int64_t first_row(int64_t k) const {
    const int64_t first = k / steps_ * steps_;
    return std::min(r_.at(first), r_.at(first + steps_ - 1)) * r_.batch;
  }
  // Those of some entries at step k; of the whole batch those of the steps that follow, too.
  void multiply_inputs(int64_t k, const typename RecurrentProduct<T>::Block& block, Range entries,
                       const T* x) const {
    const int64_t first = first_row(k), at = r_.at(k) * r_.batch - first;
    const bool is_whole = entries.count() == r_.batch;
    if (is_whole && k % steps_ != 0) return;
    input_.multiply(block, x + first * r_.input, r_.input,
                    is_whole ? Range{0, steps_ * r_.batch}
                             : Range{at + entries.begin, at + entries.end});
  }

  Recurrence r_;
  int64_t steps_;  // whose inputs are multiplied together; divides `time`
  RecurrentProduct<T> state_, input_;
};

// The steps of a backward pass, the last one first. Gradients of the sums, `grad`, have a row for
// each time and entry of the batch, `stride` numbers apart.
template <typename T>
class BackwardSteps {
 public:
  BackwardSteps(const Recurrence& r, int64_t gates, int64_t stride)
      : r_(r),
        width_(gates * r.hidden),
        stride_(stride),
        product_(Side::back, r.batch, width_, r.hidden, gates, r.batch) {}

  size_t scratch_bytes() const { return product_.scratch_bytes(); }

  // cell(place, after): `after` is what the step after gives for the gradient of the state, nullptr
  // at the last one. The cell writes to `grad`, the gradients of the sums of all times.
  void run(const T* w_hh, const T* grad, std::byte* scratch, int threads, const auto& cell) const {
    product_.pack(w_hh, scratch, threads);
    product_.for_steps(threads, r_.time, [&](int64_t step, Range blocks, Range entries) {
      const int64_t k = r_.time - 1 - step;
      for (int64_t index = blocks.begin; index < blocks.end; ++index) {
        const auto block = product_.block(index, w_hh, scratch);
        if (step > 0) product_.multiply(block, at_step(grad, k + 1), stride_, entries);
        for (int64_t b = entries.begin; b < entries.end; ++b) {
          cell(Place{k, b, r_.at(k) * r_.batch + b, block.unit, block.units},
               step > 0 ? block.product + b * block.width : nullptr);
        }
      }
    });
  }

  // dh0 (+= where beta is 1), from the gradients of the first step.
  void state_gradient(const T* grad, const T* w_hh, double beta, T* dh0, int threads) const {
    gemm<T>({r_.batch, r_.hidden, width_, false, false, stride_, r_.hidden, r_.hidden, 1, beta},
            at_step(grad, 0), w_hh, dh0, threads);
  }
  // What `columns` columns of the gradients give for dx (unless nullptr; added where beta is 1) and
  // for dw_ih. The weights are those of the first of these columns.
  struct Inputs {
    const T *x, *w_ih;
    T *dx, *dw_ih;
  };
  void input_gradients(const T* grad, int64_t columns, double beta, const Inputs& inputs,
                       int threads) const;
  // dw_hh: each step multiplies the state that y holds one step before, the first one h0.
  void weight_gradient(const T* grad, const T* h0, const T* y, T* dw_hh, int threads) const;

 private:
  const T* at_step(const T* grad, int64_t k) const {
    return grad + r_.at(k) * r_.batch * stride_;
  }

  Recurrence r_;
  int64_t width_, stride_;  // of a row of `grad`
  RecurrentProduct<T> product_;
};

// p + offset, or nullptr for an absent tensor.
template <typename T>
const T* row_of(const T* p, int64_t offset) {
  return p == nullptr ? nullptr : p + offset;
}

// Copies, or zeros when there is nothing to copy.
template <typename T>
void copy_or_zero(int64_t n, const T* from, T* to);

// Bytes of n numbers, rounded up so that the next array begins on a cache line.
template <typename T>
size_t array_bytes(int64_t n) {
  return align_up(static_cast<size_t>(n) * sizeof(T));
}

}  // namespace poptorch::kernels

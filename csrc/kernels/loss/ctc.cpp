// ctc_loss and its gradient: the recursion over the steps of each sequence, in logarithms. States
// are the labels with a blank around each of them.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reduction/types.h"
#include "kernels/slots.h"
#include "ops/kernel.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

constexpr double nothing = -std::numeric_limits<double>::infinity();
constexpr double impossible = std::numeric_limits<double>::infinity();

double log_sum(double a, double b) {
  if (a == nothing) return b;
  if (b == nothing) return a;
  const bool is_less = a < b;  // NaN becomes `low` or stands in `high` already
  const double low = is_less ? a : b, high = is_less ? b : a;
  return high + std::log1p(std::exp(low - high));
}

struct CtcSizes {
  int64_t time, batch, classes, labels, blank;
  bool zero_infinity;

  // `first`: the position of log_probs among the operands.
  CtcSizes(const Call& call, size_t first)
      : time(call.in(first).sizes[0]),
        batch(call.in(first).sizes[1]),
        classes(call.in(first).sizes[2]),
        labels(call.in(first + 1).sizes[1]),
        blank(call.attrs().get_int(ir::attr::blank)),
        zero_infinity(call.attrs().get_bool(ir::attr::zero_infinity)) {}

  int64_t states() const { return 2 * labels + 1; }
};

// One sequence of the batch; the step t of its log-probabilities begins at probs + t * stride.
template <typename T, typename Index>
struct Sequence {
  const T* probs;
  const Index* targets;
  int64_t stride, steps, count, blank;

  // `first` as above; the lengths follow the targets.
  Sequence(const CtcSizes& s, const Args& args, size_t first, int64_t entry)
      : probs(args.in<T>(first) + entry * s.classes),
        targets(args.in<Index>(first + 1) + entry * s.labels),
        stride(s.batch * s.classes),
        steps(args.in<Index>(first + 2)[entry]),
        count(args.in<Index>(first + 3)[entry]),
        blank(s.blank) {
    USER_CHECK(steps >= 0 && steps <= s.time, "[ctc_loss] the input length ", steps,
               " of sequence ", entry, " is out of range: there are ", s.time,
               " steps. Give lengths of 0 to ", s.time, ".");
    USER_CHECK(count >= 0 && count <= s.labels, "[ctc_loss] the target length ", count,
               " of sequence ", entry, " is out of range: targets have room for ", s.labels,
               ". Give lengths of 0 to ", s.labels, ".");
    for (int64_t i = 0; i < count; ++i) {
      USER_CHECK(targets[i] >= 0 && targets[i] < s.classes, "[ctc_loss] the label ", targets[i],
                 " of sequence ", entry, " is out of range: there are ", s.classes,
                 " classes. Give labels of 0 to ", s.classes - 1, ".");
    }
  }

  int64_t states() const { return 2 * count + 1; }
  int64_t label(int64_t state) const { return state % 2 == 0 ? blank : targets[state / 2]; }
  double prob(int64_t t, int64_t state) const { return probs[t * stride + label(state)]; }
  // Whether a path may go from state - 2 to state.
  bool skips(int64_t state) const { return state > 1 && label(state - 2) != label(state); }
};

// The negative logarithm of the probability, from that of the states after the last step.
template <typename T, typename Index>
double loss_of(const Sequence<T, Index>& q, const T* alpha, int64_t width) {
  if (q.steps == 0) return q.count == 0 ? 0.0 : impossible;
  const T* last = alpha + (q.steps - 1) * width;
  return -(q.count == 0 ? last[0] : log_sum(last[2 * q.count], last[2 * q.count - 1]));
}

// alpha[t, state]: the logarithm of the probability of all paths that are in `state` after step t.
template <typename T, typename Index>
void go_forward(const Sequence<T, Index>& q, int64_t time, int64_t width, T* alpha) {
  std::fill(alpha, alpha + time * width, static_cast<T>(nothing));
  for (int64_t t = 0; t < q.steps; ++t) {
    const T* before = alpha + (t - 1) * width;
    T* now = alpha + t * width;
    // What cannot be reached stays so, whatever it would add: infinity to its opposite is NaN.
    const int64_t end = t == 0 ? std::min<int64_t>(2, q.states()) : q.states();
    for (int64_t state = 0; state < end; ++state) {
      double sum = 0.0;
      if (t > 0) {
        sum = before[state];
        if (state > 0) sum = log_sum(sum, before[state - 1]);
        if (q.skips(state)) sum = log_sum(sum, before[state - 2]);
      }
      now[state] = static_cast<T>(sum + q.prob(t, state));
    }
  }
}

Prepared ctc_loss(const Call& call) {
  const auto prepare = [&]<typename T, typename Index>(T, Index) -> Prepared {
    const CtcSizes s(call, 0);
    const auto run = [s](const Args& args) {
      parallel_for(args.threads, s.batch, 1, [&](int64_t entry) {
        const Sequence<T, Index> q(s, args, 0, entry);
        T* alpha = args.out<T>(1) + entry * s.time * s.states();
        go_forward(q, s.time, s.states(), alpha);
        const double loss = loss_of(q, alpha, s.states());
        args.out<T>(0)[entry] =
            static_cast<T>(s.zero_infinity && loss == impossible ? 0.0 : loss);
      });
    };
    return {run, 0};
  };
  return with_float_and_index_type(call, call.in(0).dtype, call.in(1).dtype, prepare);
}
KERNEL("ctc_loss", ctc_loss)

// The gradient of one sequence's loss, with room for the states (twice) and the classes.
template <typename T, typename Index>
class Backward {
 public:
  Backward(const CtcSizes& s, double* room)
      : s_(s), after_(room), now_(after_ + s.states()), sums_(now_ + s.states()) {}

  static size_t room(const CtcSizes& s) { return static_cast<size_t>(2 * s.states() + s.classes); }

  void run(const Sequence<T, Index>& q, const T* alpha, double grad, T* out) {
    const double loss = loss_of(q, alpha, s_.states());
    const bool is_zero = s_.zero_infinity && loss == impossible;
    for (int64_t t = s_.time - 1; t >= 0; --t) {
      T* row = out + t * q.stride;
      if (is_zero || t >= q.steps) {
        std::fill(row, row + s_.classes, T{0});
        continue;
      }
      step(q, t, alpha + t * s_.states());
      for (int64_t c = 0; c < s_.classes; ++c) {
        const double prob = q.probs[t * q.stride + c];
        row[c] = static_cast<T>((std::exp(prob) - std::exp(sums_[c] + loss - prob)) * grad);
      }
      std::swap(after_, now_);
    }
  }

 private:
  // now[state]: the logarithm of the probability of all ends of paths from `state` at step t on;
  // sums[c]: that of all paths through class c, times the probability of c.
  void step(const Sequence<T, Index>& q, int64_t t, const T* alpha) {
    std::fill(sums_, sums_ + s_.classes, nothing);
    const int64_t states = q.states();
    for (int64_t state = states - 1; state >= 0; --state) {
      const bool is_last = t == q.steps - 1;
      if (is_last && state < states - 2) {
        now_[state] = nothing;
        continue;
      }
      double sum = 0.0;
      if (!is_last) {
        sum = after_[state];
        if (state + 1 < states) sum = log_sum(sum, after_[state + 1]);
        if (state + 2 < states && q.skips(state + 2)) sum = log_sum(sum, after_[state + 2]);
      }
      now_[state] = sum + q.prob(t, state);
      double& total = sums_[q.label(state)];
      total = log_sum(total, alpha[state] + now_[state]);
    }
  }

  CtcSizes s_;
  double *after_, *now_, *sums_;
};

Prepared ctc_loss_backward(const Call& call) {
  const auto prepare = [&]<typename T, typename Index>(T, Index) -> Prepared {
    const CtcSizes s(call, 1);
    const size_t bytes = Backward<T, Index>::room(s) * sizeof(double);
    const Slots slots(call.threads, s.batch, Slots::grain, static_cast<int64_t>(bytes));
    return slots.prepared([s](const Args& args, const Slot& slot) {
      Backward<T, Index> backward(s, reinterpret_cast<double*>(slot.scratch));
      for (int64_t entry = slot.begin; entry < slot.end; ++entry) {
        backward.run(Sequence<T, Index>(s, args, 1, entry),
                     args.in<T>(5) + entry * s.time * s.states(), args.in<T>(0)[entry],
                     args.out<T>(0) + entry * s.classes);
      }
    });
  };
  return with_float_and_index_type(call, call.in(1).dtype, call.in(2).dtype, prepare);
}
KERNEL("ctc_loss_backward", ctc_loss_backward)

}  // namespace

}  // namespace poptorch::kernels

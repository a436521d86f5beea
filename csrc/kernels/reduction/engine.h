// The walk of a ReducePlan, for any operation:
//
//   struct Operation {
//     using In = float;      // entries of the operand
//     using Total = double;  // the type of totals
//     Total total() const;   // the neutral element
//     Total run(const In* x, int64_t n, int64_t stride, int64_t out) const;  // n >= 1 entries of
//     `out` void rows(Total* acc, const ReduceRows<In>& rows) const;  // takes rows into one total
//     a column static Total join(Total, Total);
//   };
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/reduction/plan.h"
#include "support/parallel.h"

namespace poptorch::kernels {

// Entries (row, column) at x[row * row_stride + column * stride]; column i belongs to output out +
// i * out_stride.
template <typename In>
struct ReduceRows {
  const In* x;
  int64_t row_stride, rows;
  int64_t stride, columns;
  int64_t out, out_stride;
};

template <typename Operation>
class Reduction {
 public:
  using In = typename Operation::In;
  using Total = typename Operation::Total;

  Reduction(const ReducePlan& plan, Operation operation) : plan_(plan), operation_(operation) {}

  // For the totals of groups, when there are several.
  size_t scratch_bytes() const {
    return plan_.groups > 1 ? static_cast<size_t>(plan_.outputs * plan_.groups) * sizeof(Total) : 0;
  }

  // Calls finish(output, total) once for each output, from several threads.
  void run(const In* x, std::byte* scratch, int threads, const auto& finish) const {
    // One walk for both, by a question inside: it is most of the code of each reduction.
    Total* const totals = plan_.groups == 1 ? nullptr : reinterpret_cast<Total*>(scratch);
    const auto take = [&](int64_t group, int64_t output, Total total) {
      if (totals == nullptr) return finish(output, total);
      totals[group * plan_.outputs + output] = total;
    };
    parallel_for(threads, plan_.units(), plan_.grain(), [&](int64_t unit) {
      plan_.inner_is_reduced ? run_inner_reduced(x, unit, take)
                             : run_inner_kept(x, unit, totals, finish);
    });
    if (totals == nullptr) return;
    for (int64_t output = 0; output < plan_.outputs; ++output) {
      Total total = totals[output];
      for (int64_t group = 1; group < plan_.groups; ++group) {
        total = Operation::join(total, totals[group * plan_.outputs + output]);
      }
      finish(output, total);
    }
  }

 private:
  void run_inner_reduced(const In* x, int64_t unit, const auto& take) const {
    // Divisions cost more than a short run takes.
    const int64_t group = plan_.groups == 1 ? 0 : unit % plan_.groups;
    const auto kept =
        ReducePlan::offsets(plan_.kept, plan_.groups == 1 ? unit : unit / plan_.groups);
    if (plan_.outer_reduced * plan_.pieces == 1 && plan_.inner.size > 0) {
      const In* run = x + kept.x;
      return take(group, kept.out,
                  Total(operation_.run(run, plan_.inner.size, plan_.inner.x, kept.out)));
    }
    const int64_t runs = plan_.inner.size == 0 ? 0 : plan_.outer_reduced * plan_.pieces;
    Total total = operation_.total();
    for (int64_t i = runs * group / plan_.groups; i < runs * (group + 1) / plan_.groups; ++i) {
      const int64_t start = i % plan_.pieces * ReducePlan::piece;
      const int64_t at = ReducePlan::offsets(plan_.reduced, i / plan_.pieces).x + kept.x;
      const int64_t n = std::min(ReducePlan::piece, plan_.inner.size - start);
      const In* run = x + at + start * plan_.inner.x;
      total = Operation::join(total, operation_.run(run, n, plan_.inner.x, kept.out));
    }
    take(group, kept.out, total);
  }

  // `all_totals`: of all groups, or null when there is one, whose totals are finished at once.
  void run_inner_kept(const In* x, int64_t unit, Total* all_totals, const auto& finish) const {
    const int64_t group = unit % plan_.groups;
    const int64_t start = unit / plan_.groups % plan_.blocks * ReducePlan::block;
    const auto kept = ReducePlan::offsets(plan_.kept, unit / plan_.groups / plan_.blocks);
    ReduceRows<In> rows{x + kept.x + start * plan_.inner.x,
                        0,
                        0,
                        plan_.inner.x,
                        std::min(ReducePlan::block, plan_.inner.size - start),
                        kept.out + start * plan_.inner.out,
                        plan_.inner.out};
    Total totals[ReducePlan::block];
    std::fill_n(totals, rows.columns, operation_.total());
    reduce_rows(rows, plan_.outer_reduced * group / plan_.groups,
                plan_.outer_reduced * (group + 1) / plan_.groups, totals);
    if (all_totals == nullptr) {
      for (int64_t i = 0; i < rows.columns; ++i) finish(rows.out + i * rows.out_stride, totals[i]);
      return;
    }
    Total* const of_group = all_totals + group * plan_.outputs + rows.out;
    for (int64_t i = 0; i < rows.columns; ++i) of_group[i * rows.out_stride] = totals[i];
  }

  // Rows `begin` to `end` of the outer reduced dimensions: stretches of evenly spaced rows.
  void reduce_rows(ReduceRows<In> rows, int64_t begin, int64_t end, Total* totals) const {
    const In* x = rows.x;
    const int64_t even = plan_.reduced.empty() ? 1 : plan_.reduced.back().size;
    rows.row_stride = plan_.reduced.empty() ? 0 : plan_.reduced.back().x;
    for (int64_t row = begin; row < end; row += rows.rows) {
      rows.rows = std::min(end - row, even - row % even);
      rows.x = x + ReducePlan::offsets(plan_.reduced, row).x;
      operation_.rows(totals, rows);
    }
  }

  ReducePlan plan_;
  Operation operation_;
};

}  // namespace poptorch::kernels

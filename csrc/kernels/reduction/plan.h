// How a reduction walks through its operand: which dimensions are kept and reduced, which of them
// is the innermost one, and how the work is cut into units. All of it follows from sizes and
// strides, never from the number of threads, so results do not depend on that.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/type.h"

namespace poptorch::kernels {

struct ReduceDim {
  int64_t size = 1;
  int64_t x = 0;    // stride in the operand, in elements
  int64_t out = 0;  // stride in the row-major result; 0 when reduced
};

struct ReducePlan {
  ReducePlan(const ir::Type& x, const std::vector<bool>& is_reduced);

  std::vector<ReduceDim> kept, reduced;  // outermost first, without the inner one
  ReduceDim inner;                       // the dimension with the smallest stride
  bool inner_is_reduced = true;

  int64_t outputs = 1;                        // entries of the result
  int64_t count = 1;                          // entries reduced to each
  int64_t outer_kept = 1, outer_reduced = 1;  // products of `kept` and of `reduced`

  // Unit of work: one entry of outer_kept, one block of the inner dimension when that is kept, and
  // one group: a part of the reduced entries. Results of groups are joined in their order.
  static constexpr int64_t block = 1024;  // kept entries side by side
  static constexpr int64_t piece = 8192;  // reduced entries in a run
  int64_t blocks = 1, pieces = 1;         // cuts of the inner dimension
  int64_t groups = 1;
  int64_t units() const { return outputs == 0 ? 0 : outer_kept * blocks * groups; }
  int64_t grain() const;  // units worth a thread

  // Offsets of entry `i` of the outer kept or reduced dimensions.
  struct Offsets {
    int64_t x, out;
  };
  static Offsets offsets(const std::vector<ReduceDim>& dims, int64_t i);

 private:
  void merge(std::vector<ReduceDim> dims);
  void cut();
};

}  // namespace poptorch::kernels

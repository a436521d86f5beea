#include "kernels/gemm/bf16_loops.h"

#include "kernels/gemm/blocked.h"
#include "support/bf16_unit.h"

namespace poptorch::kernels {

bool has_bf16_loops() { return computes_bf16(); }

bool bf16_loops_pay() { return gemm_by() == "loops" && has_bf16_loops(); }

}  // namespace poptorch::kernels

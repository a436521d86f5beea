#include "kernels/gemm/bf16/bf16_loops.h"

#include "kernels/gemm/blocked.h"
#include "support/cpu/bf16_unit.h"

namespace poptorch::kernels {

bool bf16_loops_pay() { return gemm_by() == "loops" && computes_bf16(); }

}  // namespace poptorch::kernels

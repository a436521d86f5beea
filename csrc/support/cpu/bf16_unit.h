// The CPU's own instructions for products of bfloat16 numbers.
#pragma once

namespace poptorch {

// Whether this CPU has them, the settings allow its best instruction set, and the switch
// `bf16_unit` is on. Without them products of bfloat16 numbers are computed in f32.
bool computes_bf16();

}  // namespace poptorch

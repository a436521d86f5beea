// The functions of binary.def as inner loops, and their table. Included by each_isa.h.
#include "kernels/simd/inner_loops.inl"
#include "kernels/simd/vec/functions.inl"

#define OPERATION(name, result, value)                                             \
  struct name##_op {                                                               \
    static result of(vf x, vf y, [[maybe_unused]] const double* params) { return value; } \
  };
#define BINARY(name, picoseconds, value) OPERATION(name, vf, value)
#define COMPARE(name, picoseconds, value) OPERATION(name, vi, value)
#define p(i) k(params[i])
#include "kernels/simd/binary.def"
#undef p
#undef BINARY
#undef COMPARE
#undef OPERATION

#define BINARY(name, picoseconds, value) \
  NAMED_LOOP(binary_functions, name, rounding_binary_loop<name##_op, picoseconds>, picoseconds, \
             true)
#define COMPARE(name, picoseconds, value) \
  NAMED_LOOP(binary_functions, name, binary_loop<name##_op, uint8_t>, picoseconds)
NAMED_LOOPS(binary_functions)
#include "kernels/simd/binary.def"
END_NAMED_LOOPS
#undef BINARY
#undef COMPARE

// The functions of unary.def as inner loops, and their table. Included by each_isa.h.
#include "kernels/simd/inner_loops.inl"
#include "kernels/simd/vec/functions.inl"

#define OPERATION(name, result, value)                                             \
  struct name##_op {                                                               \
    static result of(vf x, [[maybe_unused]] const double* params) { return value; } \
  };
#define UNARY(name, picoseconds, value) OPERATION(name, vf, value)
#define PREDICATE(name, picoseconds, value) OPERATION(name, vi, value)
#define p(i) k(params[i])
#include "kernels/simd/unary.def"
#undef p
#undef UNARY
#undef PREDICATE
#undef OPERATION

#define UNARY(name, picoseconds, value) \
  NAMED_LOOP(unary_functions, name, rounding_unary_loop<name##_op, picoseconds>, picoseconds, true)
#define PREDICATE(name, picoseconds, value) \
  NAMED_LOOP(unary_functions, name, unary_loop<name##_op, uint8_t>, picoseconds)
NAMED_LOOPS(unary_functions)
#include "kernels/simd/unary.def"
END_NAMED_LOOPS
#undef UNARY
#undef PREDICATE

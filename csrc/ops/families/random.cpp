// Random ops. Each names its call site (`salt`) and reads the random state `%rng` (seed, replica,
// counter): the numbers depend on these and on an element's index alone.
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

void check_rng(const InferInput& in, size_t operand) {
  const Type& rng = in.operand(operand);
  USER_CHECK(rng.dtype == ir::DType::i32 && rng.sizes == ir::Dims{4}, "[", in.op.name,
             "] rng must be the random state, i32[4], got ", rng.text(),
             ". Pass the value of the state \"rng\".");
}

void check_float(const InferInput& in, ir::DType dtype) {
  USER_CHECK(ir::is_float(dtype), "[", in.op.name, "] needs a floating-point type, got ",
             ir::name_of(dtype), ". Cast it.");
}

std::vector<Type> infer_rng(const InferInput& in) {
  check_rng(in, 0);
  return {in.operand(0)};
}

std::vector<Type> infer_fold(const InferInput& in) {
  const Type& number = in.operand(1);
  USER_CHECK(number.dtype == ir::DType::i32 && number.numel() == 1, "[rng_fold] number is ",
             number.text(), ", one i32 is needed.");
  return infer_rng(in);
}

std::vector<Type> infer_dropout(const InferInput& in) {
  check_rng(in, 1);
  check_float(in, in.operand(0).dtype);
  const double p = in.attrs().get_float(ir::attr::p);
  USER_CHECK(p >= 0.0 && p <= 1.0, "[dropout] p must be between 0 and 1, got ", p, ".");
  return {{in.operand(0).dtype, in.operand(0).sizes, {}}};
}

std::vector<Type> infer_stochastic_cast(const InferInput& in) {
  check_rng(in, 1);
  const ir::DType to = in.attrs().get_dtype(ir::attr::dtype);
  USER_CHECK(in.operand(0).dtype == ir::DType::f32 && ir::is_half(to), "[stochastic_cast] rounds ",
             "f32 to f16 or bf16, got ", ir::name_of(in.operand(0).dtype), " and ",
             ir::name_of(to), ". Use cast.");
  return {{to, in.operand(0).sizes, {}}};
}

std::vector<Type> infer_bernoulli(const InferInput& in) {
  check_rng(in, 1);
  check_float(in, in.operand(0).dtype);
  return {{in.operand(0).dtype, in.operand(0).sizes, {}}};
}

std::vector<Type> infer_sized(const InferInput& in) {
  check_rng(in, 0);
  return {{in.attrs().get_dtype(ir::attr::dtype), in.attrs().get_ints(ir::attr::size), {}}};
}

std::vector<Type> infer_sized_float(const InferInput& in) {
  check_float(in, in.attrs().get_dtype(ir::attr::dtype));
  return infer_sized(in);
}

std::vector<Type> infer_random_int(const InferInput& in) {
  const int64_t low = in.attrs().get_int(ir::attr::low), high = in.attrs().get_int(ir::attr::high);
  USER_CHECK(low < high, "[random_int] low must be less than high, got ", low, " and ", high, ".");
  return infer_sized(in);
}

std::vector<Type> infer_permutation(const InferInput& in) {
  check_rng(in, 0);
  const int64_t n = in.attrs().get_int(ir::attr::n);
  USER_CHECK(n >= 0, "[random_permutation] n must not be negative, got ", n, ".");
  return {{in.attrs().get_dtype(ir::attr::dtype), {n}, {}}};
}

OpDef sized(std::string name, std::string doc, std::vector<AttrDef> more, Infer infer) {
  std::vector<AttrDef> attrs = {
      {"size", ir::AttrList{}, true}, {"dtype", ir::DType::f32, true}, {"salt", 0, true}};
  attrs.insert(attrs.end(), more.begin(), more.end());
  return {.name = std::move(name),
          .doc = std::move(doc),
          .operands = {"rng"},
          .attrs = std::move(attrs),
          .infer = infer,
          .flops = flops_of_result<>,
          .random = true};
}

}  // namespace

std::vector<OpDef> random_ops() {
  return {
      {.name = "rng_advance",
       .doc = "The random state with the next counter.",
       .operands = {"rng"},
       .infer = infer_rng,
       .flops = none,
       .inplace = {{0}}},
      {.name = "rng_fold",
       .doc = "A random state for each number: that of the round `number` of a loop.",
       .operands = {"rng", "number"},
       .infer = infer_fold,
       .flops = none},
      {.name = "dropout",
       .aten = {"poptorch::dropout"},
       .doc = "Sets each element to 0 with probability `p` and divides the others by 1 - p. With "
              "the same `rng` and `salt` it makes the same choice: its own gradient.",
       .operands = {"x", "rng"},
       .attrs = {{"p", 0.5, true}, {"salt", 0, true}},
       .infer = infer_dropout,
       .inplace = {{0}},
       .random = true,
       .elementwise = true},
      {.name = "bernoulli",
       .doc = "1 with probability `p` of the same element, else 0.",
       .operands = {"p", "rng"},
       .attrs = {{"salt", 0, true}},
       .infer = infer_bernoulli,
       .flops = flops_of_result<>,
       .inplace = {{0}},
       .random = true},
      {.name = "stochastic_cast",
       .doc = "x rounded to f16 or bf16 by chance: to the next number above or below, so that the "
              "mean is x. Beyond the largest number the nearest is taken, as by `cast`.",
       .operands = {"x", "rng"},
       .attrs = {{"dtype", ir::DType::f16, true}, {"salt", 0, true}},
       .infer = infer_stochastic_cast,
       .flops = none,
       .random = true,
       .elementwise = true},
      sized("random_uniform", "Uniform in [low, high).", {{"low", 0.0}, {"high", 1.0}},
            infer_sized_float),
      sized("random_normal", "Normal variates.", {{"mean", 0.0}, {"std", 1.0}},
            infer_sized_float),
      sized("random_exponential", "Exponential variates of rate `lambd`.", {{"lambd", 1.0}},
            infer_sized_float),
      sized("random_int", "Integers, uniform in [low, high), in any type.",
            {{"low", 0}, {"high", 1, true}}, infer_random_int),
      {.name = "random_permutation",
       .doc = "The numbers 0 to n - 1 in random order.",
       .operands = {"rng"},
       .attrs = {{"n", 0, true}, {"dtype", ir::DType::i32, true}, {"salt", 0, true}},
       .infer = infer_permutation,
       .flops = none,
       .random = true},
  };
}

}  // namespace poptorch::ops

// Rows of matrix products.

#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

// The type of the product of operands `first` and `first + 1`: leading dimensions broadcast.
Type product_type(const InferInput& in, size_t first) {
  const Type& a = in.operand(first);
  const Type& b = in.operand(first + 1);
  USER_CHECK(a.rank() >= 2 && b.rank() >= 2, "[", in.op.name, "] the operands are ", a.text(),
             " and ", b.text(), ", both need at least 2 dimensions. Give matrices.");
  USER_CHECK(a.dtype == b.dtype, "[", in.op.name, "] dtypes differ: ", a.text(), " and ", b.text(),
             ". Cast one of them.");
  USER_CHECK(a.dtype != ir::DType::boolean, "[", in.op.name, "] the operands are ", a.text(),
             " and ", b.text(), ", a product of bool is not defined. Cast them.");
  const int64_t columns = a.sizes.back();
  const int64_t rows = b.sizes[b.rank() - 2];
  USER_CHECK(columns == rows, "[", in.op.name, "] inner dimensions differ: ", a.text(), " has ",
             columns, " columns, ", b.text(), " has ", rows, " rows. Make them equal.");
  Dims sizes = broadcast_sizes(in, {a.sizes.begin(), a.sizes.end() - 2},
                               {b.sizes.begin(), b.sizes.end() - 2});
  sizes.push_back(a.sizes[a.rank() - 2]);
  sizes.push_back(b.sizes.back());
  return {a.dtype, sizes};
}

Types infer_matmul(const InferInput& in) { return {product_type(in, 0)}; }

Types infer_addmm(const InferInput& in) {
  const Type out = product_type(in, 1);
  const Type& added = in.operand(0);
  USER_CHECK(added.dtype == out.dtype, "[", in.op.name, "] dtypes differ: ", added.text(),
             " is added to a product of ", in.operand(1).text(), ". Cast one of them.");
  USER_CHECK(broadcast_sizes(in, added.sizes, out.sizes) == out.sizes, "[", in.op.name, "] ",
             added.text(), " cannot be expanded to the product, which is ", out.text(),
             ". Give a tensor that broadcasts to these sizes.");
  return {out};
}

Types infer_float16_partials(const InferInput& in) {
  const Type out = product_type(in, 0);
  USER_CHECK(out.dtype == ir::DType::f16, "[float16_partials_matmul] the operands are ",
             in.operand(0).text(), " and ", in.operand(1).text(),
             ", f16 is needed. Use matmul for other types.");
  const Type rng{ir::DType::i32, {4}, {}};
  USER_CHECK(!in.has(2) || (in.operand(2).dtype == rng.dtype && in.operand(2).sizes == rng.sizes),
             "[float16_partials_matmul] rng must be the random state, i32[4], got ",
             in.operand(2).text(), ". Pass the value of the state \"rng\".");
  return {out};
}

// 2 m n k for each product of operands `first` and `first + 1`.
template <size_t first>
double product_flops(const WorkInput& in) {
  const auto k = static_cast<double>(in.operand(first).sizes.back());
  return if_float(in, 2 * numel(in.result()) * k);
}

const std::vector<AttrDef> factors = {{"beta", 1.0}, {"alpha", 1.0}};

}  // namespace

std::vector<OpDef> matmul_ops() {
  return {
      {.name = "matmul",
       .aten = {"aten::mm", "aten::bmm"},
       .doc = "Product of two matrices, or of batches of matrices whose leading dimensions "
              "broadcast.",
       .operands = {"self", "mat2"},
       .infer = infer_matmul,
       .flops = product_flops<0>,
       .strided = Strided::gemm},
      {.name = "addmm",
       .aten = {"aten::addmm"},
       .doc = "beta * self + alpha * (mat1 @ mat2); self broadcasts to the product.",
       .operands = {"self", "mat1", "mat2"},
       .attrs = factors,
       .infer = infer_addmm,
       .flops = product_flops<1>,
       .strided = Strided::gemm,
       .inplace = {{0}}},
      {.name = "baddbmm",
       .aten = {"aten::baddbmm"},
       .doc = "beta * self + alpha * (batch1 @ batch2); self broadcasts to the products.",
       .operands = {"self", "batch1", "batch2"},
       .attrs = factors,
       .infer = infer_addmm,
       .flops = product_flops<1>,
       .strided = Strided::gemm,
       .inplace = {{0}}},
      {.name = "float16_partials_matmul",
       .doc = "Product of f16 matrices, or of batches of them, with sums in f16: each 16 products "
              "are summed in f32 and added to the sum so far, which is rounded to f16; by chance "
              "with an `rng`.",
       .operands = {"self", "mat2", "rng?"},
       .attrs = {{"salt", 0}},
       .infer = infer_float16_partials,
       .flops = product_flops<0>,
       .strided = Strided::gemm,
       .random = true},
  };
}

}  // namespace poptorch::ops

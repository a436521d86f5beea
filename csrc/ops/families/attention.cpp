// Rows of scaled dot product attention.
#include "ops/checks.h"
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

// Operands q, k, v, mask from number `first` on, rng last.
void check(const InferInput& in, size_t first, size_t rng) {
  const Type& q = in.operand(first);
  expect_float(in, first);
  for (size_t i : {first, first + 1, first + 2}) {
    expect_dtype(in, i, q.dtype);
    USER_CHECK(in.operand(i).rank() == 4, "[", in.op.name, "] ", operand_name(in, i), " is ",
               in.operand(i).text(), ", 4 dimensions were expected: batch, heads, positions, "
               "features. Reshape it.");
  }
  const Type& k = in.operand(first + 1);
  const Type& v = in.operand(first + 2);
  expect_sizes(in, first + 1, {q.sizes[0], q.sizes[1], k.sizes[2], q.sizes[3]});
  expect_sizes(in, first + 2, {q.sizes[0], q.sizes[1], k.sizes[2], v.sizes[3]});
  if (in.has(first + 3)) {
    const Type& mask = in.operand(first + 3);
    const Dims scores = {q.sizes[0], q.sizes[1], q.sizes[2], k.sizes[2]};
    if (mask.dtype != ir::DType::boolean) expect_dtype(in, first + 3, q.dtype);
    USER_CHECK(broadcast_sizes(in, mask.sizes, scores) == scores, "[", in.op.name, "] mask is ",
               mask.text(), ", it cannot be expanded to the scores ", ir::Attr(scores).text(),
               ". Give a mask that broadcasts to these sizes.");
  }
  const double p = in.attrs().get_float(ir::attr::dropout_p);
  USER_CHECK(p >= 0 && p <= 1, "[", in.op.name, "] dropout_p is ", p, ". Use 0 to 1.");
  USER_CHECK(p == 0 || in.has(rng), "[", in.op.name, "] dropout_p is ", p,
             " and the operand rng is absent. Give it.");
  expect_sizes(in, rng, {4});
  expect_dtype(in, rng, ir::DType::i32);
}

// Logarithms of sums are never narrower than f32.
Type logsumexp_type(const Type& q) {
  const bool wide = q.dtype == ir::DType::f64;
  return {wide ? ir::DType::f64 : ir::DType::f32, {q.sizes[0], q.sizes[1], q.sizes[2]}};
}

Type out_type(const Type& q, const Type& v) {
  return {q.dtype, {q.sizes[0], q.sizes[1], q.sizes[2], v.sizes[3]}};
}

Types infer_attention(const InferInput& in) {
  check(in, 0, 4);
  return {out_type(in.operand(0), in.operand(2)), logsumexp_type(in.operand(0))};
}

Types infer_attention_backward(const InferInput& in) {
  check(in, 1, 6);
  const Type out = out_type(in.operand(1), in.operand(3));
  expect_sizes(in, 0, out.sizes);
  expect_dtype(in, 0, out.dtype);
  const Type sums = logsumexp_type(in.operand(1));
  expect_sizes(in, 5, sums.sizes);
  expect_dtype(in, 5, sums.dtype);
  Types types;
  for (size_t i : {1, 2, 3}) types.push_back({in.operand(i).dtype, in.operand(i).sizes});
  return types;
}

// `by_q` products of queries by keys over the features of q, and `by_v` over those of v; a causal
// mask leaves none out.
template <size_t q, int by_q, int by_v>
double product_flops(const WorkInput& in) {
  const Dims &sizes = in.operand(q).sizes, &values = in.operand(q + 2).sizes;
  const auto scores = static_cast<double>(sizes[0] * sizes[1] * sizes[2] * values[2]);
  return 2 * scores * static_cast<double>(by_q * sizes[3] + by_v * values[3]);
}

}  // namespace

std::vector<OpDef> attention_ops() {
  const std::vector<AttrDef> attrs = {
      {"dropout_p", 0.0}, {"is_causal", false}, {"scale", 1.0, true}, {"salt", 0}};
  return {
      {.name = "attention",
       .aten = {"poptorch::attention"},
       .doc = "softmax(scale * q @ k^T + mask) @ v for each head, and the logarithm of the sum of "
              "exponentials of each row. A bool mask says which positions take part; rows "
              "without any give 0. Dropout acts on the softmax; its element index is the flat "
              "one in [batch, heads, queries, keys].",
       .operands = {"q", "k", "v", "mask?", "rng?"},
       .results = {"out", "logsumexp"},
       .attrs = attrs,
       .infer = infer_attention,
       .flops = product_flops<0, 1, 1>,
       .strided = Strided::gemm,
       .random = true},
      {.name = "attention_backward",
       .aten = {"poptorch::attention_backward"},
       .doc = "Gradients of attention; the softmax is recomputed.",
       .operands = {"grad", "q", "k", "v", "mask?", "logsumexp", "rng?"},
       .results = {"grad_q", "grad_k", "grad_v"},
       .attrs = attrs,
       .infer = infer_attention_backward,
       .flops = product_flops<1, 3, 2>,
       .strided = Strided::gemm,
       .random = true},
  };
}

}  // namespace poptorch::ops

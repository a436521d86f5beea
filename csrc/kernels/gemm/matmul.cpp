// Kernels of matrix products: batches of GEMMs on operands in their own layout.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/gemm/float16.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/matrix_view.h"
#include "kernels/move/copy.h"
#include "kernels/reduction/types.h"
#include "ops/kernel.h"
#include "support/mutant.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ir::Dims;
using ir::Type;

// A dimension of the batch, or the rows: its steps in the operands and in the result.
struct RowDim {
  int64_t size, a, b, c;
};

// The leading dimensions of a product that have more than one entry, or none.
std::vector<RowDim> batch_dims(const Type& lhs, const Type& rhs, const Type& out) {
  const Dims leading(out.sizes.begin(), out.sizes.end() - 2);
  const Dims a = batch_strides(lhs, leading), b = batch_strides(rhs, leading);
  const Dims c = batch_strides(out, leading);
  std::vector<RowDim> dims;
  for (size_t d = 0; d < leading.size(); ++d) {
    if (leading[d] != 1) dims.push_back({leading[d], a[d], b[d], c[d]});
  }
  return dims;
}

// Dimensions, the outer ones first, with those that lie one behind the other as one.
std::vector<RowDim> merged(const std::vector<RowDim>& dims) {
  std::vector<RowDim> result;
  for (const RowDim& dim : dims) {
    RowDim* outer = result.empty() ? nullptr : &result.back();
    if (outer && outer->a == dim.size * dim.a && outer->c == dim.size * dim.c) {
      *outer = {outer->size * dim.size, dim.a, 0, dim.c};
    } else {
      result.push_back(dim);
    }
  }
  return result;
}

// All products of one op: result i lies at c[i], of operands at a[i] and b[i].
struct Batch {
  Gemm gemm;
  std::vector<int64_t> a, b, c;

  Batch(const Type& lhs, const Type& rhs, const Type& out) {
    const MatrixLayout layout_a = layout_of(lhs), layout_b = layout_of(rhs);
    gemm = {.m = out.sizes[out.rank() - 2],
            .n = out.sizes.back(),
            .k = lhs.sizes.back(),
            .trans_a = layout_a.transposed,
            .trans_b = layout_b.transposed,
            .lda = layout_a.leading,
            .ldb = layout_b.leading,
            .ldc = std::max<int64_t>(out.sizes.back(), 1)};
    std::vector<RowDim> dims = batch_dims(lhs, rhs, out);
    take_rows(dims);
    offsets_of(dims);
  }

  // Parts of the batch that are given to threads, and product(i, part, threads for it) for each.
  int64_t parts(int threads) const {
    const int64_t count = static_cast<int64_t>(a.size());
    if (count < threads) return 1;
    const int64_t work = std::max<int64_t>(gemm.m * gemm.n * gemm.k, 1);
    return std::clamp<int64_t>(count * work / gemm_grain, 1, threads);
  }
  void each(int threads, const auto& product) const {
    const int64_t count = static_cast<int64_t>(a.size()), all = parts(threads);
    if (all == 1) {
      for (int64_t i = 0; i < count; ++i) product(i, 0, threads);
      return;
    }
    parallel_parts(threads, all, count, [&](int64_t part, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) product(i, part, 1);
    });
  }

 private:
  // Makes all rows that one right-hand matrix multiplies, in whatever dimensions they lie, those of
  // as few products as possible.
  void take_rows(std::vector<RowDim>& dims) {
    std::vector<RowDim> rows, others;
    for (const RowDim& dim : dims) (dim.b == 0 ? rows : others).push_back(dim);
    if (rows.empty()) return;
    if (gemm.m != 1) rows.push_back({gemm.m, gemm.trans_a ? 1 : gemm.lda, 0, gemm.ldc});
    rows = merged(rows);
    const auto can_be_row = [&](const RowDim& dim) {
      if (gemm.trans_a) return dim.a == 1 && dim.size <= gemm.lda;
      return dim.a >= std::max<int64_t>(gemm.k, 1);
    };
    const auto longest = std::max_element(rows.begin(), rows.end(), [&](auto& x, auto& y) {
      return std::pair(can_be_row(x), x.size) < std::pair(can_be_row(y), y.size);
    });
    Gemm wider = gemm;
    wider.m = longest->size;
    if (!gemm.trans_a) wider.lda = longest->a;
    wider.ldc = longest->c;
    if (!can_be_row(*longest) || longest->size <= gemm.m || !fits_blas(wider)) return;
    gemm = wider;
    rows.erase(longest);
    others.insert(others.end(), rows.begin(), rows.end());
    dims = std::move(others);
  }

  void offsets_of(const std::vector<RowDim>& dims) {
    a = b = c = {0};
    for (const RowDim& dim : dims) {
      a = spread(a, dim.size, dim.a);
      b = spread(b, dim.size, dim.b);
      c = spread(c, dim.size, dim.c);
    }
  }
};

// Calls fn(T{}) with a type that gemm is written for.
Prepared with_number(const Call& call, const auto& fn) {
  return with_type(call.out().dtype, [&]<typename T>(T) -> Prepared {
    if constexpr (std::is_same_v<T, bool>) {
      throw_internal_error(__FILE__, __LINE__, "dtype", "a product of bool");
    } else {
      return fn(T{});
    }
  });
}

// Copies what is added to the product to where the product goes.
struct Added {
  bool is_row;  // one row for all rows of the result
  int64_t rows, columns;
  CopyPlan plan;

  Added(const Type& type, const Type& out)
      : is_row(type.is_contiguous() && type.numel() == out.sizes.back() &&
               !type.sizes.empty() && type.sizes.back() == out.sizes.back()),
        rows(out.numel() / std::max<int64_t>(out.sizes.back(), 1)),
        columns(out.sizes.back()),
        plan(out.sizes, out.actual_strides(), ir::broadcast_strides(type, out.sizes),
             ir::item_bytes(out.dtype)) {}

  template <typename T>
  void run(const Args& args) const {
    if (args.inputs[0] == args.outputs[0]) return;
    if (!is_row) return plan.run(args.outputs[0], args.inputs[0], args.threads);
    constexpr int64_t grain_elements = 32768;  // worth some 5 us
    const int64_t grain = std::max<int64_t>(grain_elements / std::max<int64_t>(columns, 1), 1);
    parallel_for(args.threads, rows, grain, [&](int64_t i) {
      std::copy_n(args.in<T>(0), columns, args.out<T>() + i * columns);
    });
  }
};

// The op of a batch of products by the algorithm that is chosen for them. Operand `lhs` is the left
// one; what is added is operand 0.
template <typename Product>
Prepared prepared(const Call& call, const Batch& batch, const Product& product, size_t lhs,
                  const std::optional<Added>& added) {
  using T = typename Product::Element;
  const size_t own = product.scratch_bytes(1);  // of one thread
  const auto run = [=](const Args& args) {
    if (added) added->run<T>(args);
    batch.each(args.threads, [&](int64_t i, int64_t part, int threads) {
      product.run(args.in<T>(lhs) + batch.a[i], args.in<T>(lhs + 1) + batch.b[i],
                  args.out<T>() + batch.c[i], args.scratch + static_cast<size_t>(part) * own,
                  threads);
    });
  };
  const size_t scratch =
      std::max(product.scratch_bytes(call.threads), own * static_cast<size_t>(call.threads));
  return {run, scratch, std::string(product.algorithm())};
}

Prepared prepare(const Call& call, const Batch& batch, size_t lhs = 0,
                 const std::optional<Added>& added = {}) {
  return with_number(call, [&]<typename T>(T) -> Prepared {
    return prepared(call, batch, PreparedGemm<T>(batch.gemm), lhs, added);
  });
}

// The same of 16-bit floats: summed in f32.
Prepared prepare_float16(const Call& call, const Batch& batch, size_t lhs = 0,
                      const std::optional<Added>& added = {}) {
  const ir::DType dtype = call.out().dtype;
  if (!has_float16_gemm(batch.gemm, dtype)) return {};
  return prepared(call, batch, Float16Gemm(batch.gemm, dtype), lhs, added);
}

Prepared matmul(const Call& call) {
  return prepare(call, Batch(call.in(0), call.in(1), call.out()));
}

Prepared float16_matmul(const Call& call) {
  return prepare_float16(call, Batch(call.in(0), call.in(1), call.out()));
}

Batch scaled_batch(const Call& call) {
  Batch batch(call.in(1), call.in(2), call.out());
  batch.gemm.alpha = call.attrs().get_float(ir::attr::alpha);
  batch.gemm.beta =
      call.attrs().get_float(MUTANT(addmm_takes_alpha_for_beta) ? ir::attr::alpha : ir::attr::beta);
  return batch;
}

std::optional<Added> added_to(const Call& call, const Batch& batch) {
  if (batch.gemm.beta == 0) return {};
  return Added(call.in(0), call.out());
}

Prepared addmm(const Call& call) {
  const Batch batch = scaled_batch(call);
  return prepare(call, batch, 1, added_to(call, batch));
}

Prepared float16_addmm(const Call& call) {
  const Batch batch = scaled_batch(call);
  return prepare_float16(call, batch, 1, added_to(call, batch));
}

}  // namespace

KERNEL("matmul", matmul)
HALF_KERNEL("matmul", float16_matmul)
KERNEL("addmm", addmm)
HALF_KERNEL("addmm", float16_addmm)
KERNEL("baddbmm", addmm)
HALF_KERNEL("baddbmm", float16_addmm)

}  // namespace poptorch::kernels

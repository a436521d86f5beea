// Kernel of float16_partials_matmul. Both operands of a product are upcast in scratch, the right
// one in panels of columns; threads share blocks of rows and columns.
#include "kernels/simd/float16_partials.h"

#include <algorithm>
#include <vector>

#include "kernels/float16_blocks.h"
#include "kernels/gemm/matrix_view.h"
#include "kernels/random/random.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"
#include "support/memory/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using simd::partials_chunk;
using simd::partials_nr;

constexpr int64_t MC = 32;
constexpr int64_t KC = 256;  // so much of a panel stays in the second cache
constexpr int64_t work_grain = 1 << 18;  // products worth a thread
constexpr int64_t copy_grain = 1 << 14;  // numbers worth a thread
static_assert(KC % partials_chunk == 0 && partials_nr % simd::random_group == 0);

// One operand: a batch of f16 matrices.
struct Side {
  MatrixLayout layout;
  std::vector<int64_t> first;  // of each matrix
  int64_t rows, columns;
  Upcast upcast = upcast_from(ir::DType::f16);

  Side(const ir::Type& type, const ir::Dims& leading)
      : layout(layout_of(type)),
        first(batch_offsets(type, leading)),
        rows(type.sizes[type.sizes.size() - 2]),
        columns(type.sizes.back()) {}

  // Numbers of a row of the matrix at x, at most a panel's.
  void upcast_part(const uint16_t* x, int64_t row, int64_t column, int64_t n, float* to) const {
    if (!layout.transposed) return upcast(x + row * layout.leading + column, to, n);
    uint16_t line[partials_nr];
    for (int64_t j = 0; j < n; ++j) line[j] = x[row + (column + j) * layout.leading];
    upcast(line, to, n);
  }

  // Matrix i; a number of row r and column c goes to to[offset(r, c)], and those of a panel's row
  // lie side by side.
  void upcast_all(const uint16_t* from, int64_t i, float* to, int threads,
                  const auto& offset) const {
    const uint16_t* x = from + first[static_cast<size_t>(i)];
    const int64_t grain = std::max<int64_t>(copy_grain / std::max<int64_t>(columns, 1), 1);
    parallel_for(threads, rows, grain, [&](int64_t row) {
      for (int64_t at = 0; at < columns; at += partials_nr) {
        upcast_part(x, row, at, std::min(partials_nr, columns - at), to + offset(row, at));
      }
    });
  }
};

struct Partials {
  Side a, b;
  int64_t m, n, k, count, salt;
  const simd::Float16PartialsTable* table = &simd::float16_partials_table();
  ChanceRound round = chance_round_to(ir::DType::f16);
  Downcast downcast = downcast_to(ir::DType::f16);

  int64_t panels() const { return ceil_div(n, partials_nr); }
  size_t bytes_of_a() const { return static_cast<size_t>(align_up(m * k * 4)); }
  size_t scratch_bytes() const {
    return bytes_of_a() + static_cast<size_t>(panels() * k * partials_nr * 4);
  }

  void operator()(const Args& args) const {
    auto* wide_a = reinterpret_cast<float*>(args.scratch);
    auto* wide_b = reinterpret_cast<float*>(args.scratch + bytes_of_a());
    std::fill_n(wide_b, panels() * k * partials_nr, 0.0f);
    const int64_t work = MC * partials_nr * std::max<int64_t>(k, 1);
    for (int64_t i = 0; i < count; ++i) {
      a.upcast_all(args.in<uint16_t>(0), i, wide_a, args.threads,
                   [this](int64_t row, int64_t column) { return row * k + column; });
      const auto in_panel = [this](int64_t row, int64_t column) {
        return column * k + row * partials_nr;
      };
      b.upcast_all(args.in<uint16_t>(1), i, wide_b, args.threads, in_panel);
      const int64_t blocks = ceil_div(m, MC) * panels();
      parallel_for(args.threads, blocks, std::max<int64_t>(work_grain / work, 1), [&](int64_t at) {
        block(args, wide_a, wide_b, i, at % ceil_div(m, MC) * MC,
              at / ceil_div(m, MC) * partials_nr);
      });
    }
  }

  void block(const Args& args, const float* wide_a, const float* wide_b, int64_t i, int64_t row,
             int64_t column) const {
    alignas(64) float totals[MC * partials_nr] = {};
    const int64_t rows = std::min(MC, m - row);
    const float *from = wide_a + row * k, *panel = wide_b + column * k;
    if (args.inputs[2] != nullptr) {
      by_chance(args, from, panel, rows, {i * m + row, column}, totals);
    } else {
      for (int64_t at = 0; at < k; at += KC) {
        table->add_product(from + at, k, rows, panel + at * partials_nr, std::min(KC, k - at),
                           totals);
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      downcast(totals + r * partials_nr, args.out<uint16_t>() + (i * m + row + r) * n + column,
               std::min(partials_nr, n - column));
    }
  }

  struct At {
    int64_t row, column;  // of all matrices, one below the other
  };

  // A chunk of a row takes the words from number (chunk * rows + row) * columns on, where columns
  // are those of all panels.
  void by_chance(const Args& args, const float* from, const float* panel, int64_t rows, At first,
                 float* totals) const {
    const simd::Draw draw = draw_of(args.in<int32_t>(2), salt);
    for (int64_t at = 0; at < k; at += partials_chunk) {
      for (int64_t r = 0; r < rows; ++r) {
        float* sums = totals + r * partials_nr;
        table->add_chunk(from + r * k + at, panel + at * partials_nr,
                         std::min(partials_chunk, k - at), sums);
        const int64_t line = at / partials_chunk * (count * m) + first.row + r;
        round(draw, line * panels() * partials_nr + first.column, partials_nr, sums,
              sums);
      }
    }
  }
};

Prepared float16_partials_matmul(const Call& call) {
  const ir::Dims& sizes = call.out().sizes;
  const ir::Dims leading(sizes.begin(), sizes.end() - 2);
  const Side a(call.in(0), leading), b(call.in(1), leading);
  const auto count = static_cast<int64_t>(a.first.size());
  const Partials partials{
      a, b, a.rows, b.columns, a.columns, count, call.attrs().get_int(ir::attr::salt)};
  return {partials, partials.scratch_bytes()};
}
KERNEL("float16_partials_matmul", float16_partials_matmul, true)

}  // namespace

}  // namespace poptorch::kernels

#include "kernels/gemm/matrix_view.h"

#include <algorithm>

namespace poptorch::kernels {

MatrixLayout layout_of(const ir::Type& type) {
  const ir::Dims strides = type.actual_strides();
  const size_t last = strides.size() - 1;
  const int64_t rows = type.sizes[last - 1], columns = type.sizes[last];
  const int64_t row = strides[last - 1], column = strides[last];
  const bool by_rows = (columns <= 1 || column == 1) && (rows <= 1 || row >= columns);
  if (by_rows) return {false, std::max<int64_t>({rows <= 1 ? 1 : row, columns, 1})};
  return {true, std::max<int64_t>({columns <= 1 ? 1 : column, rows, 1})};
}

ir::Dims batch_strides(const ir::Type& type, const ir::Dims& leading) {
  const ir::Dims own = type.actual_strides();
  ir::Type front{type.dtype, ir::Dims(type.sizes.begin(), type.sizes.end() - 2)};
  front.set_strides({own.begin(), own.end() - 2});
  return ir::broadcast_strides(front, leading);
}

std::vector<int64_t> spread(const std::vector<int64_t>& offsets, int64_t size, int64_t stride) {
  std::vector<int64_t> finer;
  for (int64_t offset : offsets) {
    for (int64_t i = 0; i < size; ++i) finer.push_back(offset + i * stride);
  }
  return finer;
}

std::vector<int64_t> batch_offsets(const ir::Type& type, const ir::Dims& leading) {
  const ir::Dims strides = batch_strides(type, leading);
  std::vector<int64_t> offsets{0};
  for (size_t d = 0; d < leading.size(); ++d) offsets = spread(offsets, leading[d], strides[d]);
  return offsets;
}

}  // namespace poptorch::kernels

#include "ir/type.h"

#include <algorithm>
#include <array>

#include "support/error.h"

namespace poptorch::ir {

namespace {

struct Row {
  const char* name;
  int64_t bytes;
};

// In the order of the enum.
constexpr std::array<Row, 10> rows = {{{"bool", 1},
                                       {"u8", 1},
                                       {"i8", 1},
                                       {"i16", 2},
                                       {"i32", 4},
                                       {"i64", 8},
                                       {"f16", 2},
                                       {"bf16", 2},
                                       {"f32", 4},
                                       {"f64", 8}}};

void print_dims(std::string& out, const Dims& dims) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(dims[i]);
  }
}

}  // namespace

int64_t item_bytes(DType dtype) { return rows[static_cast<size_t>(dtype)].bytes; }

const char* name_of(DType dtype) { return rows[static_cast<size_t>(dtype)].name; }

bool is_dtype_name(std::string_view name) {
  for (const Row& row : rows) {
    if (name == row.name) return true;
  }
  return false;
}

DType dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (name == rows[i].name) return static_cast<DType>(i);
  }
  std::string all;
  for (const Row& row : rows) all += concat(" ", row.name);
  throw_user_error(concat("[ir] unknown dtype \"", name, "\". Use one of:", all, "."));
}

Dims contiguous_strides(const Dims& sizes) {
  Dims strides(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    step *= sizes[i] > 0 ? sizes[i] : 1;
  }
  return strides;
}

int64_t product(const Dims& sizes) {
  int64_t n = 1;
  for (int64_t size : sizes) n *= size;
  return n;
}

int64_t Type::span() const {
  if (numel() == 0) return 0;
  if (strides.empty()) return numel();
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) last += (sizes[i] - 1) * strides[i];
  return last + 1;
}

bool Type::is_sane() const {
  int64_t elements = 1, last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t size = sizes[i], stride = strides.empty() ? 0 : strides[i];
    if (size < 0 || size > most_bytes || stride < 0 || stride > most_bytes) return false;
    if (size > 1 && elements > most_bytes / size) return false;
    if (size > 1 && stride > (most_bytes - last) / (size - 1)) return false;
    elements *= std::max<int64_t>(size, 1);
    last += std::max<int64_t>(size - 1, 0) * stride;
  }
  return std::max(elements, last + 1) <= most_bytes / item_bytes(dtype);
}

void Type::set_strides(const Dims& new_strides) {
  INTERNAL_CHECK(new_strides.size() == sizes.size(), "strides for ", new_strides.size(),
                 " dimensions, the type has ", sizes.size());
  const Dims row_major = contiguous_strides(sizes);
  bool same = true;
  for (size_t i = 0; i < sizes.size(); ++i) {
    same = same && (sizes[i] <= 1 || new_strides[i] == row_major[i]);
  }
  strides = same || numel() == 0 ? Dims{} : new_strides;
}

Dims broadcast_strides(const Type& type, const Dims& sizes) {
  const Dims own = type.actual_strides();
  const size_t missing = sizes.size() - own.size();
  Dims strides(sizes.size(), 0);
  for (size_t d = 0; d < own.size(); ++d) {
    if (type.sizes[d] != 1) strides[d + missing] = own[d];
  }
  return strides;
}

std::string Type::text() const {
  std::string out = name_of(dtype);
  out += '[';
  print_dims(out, sizes);
  out += ']';
  if (!strides.empty()) {
    out += '(';
    print_dims(out, strides);
    out += ')';
  }
  return out;
}

}  // namespace poptorch::ir

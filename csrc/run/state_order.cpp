#include "run/state_order.h"

#include <cstring>

#include "support/error.h"

namespace poptorch::run {

namespace {

// A state as matrices of channels times pixels, one for each entry of the first dimension.
struct Matrices {
  int64_t count, channels, pixels;

  explicit Matrices(const ir::Type& type)
      : count(type.sizes[0]),
        channels(type.sizes[1]),
        pixels(ir::product({type.sizes.begin() + 2, type.sizes.end()})) {}
};

// Transposes each of `count` matrices of rows times columns.
template <typename Item>
void transpose(int64_t count, int64_t rows, int64_t columns, const void* from, void* to) {
  const auto* source = static_cast<const Item*>(from);
  auto* target = static_cast<Item*>(to);
  for (int64_t m = 0; m < count; ++m) {
    for (int64_t j = 0; j < columns; ++j) {
      for (int64_t i = 0; i < rows; ++i) *target++ = source[i * columns + j];
    }
    source += rows * columns;
  }
}

void transpose(ir::DType dtype, int64_t count, int64_t rows, int64_t columns, const void* from,
               void* to) {
  switch (ir::item_bytes(dtype)) {
    case 1: return transpose<uint8_t>(count, rows, columns, from, to);
    case 2: return transpose<uint16_t>(count, rows, columns, from, to);
    case 4: return transpose<uint32_t>(count, rows, columns, from, to);
    case 8: return transpose<uint64_t>(count, rows, columns, from, to);
    default: INTERNAL_CHECK(false, "items of ", ir::item_bytes(dtype), " bytes");
  }
}

}  // namespace

void write_order(const assemble::State& state, const void* host, void* device) {
  if (!state.is_channels_last) {
    std::memcpy(device, host, static_cast<size_t>(state.type.bytes()));
    return;
  }
  const Matrices m(state.type);
  transpose(state.type.dtype, m.count, m.channels, m.pixels, host, device);
}

void read_order(const assemble::State& state, const void* device, void* host) {
  if (!state.is_channels_last) {
    std::memcpy(host, device, static_cast<size_t>(state.type.bytes()));
    return;
  }
  const Matrices m(state.type);
  transpose(state.type.dtype, m.count, m.pixels, m.channels, device, host);
}

}  // namespace poptorch::run

// Scalar conversions between float and the two 16-bit float formats, rounding to nearest even.
// Written as selections, not branches, so that loops over them vectorize.
#pragma once

#include <bit>
#include <cstdint>

namespace poptorch {

inline float bf16_to_float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

inline uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded);
}

inline float f16_to_float(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t rest = half & 0x7fffu;
  const uint32_t normal = (rest << 13) + (rest >= 0x7c00 ? 0x70000000 : 0x38000000);
  // Subnormal: `rest` counts steps of 2^-24.
  const float steps = static_cast<float>(static_cast<int32_t>(rest)) * 0x1p-24f;
  const uint32_t small = std::bit_cast<uint32_t>(steps);
  return std::bit_cast<float>(sign | (rest >= 0x400 ? normal : small));
}

inline uint16_t float_to_f16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t rest = bits & 0x7fffffff;
  const uint32_t normal = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
  // Subnormal: adding 0.5 leaves the rounded number of 2^-24 steps in the low bits.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000;
  const uint32_t finite = rest >= 0x38800000 ? normal : small;
  const uint32_t special = rest > 0x7f800000 ? 0x7e00 : 0x7c00;  // NaN, or too large
  return static_cast<uint16_t>(sign | (rest >= 0x477ff000 ? special : finite));
}

}  // namespace poptorch

// full and arange: tensors made of attributes alone.
#include <cmath>
#include <cstring>

#include "kernels/loop.h"
#include "ops/kernel.h"
#include "support/half.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ir::DType;

constexpr int64_t grain = 32768;

// A number attribute; whole numbers stay exact beyond 2^53.
struct Number {
  double real;
  int64_t whole;

  explicit Number(const ir::Attr& attr) {
    if (const auto* i = std::get_if<int64_t>(&attr.value)) {
      whole = *i;
      real = static_cast<double>(*i);
    } else if (const auto* b = std::get_if<bool>(&attr.value)) {
      whole = *b ? 1 : 0;
      real = static_cast<double>(whole);
    } else {
      real = std::get<double>(attr.value);
      whole = std::abs(real) < 0x1p63 ? static_cast<int64_t>(real) : 0;
    }
  }
};

// Element i of start, start + step, ... in the item's bytes.
template <typename T>
void write(void* out, int64_t i, T value) {
  std::memcpy(static_cast<std::byte*>(out) + i * static_cast<int64_t>(sizeof(T)), &value,
              sizeof(T));
}

void write_number(DType dtype, void* out, int64_t i, double real, int64_t whole) {
  switch (dtype) {
    case DType::boolean: return write<uint8_t>(out, i, real != 0.0);
    case DType::u8: return write(out, i, static_cast<uint8_t>(whole));
    case DType::i8: return write(out, i, static_cast<int8_t>(whole));
    case DType::i16: return write(out, i, static_cast<int16_t>(whole));
    case DType::i32: return write(out, i, static_cast<int32_t>(whole));
    case DType::i64: return write(out, i, whole);
    case DType::f16: return write(out, i, float_to_f16(static_cast<float>(real)));
    case DType::bf16: return write(out, i, float_to_bf16(static_cast<float>(real)));
    case DType::f32: return write(out, i, static_cast<float>(real));
    case DType::f64: return write(out, i, real);
  }
}

ops::Prepared full(const ops::Call& call) {
  const Number value(*call.attrs().find(ir::attr::fill_value));
  const int64_t n = call.out().numel(), item = ir::item_bytes(call.out().dtype);
  std::array<std::byte, 8> bytes{};
  write_number(call.out().dtype, bytes.data(), 0, value.real, value.whole);
  return {[=](const ops::Args& args) {
    parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
      auto* out = args.out<std::byte>() + begin * item;
      // Doubling copies: each as long as what is written already.
      const int64_t total = (end - begin) * item;
      std::memcpy(out, bytes.data(), static_cast<size_t>(item));
      for (int64_t done = item; done < total;) {
        const int64_t count = std::min({done, total - done, int64_t{8192}});
        std::memcpy(out + done, out, static_cast<size_t>(count));
        done += count;
      }
    });
  }};
}

ops::Prepared arange(const ops::Call& call) {
  const Number start(*call.attrs().find(ir::attr::start)), step(*call.attrs().find(ir::attr::step));
  const int64_t n = call.out().numel();
  const DType dtype = call.out().dtype;
  return {[=](const ops::Args& args) {
    parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        write_number(dtype, args.outputs[0], i, start.real + step.real * static_cast<double>(i),
                     start.whole + step.whole * i);
      }
    });
  }};
}

KERNEL("full", full, true)
KERNEL("arange", arange, true)

}  // namespace

}  // namespace poptorch::kernels

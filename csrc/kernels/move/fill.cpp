// full and arange: tensors made of attributes alone.
#include <array>

#include "ir/element.h"
#include "kernels/move/copy.h"
#include "ops/kernel.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ir::DType;

constexpr int64_t grain = 32768;

ir::Number number_of(const ir::Attr& attr) {
  if (const auto* whole = std::get_if<int64_t>(&attr.value)) return ir::Number(*whole);
  if (const auto* truth = std::get_if<bool>(&attr.value)) return ir::Number(int64_t{*truth});
  return ir::Number(std::get<double>(attr.value));
}

ops::Prepared full(const ops::Call& call) {
  const DType dtype = call.out().dtype;
  std::array<std::byte, 8> bytes{};
  ir::store_element(dtype, bytes.data(), 0, number_of(*call.attrs().find(ir::attr::fill_value)));
  return {[=, n = call.out().numel(), item = ir::item_bytes(dtype)](const ops::Args& args) {
    fill_items(args.outputs[0], bytes.data(), item, n, args.threads);
  }};
}

ops::Prepared arange(const ops::Call& call) {
  const ir::Number start = number_of(*call.attrs().find(ir::attr::start));
  const ir::Number step = number_of(*call.attrs().find(ir::attr::step));
  const int64_t n = call.out().numel();
  const DType dtype = call.out().dtype;
  return {[=](const ops::Args& args) {
    parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ir::store_element(dtype, args.outputs[0], i,
                          {start.real + step.real * static_cast<double>(i),
                           start.whole + step.whole * i});
      }
    });
  }};
}

KERNEL("full", full, true)
KERNEL("arange", arange, true)

}  // namespace

}  // namespace poptorch::kernels

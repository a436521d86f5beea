// Kernels of the user's own libraries.
#include <memory>

#include "kernels/float16.h"
#include "ops/custom/custom.h"

namespace poptorch::kernels {
namespace {

Prepared as_given(const Call& call) {
  const auto custom = std::make_shared<ops::CustomCall>(call.op);
  custom->prepare();
  return {[custom](const ops::Args& args) { custom->run(args); }, custom->scratch_bytes()};
}

Prepared custom(const Call& call) {
  const bool is_upcast =
      ops::uses_half(call) && ops::custom_op_of(call.op).abi.takes_halves == 0;
  return is_upcast ? prepare_upcast(call, as_given) : as_given(call);
}
KERNEL("custom", custom, true)

}  // namespace
}  // namespace poptorch::kernels

// host_call: a function of the host, called through the operator of torch that `overload` names.
#include <ATen/core/dispatch/Dispatcher.h>

#include "kernels/aten/call.h"
#include "support/error.h"

namespace poptorch::aten {
namespace {

ops::Prepared host_call(const ops::Call& call) {
  const std::string& name = call.attrs().get_string("overload");
  const auto found = c10::Dispatcher::singleton().findSchema({name, ""});
  USER_CHECK(found, "[", name, "] PyTorch has no operator of this name. Import poptorch before ",
             "the program is compiled.");
  const int64_t site = call.attrs().get_int("site");
  const auto run = [handle = *found, site](const ops::Args&, const Tensors& inputs,
                                           Tensors& results) {
    // The function may keep what it is given: it gets memory of its own.
    c10::List<at::Tensor> given;
    for (const at::Tensor& input : inputs) given.push_back(input.clone());
    torch::jit::Stack stack{std::move(given), site};
    handle.callBoxed(stack);
    results = stack.back().toTensorVector();
  };
  return prepare_call(call, name, run, {}, Memory::users);
}
KERNEL("host_call", host_call, true)

}  // namespace
}  // namespace poptorch::aten

#include "kernels/aten/opaque.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/view_as_real.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>

#include "ops/families/shape.h"
#include "support/error.h"

namespace poptorch::aten {
namespace {

c10::OperatorHandle find_operator(const std::string& overload) {
  const size_t dot = overload.find('.', overload.find("::") + 1);
  const auto found = c10::Dispatcher::singleton().findSchema(
      {overload.substr(0, dot), dot == std::string::npos ? "" : overload.substr(dot + 1)});
  USER_CHECK(found, "[", overload, "] PyTorch has no operator of this name. Import the library ",
             "that registers it before the program is compiled.");
  return *found;
}

bool is_tensor_or_list(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) return true;
  return type->kind() == c10::TypeKind::ListType &&
         type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

void check_schema(const c10::OperatorHandle& handle, const ir::Op& op) {
  const std::string& name = op.attrs.get_string(ir::attr::overload);
  const c10::FunctionSchema& schema = handle.schema();
  USER_CHECK(schema.name() != "aten::from_file", "[", name, "] reads and writes files, a program "
             "only computes. Read the tensor before and pass it as an argument.");
  bool has_generator = false;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    USER_CHECK(!is_written(argument) || ops::is_foreign(op), "[", name,
               "] writes to its argument ", argument.name(), ", the program is functional. Use the "
               "operator that returns a new tensor.");
    const auto* args = std::get_if<ir::AttrList>(&op.attrs.find(ir::attr::args)->value);
    const bool given = args != nullptr && i < args->size() && !(*args)[i].is_none();
    has_generator |= given && argument.real_type()->str().starts_with("Generator");
  }
  for (const c10::Argument& result : schema.returns()) {
    USER_CHECK(is_tensor_or_list(result.type()), "[", name, "] returns ", result.type()->str(),
               ", a program computes tensors. Keep the value in a tensor.");
  }
  USER_CHECK(has_generator || !handle.hasTag(at::Tag::nondeterministic_seeded), "[", name,
             "] draws random numbers, no generator is given. Give it one (`%rngk`).");
}

// What the operands are in the user's program.
struct Given {
  std::vector<bool> is_int32;
  std::vector<ir::Dims> strides;
};

Given given_of(const ops::Call& call) {
  Given given;
  const ir::Dims int32 = ops::ints_of(call.attrs(), ir::attr::int32);
  const ir::Dims all = ops::ints_of(call.attrs(), ir::attr::strides);
  size_t at = 0;
  for (size_t i = 0; i < call.in_count(); ++i) {
    given.is_int32.push_back(std::ranges::find(int32, static_cast<int64_t>(i)) != int32.end());
    const size_t rank = call.has_in(i) ? call.in(i).sizes.size() : 0;
    given.strides.push_back(call.has_in(i) ? ir::contiguous_strides(call.in(i).sizes) : ir::Dims{});
    if (at + rank > all.size()) continue;
    std::copy_n(all.begin() + at, rank, given.strides.back().begin());
    at += rank;
  }
  return given;
}

bool lies_with(const at::Tensor& x, const ir::Dims& strides) {
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    if (x.size(dim) > 1 && x.stride(dim) != strides[dim]) return false;
  }
  return true;
}

// A copy with such strides; with gaps where each element of memory would have to be several.
at::Tensor laid_with(const at::Tensor& x, ir::Dims strides) {
  for (int64_t dim = 0; dim < x.dim(); ++dim) {
    if (x.size(dim) == 1 || strides[dim] != 0) continue;
    strides = ir::contiguous_strides(x.sizes().vec());
    for (int64_t& stride : strides) stride *= 2;
    break;
  }
  return at::empty_strided(x.sizes(), strides, x.options()).copy_(x);
}

// The operands as they are in the user's program: narrowed integers are wide again, strides are its
// own; with `own`, all tensors in memory of their own.
Tensors arguments_of(const Tensors& inputs, const Given& given, bool own) {
  Tensors out = inputs;
  for (size_t i = 0; i < out.size(); ++i) {
    at::Tensor& x = out[i];
    if (!x.defined()) continue;
    const bool is_narrowed = x.scalar_type() == at::kInt && !given.is_int32[i];
    if (is_narrowed || own) x = is_narrowed ? x.to(at::kLong) : x.clone();
    if (!x.numel() || lies_with(x, given.strides[i])) continue;
    x = laid_with(x, given.strides[i]);
  }
  return out;
}

// The operands that the operator writes to, in the order of its arguments.
std::vector<size_t> written_operands(const ir::Op& op, const c10::FunctionSchema& schema) {
  std::vector<size_t> found;
  const auto& args = std::get<ir::AttrList>(op.attrs.find(ir::attr::args)->value);
  for (size_t i = 0; i < std::min(args.size(), schema.arguments().size()); ++i) {
    if (!is_written(schema.arguments()[i])) continue;
    const auto* text = std::get_if<std::string>(&args[i].value);
    USER_CHECK(text != nullptr && text->starts_with('%') && std::isdigit((*text)[1]) != 0, "[",
               op.attrs.get_string(ir::attr::overload), "] writes to its argument ",
               schema.arguments()[i].name(), ", which is ", args[i].text(),
               ". Give it one tensor there that is not complex.");
    found.push_back(std::stoul(text->substr(1)));
  }
  return found;
}

void append(const c10::IValue& value, Tensors& results) {
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) results.push_back(tensor);
  } else {
    results.push_back(value.isNone() ? at::Tensor() : value.toTensor());
  }
}

// Complex numbers are pairs of numbers in the program.
at::Tensor as_pairs(const at::Tensor& x) {
  return x.defined() && x.is_complex() ? at::view_as_real(x.resolve_conj()) : x;
}

ops::Prepared opaque(const ops::Call& call) {
  const std::string& name = call.attrs().get_string(ir::attr::overload);
  const c10::OperatorHandle handle = find_operator(name);
  check_schema(handle, call.op);
  const auto arguments = std::make_shared<const Arguments>(call.op, handle.schema());
  const Given given = given_of(call);
  const bool is_foreign = ops::is_foreign(call.op);
  const std::vector<size_t> written = written_operands(call.op, handle.schema());
  const auto run = [=](const ops::Args& args, const Tensors& inputs, Tensors& results) {
    torch::jit::Stack stack;
    const Tensors operands = arguments_of(inputs, given, is_foreign);
    arguments->push(args, operands, stack);
    handle.callBoxed(stack);
    for (const c10::IValue& value : stack) append(value, results);
    for (at::Tensor& result : results) result = as_pairs(result);
    for (const size_t i : written) results.push_back(operands[i].clone());  // it may have kept it
  };
  // It is never called on zeros, and nothing that it may keep is in the program's memory.
  return prepare_call(call, name, run, {}, is_foreign ? Memory::users : Memory::planned);
}

// A function of the host, called through the operator that `overload` names.
ops::Prepared host_call(const ops::Call& call) {
  const std::string& name = call.attrs().get_string(ir::attr::overload);
  const int64_t site = call.attrs().get_int(ir::attr::site);
  const auto run = [handle = find_operator(name), site](const ops::Args&, const Tensors& inputs,
                                                        Tensors& results) {
    // The function may keep its arguments, so it gets copies.
    c10::List<at::Tensor> given;
    for (const at::Tensor& input : inputs) given.push_back(input.clone());
    torch::jit::Stack stack{std::move(given), site};
    handle.callBoxed(stack);
    results = stack.back().toTensorVector();
  };
  return prepare_call(call, name, run, {}, Memory::users);
}

KERNEL("aten", opaque, true)
KERNEL("host_call", host_call, true)

}  // namespace
}  // namespace poptorch::aten

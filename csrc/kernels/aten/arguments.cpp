// The argument list of an opaque op, from IR attributes to the dispatcher's stack.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/view_as_complex.h>

#include <array>
#include <cstring>

#include "kernels/aten/opaque.h"
#include "support/error.h"

namespace poptorch::aten {
namespace {

using c10::IValue;
using c10::TypeKind;
using c10::TypePtr;
using ir::Attr;
using ir::AttrList;

constexpr const char* operand_prefix = "%";
constexpr const char* complex_prefix = "%complex";
constexpr const char* generator_prefix = "%rng";

template <typename T>
const T* get(const Attr& attr) {
  return std::get_if<T>(&attr.value);
}

[[noreturn]] void refuse(const ir::Op& op, const c10::Argument& argument, const Attr& attr) {
  throw_user_error(concat("[", op.attrs.get_string(ir::attr::overload), "] argument ",
                          argument.name(), " is of type ", argument.real_type()->str(), ", given ",
                          attr.text(), ". Write it as csrc/kernels/aten/opaque.h says."));
}

TypePtr without_optional(TypePtr type) {
  while (type->kind() == TypeKind::OptionalType) {
    type = type->castRaw<c10::OptionalType>()->getElementType();
  }
  return type;
}

IValue number(const Attr& attr) {
  if (const auto* v = get<bool>(attr)) return *v;
  if (const auto* v = get<int64_t>(attr)) return *v;
  if (const auto* v = get<double>(attr)) return *v;
  const auto* parts = get<AttrList>(attr);
  if (parts == nullptr || parts->size() != 2) return {};
  const auto* real = get<double>((*parts)[0]);
  const auto* imaginary = get<double>((*parts)[1]);
  if (real == nullptr || imaginary == nullptr) return {};
  return c10::complex<double>(*real, *imaginary);
}

// One of the names, as the number that torch's enum gives it; none when it is another word.
template <size_t n>
IValue enum_value(const Attr& attr, const std::array<const char*, n>& names,
                  const std::array<int64_t, n>& values) {
  const auto* word = get<std::string>(attr);
  for (size_t i = 0; word != nullptr && i < n; ++i) {
    if (*word == names[i]) return values[i];
  }
  return {};
}

IValue memory_format(const Attr& attr) {
  const auto value = [](at::MemoryFormat format) { return static_cast<int64_t>(format); };
  return enum_value<4>(
      attr, {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"},
      {value(at::MemoryFormat::Contiguous), value(at::MemoryFormat::Preserve),
       value(at::MemoryFormat::ChannelsLast), value(at::MemoryFormat::ChannelsLast3d)});
}

IValue text(const std::string& word) { return word.starts_with("%%") ? word.substr(1) : word; }

// A single value other than a tensor, list or generator; none when the attribute does not fit.
IValue scalar(TypeKind kind, const Attr& attr) {
  switch (kind) {
    case TypeKind::NumberType: return number(attr);
    case TypeKind::BoolType:
      if (const auto* v = get<bool>(attr)) return *v;
      return {};
    case TypeKind::FloatType:
      if (const auto* v = get<double>(attr)) return *v;
      if (const auto* v = get<int64_t>(attr)) return static_cast<double>(*v);
      return {};
    case TypeKind::IntType:
    case TypeKind::SymIntType:
    case TypeKind::ScalarTypeType:
      if (const auto* v = get<int64_t>(attr)) return *v;
      if (const auto* v = get<ir::DType>(attr)) return static_cast<int64_t>(scalar_type(*v));
      return enum_value<3>(attr, {"complex32", "complex64", "complex128"},
                           {static_cast<int64_t>(at::kComplexHalf),
                            static_cast<int64_t>(at::kComplexFloat),
                            static_cast<int64_t>(at::kComplexDouble)});
    case TypeKind::LayoutType:
      return enum_value<1>(attr, {"strided"}, {static_cast<int64_t>(at::kStrided)});
    case TypeKind::MemoryFormatType: return memory_format(attr);
    case TypeKind::StringType:
      if (const auto* v = get<std::string>(attr)) return text(*v);
      return {};
    case TypeKind::DeviceObjType:
      return attr == Attr("cpu") ? IValue(at::Device(at::kCPU)) : IValue();
    default: return {};
  }
}

template <typename T>
IValue typed_list(const std::vector<IValue>& items) {
  c10::List<T> list;
  for (const IValue& item : items) list.push_back(item.to<T>());
  return list;
}

// none when an item does not fit.
IValue list(const TypePtr& element, const AttrList& attrs) {
  std::vector<IValue> items;
  for (const Attr& attr : attrs) {
    items.push_back(scalar(element->kind(), attr));
    if (items.back().isNone()) return {};
  }
  switch (element->kind()) {
    case TypeKind::IntType:
    case TypeKind::SymIntType: return typed_list<int64_t>(items);
    case TypeKind::FloatType: return typed_list<double>(items);
    case TypeKind::BoolType: return typed_list<bool>(items);
    case TypeKind::StringType: return typed_list<std::string>(items);
    case TypeKind::NumberType: {
      c10::List<at::Scalar> scalars;
      for (const IValue& item : items) scalars.push_back(item.toScalar());
      return scalars;
    }
    default: return {};
  }
}

// splitmix64: spreads related seeds over all 64 bits.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

at::Generator generator(const void* rng, int64_t salt) {
  std::array<uint32_t, 4> words;  // seed_lo, seed_hi, replica, counter
  std::memcpy(words.data(), rng, sizeof(words));
  uint64_t seed = mix(static_cast<uint64_t>(salt));
  for (const uint32_t word : words) seed = mix(seed ^ word);
  return at::detail::createCPUGenerator(seed);
}

bool is_tensor(const TypePtr& type) { return type->kind() == TypeKind::TensorType; }

}  // namespace

Arguments::Arguments(const ir::Op& op, const c10::FunctionSchema& schema)
    : salt_(op.attrs.maybe_int(ir::attr::salt).value_or(0)) {
  const Attr* args = op.attrs.find(ir::attr::args);
  const AttrList* given = args == nullptr ? nullptr : get<AttrList>(*args);
  INTERNAL_CHECK(given != nullptr, "an aten op without a list `args`");
  const std::string& name = op.attrs.get_string(ir::attr::overload);
  USER_CHECK(given->size() <= schema.arguments().size(), "[", name, "] takes ",
             schema.arguments().size(), " arguments, given ", given->size(), ". The schema is ",
             c10::str(schema), ".");
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (i < given->size()) {
      arguments_.push_back(read({op, argument}, (*given)[i]));
    } else {
      USER_CHECK(argument.default_value(), "[", name, "] argument ", argument.name(),
                 " is missing and has no default. The schema is ", c10::str(schema), ".");
      arguments_.push_back({Kind::constant, *argument.default_value(), {}});
    }
  }
}

int Arguments::operand_index(const Source& source, const Attr& attr, const std::string& prefix) {
  const auto* word = get<std::string>(attr);
  if (word == nullptr || !word->starts_with(prefix) || word->size() == prefix.size()) {
    refuse(source.op, source.argument, attr);
  }
  size_t index = 0;
  for (const char c : word->substr(prefix.size())) {
    if (c < '0' || c > '9') refuse(source.op, source.argument, attr);
    index = index * 10 + static_cast<size_t>(c - '0');
  }
  USER_CHECK(index < source.op.operands.size(), "[", source.op.attrs.get_string(ir::attr::overload),
             "] argument ", source.argument.name(), " is ", *word, ", the op has ",
             source.op.operands.size(), " operands. Count them from 0.");
  return source.op.operand(index) == nullptr ? -1 : static_cast<int>(index);
}

Arguments::Operand Arguments::operand(const Source& source, const Attr& attr) {
  const auto* word = get<std::string>(attr);
  const bool is_complex = word != nullptr && word->starts_with(complex_prefix);
  return {operand_index(source, attr, is_complex ? complex_prefix : operand_prefix), is_complex};
}

Arguments::Argument Arguments::read_tensors(const Source& source, const Attr& attr,
                                            bool optional) const {
  const auto* items = get<AttrList>(attr);
  if (items == nullptr) refuse(source.op, source.argument, attr);
  Argument out{optional ? Kind::optional_tensors : Kind::tensors, {}, {}};
  for (const Attr& item : *items) {
    out.operands.push_back(item.is_none() ? Operand() : operand(source, item));
    if (out.operands.back().index < 0 && !optional) refuse(source.op, source.argument, attr);
  }
  return out;
}

Arguments::Argument Arguments::read(const Source& source, const Attr& attr) const {
  const TypePtr& declared = source.argument.real_type();
  const bool optional = declared->kind() == TypeKind::OptionalType;
  if (optional && attr.is_none()) return {};
  const TypePtr type = without_optional(declared);
  if (is_tensor(type)) {
    const Operand given = operand(source, attr);
    if (given.index < 0 && !optional) refuse(source.op, source.argument, attr);
    return {given.index < 0 ? Kind::constant : Kind::tensor, {}, {given}};
  }
  if (type->kind() == TypeKind::GeneratorType) {
    const int index = operand_index(source, attr, generator_prefix);
    if (index < 0 || source.op.operand(static_cast<size_t>(index))->type.bytes() < 16) {
      refuse(source.op, source.argument, attr);
    }
    return {Kind::generator, {}, {{index}}};
  }
  IValue value;
  if (type->kind() == TypeKind::ListType) {
    const TypePtr& element = type->castRaw<c10::ListType>()->getElementType();
    if (is_tensor(without_optional(element))) {
      return read_tensors(source, attr, element->kind() == TypeKind::OptionalType);
    }
    const auto* items = get<AttrList>(attr);
    const auto repeats = static_cast<size_t>(source.argument.N().value_or(1));
    value = list(element, items != nullptr ? *items : AttrList(repeats, attr));
  } else {
    value = scalar(type->kind(), attr);
  }
  if (value.isNone()) refuse(source.op, source.argument, attr);
  return {Kind::constant, std::move(value), {}};
}

void Arguments::push(const ops::Args& args, const Tensors& inputs, torch::jit::Stack& stack) const {
  const auto input = [&](const Operand& operand) {
    const at::Tensor& x = inputs[static_cast<size_t>(operand.index)];
    if (!operand.is_complex) return x;
    return at::view_as_complex(x.stride(-1) == 1 ? x : x.contiguous());
  };
  for (const Argument& argument : arguments_) {
    switch (argument.kind) {
      case Kind::constant: stack.push_back(argument.constant); break;
      case Kind::tensor: stack.emplace_back(input(argument.operands[0])); break;
      case Kind::tensors: {
        c10::List<at::Tensor> list;
        for (const Operand& operand : argument.operands) list.push_back(input(operand));
        stack.emplace_back(std::move(list));
        break;
      }
      case Kind::optional_tensors: {
        c10::List<std::optional<at::Tensor>> list;
        for (const Operand& operand : argument.operands) {
          list.push_back(operand.index < 0 ? std::nullopt : std::optional(input(operand)));
        }
        stack.emplace_back(std::move(list));
        break;
      }
      case Kind::generator:
        stack.emplace_back(generator(args.inputs[argument.operands[0].index], salt_));
        break;
    }
  }
}

}  // namespace poptorch::aten

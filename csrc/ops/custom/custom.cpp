// The row `custom`: calls of the functions of a library.
#include "ops/custom/custom.h"

#include <algorithm>
#include <array>
#include <utility>

#include "support/error.h"
#include "support/memory/align.h"
#include "support/parallel.h"

namespace poptorch::ops {

namespace {

// By PoptorchDType.
constexpr std::array dtypes = {ir::DType::boolean, ir::DType::u8,  ir::DType::i8,   ir::DType::i16,
                               ir::DType::i32,     ir::DType::i64, ir::DType::f16,
                               ir::DType::bf16,    ir::DType::f32, ir::DType::f64};

constexpr double operations_of_a_part = 32768;  // worth some 5 us

int32_t number_of(ir::DType dtype) {
  return static_cast<int32_t>(std::find(dtypes.begin(), dtypes.end(), dtype) - dtypes.begin());
}

const char* words_for(int32_t kind) {
  switch (kind) {
    case POPTORCH_FLOAT: return "a float";
    case POPTORCH_FLOATS: return "a list of floats";
    case POPTORCH_INT: return "an int";
    case POPTORCH_INTS: return "a list of ints";
    case POPTORCH_STRING: return "a string";
    default: return "a list of strings";
  }
}

bool is_list(int32_t kind) {
  return kind == POPTORCH_FLOATS || kind == POPTORCH_INTS || kind == POPTORCH_STRINGS;
}

// One number or string of an attribute; `kind` is its kind or a list of it. Ints pass for floats.
template <typename Value>
bool read_item(Value& value, int32_t kind, const ir::Attr& item) {
  const auto* number = std::get_if<int64_t>(&item.value);
  const auto* real = std::get_if<double>(&item.value);
  const auto* text = std::get_if<std::string>(&item.value);
  if (kind == POPTORCH_FLOAT || kind == POPTORCH_FLOATS) {
    if (real == nullptr && number == nullptr) return false;
    value.floats.push_back(real != nullptr ? *real : static_cast<double>(*number));
    return true;
  }
  if (kind == POPTORCH_INT || kind == POPTORCH_INTS) {
    if (number != nullptr) value.ints.push_back(*number);
    return number != nullptr;
  }
  if (text != nullptr) value.strings.push_back(*text);
  return text != nullptr;
}

// [name, value]; what the IR has may be written by hand.
const std::string* name_of(const ir::Attr& setting) {
  const auto* pair = std::get_if<ir::AttrList>(&setting.value);
  return pair == nullptr || pair->size() != 2 ? nullptr
                                              : std::get_if<std::string>(&(*pair)[0].value);
}

}  // namespace

// What a call's functions refer to by PoptorchCall::host.
struct CustomCall::Host {
  std::string message;
  std::vector<ir::Type> types;
  int threads = 1;
  double cost = 0;

  static Host& of(const PoptorchCall* call) { return *static_cast<Host*>(call->host); }

  static void fail(const PoptorchCall* call, const char* message) { of(call).message = message; }

  static void add_output(const PoptorchCall* call, int32_t dtype, int32_t rank,
                         const int64_t* sizes) {
    Host& host = of(call);
    if (dtype < 0 || static_cast<size_t>(dtype) >= dtypes.size() || rank < 0) {
      host.message = concat("its shape function gives dtype ", dtype, " and rank ", rank,
                            ". Use those of poptorch/custom_op.h.");
      return;
    }
    host.types.push_back({dtypes[static_cast<size_t>(dtype)], ir::Dims(sizes, sizes + rank), {}});
  }

  static void parallel(const PoptorchCall* call, int64_t n, int64_t grain,
                       void (*body)(void*, int64_t, int64_t), void* user) {
    const Host& host = of(call);
    if (grain <= 0) {
      const double share = operations_of_a_part / std::max(host.cost, 1.0);
      grain = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(n) *
                                                        std::min(share, 1.0)));
    }
    parallel_for(host.threads, n, grain,
                 [&](int64_t begin, int64_t end) { body(user, begin, end); });
  }
};

CustomCall::CustomCall(const ir::Op& op) : op_(custom_op_of(op)) {
  const auto count = static_cast<int64_t>(op.operands.size());
  const int64_t fewest = op_.abi.fewest_inputs, most = op_.abi.most_inputs;
  USER_CHECK(count >= fewest && (most < 0 || count <= most), "[", op_.title(), "] takes ", fewest,
             most == fewest ? "" : most < 0 ? " or more" : concat(" to ", most), " inputs, got ",
             count, ". Give it that many.");
  for (const ir::Value* operand : op.operands) inputs_.push_back(tensor_of(operand->type, sizes_));
  for (const auto& result : op.results) outputs_.push_back(tensor_of(result->type, sizes_));
  const ir::Attr* settings = op.attrs.find(ir::attr::settings);
  const ir::AttrList given =
      settings == nullptr ? ir::AttrList() : std::get<ir::AttrList>(settings->value);
  check_names(given);
  for (uint32_t i = 0; i < op_.abi.attribute_count; ++i) {
    add_attribute(op_.abi.attributes[i], given);
  }
}

PoptorchTensor CustomCall::tensor_of(const ir::Type& type, std::deque<ir::Dims>& sizes) {
  sizes.push_back(type.sizes);
  return {number_of(type.dtype), static_cast<int32_t>(type.rank()), sizes.back().data(), nullptr};
}

void CustomCall::check_names(const ir::AttrList& settings) const {
  std::string names;
  for (uint32_t i = 0; i < op_.abi.attribute_count; ++i) {
    names += concat(i == 0 ? "" : ", ", op_.abi.attributes[i].name);
  }
  for (const ir::Attr& setting : settings) {
    const std::string* name = name_of(setting);
    USER_CHECK(name != nullptr, "[", op_.title(), "] `settings` has ", setting.text(),
               ". Give [name, value].");
    const auto* begin = op_.abi.attributes;
    const bool is_known = std::any_of(begin, begin + op_.abi.attribute_count,
                                      [&](const auto& declared) { return *name == declared.name; });
    USER_CHECK(is_known, "[", op_.title(), "] has no attribute \"", *name, "\". Its attributes: ",
               names.empty() ? "none" : names, ".");
  }
}

void CustomCall::add_attribute(const PoptorchAttribute& declared, const ir::AttrList& settings) {
  attributes_.push_back(declared);
  for (const ir::Attr& setting : settings) {
    if (*name_of(setting) != declared.name) continue;
    return read_value(attributes_.back(), std::get<ir::AttrList>(setting.value)[1]);
  }
  USER_CHECK(declared.is_required == 0, "[", op_.title(), "] attribute \"", declared.name,
             "\" is missing. Give ", words_for(declared.kind), ".");
}

void CustomCall::read_value(PoptorchAttribute& attribute, const ir::Attr& given) {
  Value& value = values_.emplace_back();
  const auto* list = std::get_if<ir::AttrList>(&given.value);
  bool fits = is_list(attribute.kind) == (list != nullptr);
  if (fits && list != nullptr) {
    for (const ir::Attr& item : *list) fits = fits && read_item(value, attribute.kind, item);
  } else if (fits) {
    fits = read_item(value, attribute.kind, given);
  }
  USER_CHECK(fits, "[", op_.title(), "] attribute \"", attribute.name, "\" is ", given.text(),
             ", it must be ", words_for(attribute.kind), ". Give one.");
  for (const std::string& text : value.strings) {
    value.pointers.push_back(text.c_str());
    value.lengths.push_back(static_cast<int64_t>(text.size()));
  }
  attribute.count = list != nullptr ? static_cast<int64_t>(list->size()) : 1;
  attribute.floats = value.floats.data();
  attribute.ints = value.ints.data();
  attribute.strings = value.pointers.data();
  attribute.lengths = value.lengths.data();
}

PoptorchCall CustomCall::call(Host& host) const {
  PoptorchCall call{};
  call.size = sizeof(PoptorchCall);
  call.input_count = static_cast<uint32_t>(inputs_.size());
  call.attribute_count = static_cast<uint32_t>(attributes_.size());
  call.inputs = inputs_.data();
  call.attributes = attributes_.data();
  call.host = &host;
  call.fail = Host::fail;
  call.add_output = Host::add_output;
  call.parallel_for = Host::parallel;
  return call;
}

void CustomCall::check(int32_t status, const Host& host) const {
  if (status == 0 && host.message.empty()) return;
  std::string message = host.message.empty() ? concat("it returned ", status) : host.message;
  if (!message.ends_with('.') && !message.ends_with('!') && !message.ends_with('?')) message += '.';
  throw_user_error(concat("[", op_.title(), "] ", message));
}

std::vector<ir::Type> CustomCall::infer() const {
  Host host;
  const PoptorchCall given = call(host);
  check(op_.abi.shape(op_.own, &given), host);
  USER_CHECK(!host.types.empty(), "[", op_.title(), "] its shape function declares no output. Call "
             "add_output for each.");
  return std::move(host.types);
}

void CustomCall::prepare() {
  for (const auto* tensors : {&inputs_, &outputs_}) {
    for (const PoptorchTensor& tensor : *tensors) {
      double elements = 1;
      for (int32_t i = 0; i < tensor.rank; ++i) elements *= static_cast<double>(tensor.sizes[i]);
      cost_ += elements;
    }
  }
  if (op_.abi.cost == nullptr) return;
  Host host;
  PoptorchCall given = call(host);
  given.outputs = outputs_.data();
  given.output_count = static_cast<uint32_t>(outputs_.size());
  cost_ = op_.abi.cost(op_.own, &given);
  check(0, host);
  USER_CHECK(cost_ >= 0, "[", op_.title(), "] its cost is ", cost_,
             " operations. Give their number.");
}

size_t CustomCall::scratch_bytes() const {
  return (inputs_.size() + outputs_.size()) * sizeof(PoptorchTensor);
}

void CustomCall::run(const Args& args) const {
  Host host;
  host.threads = args.threads;
  host.cost = cost_;
  PoptorchCall given = call(host);
  auto* inputs = reinterpret_cast<PoptorchTensor*>(args.scratch);
  auto* outputs = inputs + inputs_.size();
  std::copy(inputs_.begin(), inputs_.end(), inputs);
  std::copy(outputs_.begin(), outputs_.end(), outputs);
  for (size_t i = 0; i < inputs_.size(); ++i) inputs[i].data = args.inputs[i];
  for (size_t i = 0; i < outputs_.size(); ++i) outputs[i].data = args.outputs[i];
  given.inputs = inputs;
  given.outputs = outputs;
  given.output_count = static_cast<uint32_t>(outputs_.size());
  check(op_.abi.kernel(op_.own, &given), host);
}

namespace {

std::vector<ir::Type> infer_custom(const InferInput& in) { return CustomCall(in.op).infer(); }

}  // namespace

std::vector<OpDef> custom_ops() {
  return {
      {.name = "custom",
       .doc = "The op `op` of a library of the user's (docs/guide/extending/custom_ops.md). "
              "`settings` has the [name, value] of its attributes.",
       .operands = {"inputs*"},
       .results = {"outs*"},
       .attrs = {{"domain", "", true},
                 {"op", "", true},
                 {"version", 1, true},
                 {"settings", ir::AttrList{}}},
       .infer = infer_custom},
  };
}

}  // namespace poptorch::ops

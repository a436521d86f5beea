#include "ir/graph.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <type_traits>

#include "ir/element.h"
#include "support/error.h"

namespace poptorch::ir {

namespace {

// Constants of up to this many elements are printed in the op itself.
constexpr int64_t inline_elements = 16;

// The upper half of the product, too: the lower one alone lets a changed sign of a float reach no
// bit below it.
uint64_t mix(uint64_t hash, uint64_t word) {
  const auto product = static_cast<unsigned __int128>(hash ^ word) * 0x9e3779b97f4a7c15;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

std::string hash_text(const Type& type, const std::vector<std::byte>& bytes) {
  uint64_t hash = 0x243f6a8885a308d3;
  for (char c : type.text()) hash = mix(hash, static_cast<unsigned char>(c));
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<size_t>(8, bytes.size() - i));
    hash = mix(hash, word);
  }
  std::string text(16, '0');
  for (size_t i = 16; i-- > 0; hash >>= 4) text[i] = "0123456789abcdef"[hash & 15];
  return text;
}

// The shortest decimal that gives this float again, as a double: 0.1f becomes 0.1.
double shortest(float value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  double out = value;
  std::from_chars(text, end, out);
  return out;
}

Attr element_attr(DType dtype, const void* data, int64_t i) {
  return with_element(dtype, data, i, []<typename T>(T element) -> Attr {
    if constexpr (std::is_same_v<T, float>) return shortest(element);
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, double>) return element;
    return static_cast<int64_t>(element);
  });
}

double number(const Attr& attr) {
  if (const auto* v = std::get_if<double>(&attr.value)) return *v;
  if (const auto* v = std::get_if<int64_t>(&attr.value)) return static_cast<double>(*v);
  throw_user_error(concat("[constant] `data` holds ", attr.text(),
                          ", expected a number for this type. Correct the text."));
}

int64_t integer(const Attr& attr) {
  if (const auto* v = std::get_if<int64_t>(&attr.value)) return *v;
  if (const auto* v = std::get_if<bool>(&attr.value)) return *v;
  throw_user_error(concat("[constant] `data` holds ", attr.text(),
                          ", expected an integer for this type. Correct the text."));
}

void store_element(DType dtype, const Attr& attr, std::byte* at) {
  ir::store_element(dtype, at, 0, is_float(dtype) ? Number(number(attr)) : Number(integer(attr)));
}

// What the text form allows in names.
bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.';
}

// The number that the name is, or -1.
int64_t name_as_number(const std::string& name) {
  int64_t number = -1;
  const char* end = name.data() + name.size();
  const auto [at, error] = std::from_chars(name.data(), end, number);
  return error == std::errc() && at == end ? number : -1;
}

}  // namespace

std::string Graph::unique_name(const std::string& wanted) {
  std::string name = wanted;
  for (char& c : name) {
    if (!is_name_char(c)) c = '_';
  }
  if (!name.empty() && names_.insert(name).second) {
    next_name_ = std::max(next_name_, name_as_number(name) + 1);
    return name;
  }
  if (name.empty()) {
    do {
      name = std::to_string(next_name_++);
    } while (names_.contains(name));
  } else {
    int64_t& suffix = suffixes_[name];
    const std::string stem = name + '.';
    do {
      name = concat(stem, ++suffix);
    } while (names_.contains(name));
  }
  next_name_ = std::max(next_name_, name_as_number(name) + 1);
  names_.insert(name);
  return name;
}

Op* Graph::adopt(std::unique_ptr<Op> op) {
  for (const auto& result : op->results) {
    next_name_ = std::max(next_name_, name_as_number(result->name) + 1);
    names_.insert(result->name);
  }
  ops.push_back(std::move(op));
  return ops.back().get();
}

std::unique_ptr<Op> Graph::make(OpName op_name, std::vector<Value*> operands, Attrs attrs,
                                const std::vector<Type>& types, SourceLocation source,
                                const std::vector<std::string>& value_names) {
  INTERNAL_CHECK(value_names.empty() || value_names.size() == types.size(), "op ", op_name, " has ",
                 types.size(), " results and ", value_names.size(), " names for them");
  auto op = std::make_unique<Op>();
  op->name = op_name;
  op->operands = std::move(operands);
  op->attrs = std::move(attrs);
  op->source_location = std::move(source);
  for (size_t i = 0; i < types.size(); ++i) {
    auto value = std::make_unique<Value>();
    value->name = unique_name(value_names.empty() ? std::string() : value_names[i]);
    value->type = types[i];
    value->op = op.get();
    value->index = static_cast<int>(i);
    op->results.push_back(std::move(value));
  }
  return op;
}

Op* Graph::append(OpName op_name, std::vector<Value*> operands, Attrs attrs,
                  const std::vector<Type>& types, SourceLocation source,
                  const std::vector<std::string>& value_names) {
  ops.push_back(make(op_name, std::move(operands), std::move(attrs), types, std::move(source),
                     value_names));
  return ops.back().get();
}

void Graph::replace_all(const std::unordered_map<Value*, Value*>& map) {
  if (map.empty()) return;
  const auto follow = [&](Value* value) {
    for (auto at = map.find(value); at != map.end(); at = map.find(value)) value = at->second;
    return value;
  };
  for (const auto& op : ops) {
    for (Value*& operand : op->operands) operand = follow(operand);
  }
  for (Value*& output : outputs) output = follow(output);
}

std::unordered_map<const Value*, int> Graph::count_uses() const {
  std::unordered_map<const Value*, int> uses;
  for (const auto& op : ops) {
    for (const Value* operand : op->operands) {
      if (operand != nullptr) ++uses[operand];
    }
  }
  for (const Value* output : outputs) ++uses[output];
  return uses;
}

Graph* Module::add_graph(std::string name) {
  INTERNAL_CHECK(find_graph(name) == nullptr, "the module has a graph @", name, " already");
  graphs.push_back(std::make_unique<Graph>(std::move(name)));
  return graphs.back().get();
}

Graph* Module::find_graph(std::string_view name) const {
  for (const auto& graph : graphs) {
    if (graph->name == name) return graph.get();
  }
  return nullptr;
}

std::vector<Graph*> Module::entries() const {
  Graph* main = find_graph("main");
  INTERNAL_CHECK(main != nullptr, "the module has no graph `main`");
  Graph* preprocess = find_graph("preprocess");
  if (preprocess == nullptr) return {main};
  return {preprocess, main};
}

std::vector<Op*> Module::all_ops() const {
  std::vector<Op*> ops;
  for (const auto& graph : graphs) {
    for (const auto& op : graph->ops) ops.push_back(op.get());
  }
  return ops;
}

std::string Module::add_constant(const Type& type, const void* data) {
  INTERNAL_CHECK(type.is_contiguous(), "a constant of type ", type.text(), " has strides");
  auto stored = std::make_shared<ConstantData>();
  stored->type = type;
  const auto* bytes = static_cast<const std::byte*>(data);
  stored->bytes.assign(bytes, bytes + type.bytes());
  std::string hash = hash_text(type, stored->bytes);
  const auto [at, is_new] = constants.emplace(hash, stored);
  const ConstantData& kept = *at->second;
  INTERNAL_CHECK(is_new || (kept.type == type && kept.bytes == stored->bytes),
                 "two constants have hash ", hash);
  return hash;
}

Attrs Module::constant_attrs(const Type& type, const void* data) {
  Attrs attrs;
  if (type.numel() > inline_elements) {
    attrs.set(ir::attr::hash, add_constant(type, data));
    return attrs;
  }
  AttrList items;
  for (int64_t i = 0; i < type.numel(); ++i) {
    items.push_back(element_attr(type.dtype, data, i));
  }
  attrs.set(ir::attr::data, std::move(items));
  return attrs;
}

std::vector<std::byte> constant_bytes(const Module& module, const Op& op) {
  const Type& type = op.result()->type;
  if (const Attr* hash = op.attrs.find(ir::attr::hash)) {
    const auto at = module.constants.find(op.attrs.get_string(ir::attr::hash));
    USER_CHECK(at != module.constants.end(), "[constant] the data of %", op.result()->name,
               " with hash ", hash->text(),
               " is missing. Keep the .safetensors file next to the IR text.");
    USER_CHECK(at->second->type == type, "[constant] %", op.result()->name, " is ", type.text(),
               ", its data is ", at->second->type.text(), ". Use the file written with the text.");
    return at->second->bytes;
  }
  const Attr* data = op.attrs.find(ir::attr::data);
  const auto* items = data == nullptr ? nullptr : std::get_if<AttrList>(&data->value);
  USER_CHECK(items != nullptr, "[constant] %", op.result()->name,
             " has neither `data` (a list) nor `hash`. Give one of them.");
  USER_CHECK(static_cast<int64_t>(items->size()) == type.numel(), "[constant] %",
             op.result()->name, " has ", items->size(), " elements in `data`, its type ",
             type.text(), " has ", type.numel(), ". Make them equal.");
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  std::byte* at = bytes.data();
  for (const Attr& item : *items) {
    store_element(type.dtype, item, at);
    at += item_bytes(type.dtype);
  }
  return bytes;
}

}  // namespace poptorch::ir

#include "ir/attribute.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>

#include "support/error.h"

namespace poptorch::ir {

namespace {

std::string quoted(const std::string& text) {
  static constexpr char hex[] = "0123456789abcdef";
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += hex[byte >> 4];
      out += hex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Shortest form that reads back to the same bits, and that does not look like an int.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string out(buffer, end);
  if (out.find_first_of(".e") == std::string::npos) out += ".0";
  return out;
}

}  // namespace

Attr::Attr(const Dims& v) {
  AttrList list;
  list.reserve(v.size());
  for (int64_t item : v) list.emplace_back(item);
  value = std::move(list);
}

bool Attr::operator==(const Attr& other) const {
  if (value.index() != other.value.index()) return false;
  if (const double* mine = std::get_if<double>(&value)) {
    return std::bit_cast<uint64_t>(*mine) == std::bit_cast<uint64_t>(std::get<double>(other.value));
  }
  return value == other.value;
}

std::string Attr::text() const {
  struct Printer {
    std::string operator()(std::monostate) const { return "none"; }
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(double v) const { return float_text(v); }
    std::string operator()(const std::string& v) const { return quoted(v); }
    std::string operator()(DType v) const { return std::string("dtype:") + name_of(v); }
    std::string operator()(const GraphRef& v) const { return "@" + v.name; }
    std::string operator()(const AttrList& v) const {
      std::string out = "[";
      for (size_t i = 0; i < v.size(); ++i) {
        if (i > 0) out += ", ";
        out += v[i].text();
      }
      return out + "]";
    }
  };
  return std::visit(Printer{}, value);
}

const Attr* Attrs::find(AttrName name) const {
  for (const Item& item : items_) {
    if (item.first == name.text) return &item.second;
  }
  return nullptr;
}

void Attrs::set(AttrName name, Attr value) {
  constexpr size_t usual = 8;  // of a planned op
  if (items_.empty()) items_.reserve(usual);
  if (items_.empty() || std::string_view(items_.back().first) < name.text) {  // as text has them
    items_.emplace_back(name.text, std::move(value));
    return;
  }
  const auto at = std::lower_bound(items_.begin(), items_.end(), name.text,
                                   [](const Item& item, std::string_view key) {
                                     return std::string_view(item.first) < key;
                                   });
  if (at != items_.end() && at->first == name.text) {
    at->second = std::move(value);
  } else {
    items_.insert(at, {std::string(name.text), std::move(value)});
  }
}

void Attrs::erase(AttrName name) {
  std::erase_if(items_, [&](const Item& item) { return item.first == name.text; });
}

template <typename T>
const T& Attrs::get(AttrName name, const char* kind) const {
  const Attr* attr = find(name);
  INTERNAL_CHECK(attr != nullptr, "attribute `", name, "` is missing");
  const T* value = std::get_if<T>(&attr->value);
  INTERNAL_CHECK(value != nullptr, "attribute `", name, "` is ", attr->text(), ", expected ", kind);
  return *value;
}

bool Attrs::get_bool(AttrName name) const { return get<bool>(name, "a bool"); }
int64_t Attrs::get_int(AttrName name) const { return get<int64_t>(name, "an int"); }
const std::string& Attrs::get_string(AttrName name) const {
  return get<std::string>(name, "a string");
}
DType Attrs::get_dtype(AttrName name) const { return get<DType>(name, "a dtype"); }
const std::string& Attrs::get_graph(AttrName name) const {
  return get<GraphRef>(name, "a graph").name;
}

double Attrs::get_float(AttrName name) const {
  const Attr* attr = find(name);
  if (attr != nullptr) {
    if (const auto* as_int = std::get_if<int64_t>(&attr->value)) {
      return static_cast<double>(*as_int);
    }
  }
  return get<double>(name, "a float");
}

Dims Attrs::get_ints(AttrName name) const {
  Dims out;
  for (const Attr& item : get<AttrList>(name, "a list of ints")) {
    const auto* value = std::get_if<int64_t>(&item.value);
    INTERNAL_CHECK(value != nullptr, "attribute `", name, "` holds ", item.text(), ", not an int");
    out.push_back(*value);
  }
  return out;
}

std::vector<bool> Attrs::get_bools(AttrName name) const {
  std::vector<bool> out;
  for (const Attr& item : get<AttrList>(name, "a list of bools")) {
    const auto* value = std::get_if<bool>(&item.value);
    INTERNAL_CHECK(value != nullptr, "attribute `", name, "` holds ", item.text(), ", not a bool");
    out.push_back(*value);
  }
  return out;
}

std::optional<int64_t> Attrs::maybe_int(AttrName name) const {
  const Attr* attr = find(name);
  if (attr == nullptr || attr->is_none()) return std::nullopt;
  return get_int(name);
}

std::optional<double> Attrs::maybe_float(AttrName name) const {
  const Attr* attr = find(name);
  if (attr == nullptr || attr->is_none()) return std::nullopt;
  return get_float(name);
}

int64_t Attrs::get_int(AttrName name, int64_t otherwise) const {
  return has(name) ? get_int(name) : otherwise;
}
bool Attrs::get_bool(AttrName name, bool otherwise) const {
  return has(name) ? get_bool(name) : otherwise;
}
double Attrs::get_float(AttrName name, double otherwise) const {
  return has(name) ? get_float(name) : otherwise;
}

}  // namespace poptorch::ir

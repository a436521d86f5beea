// Attributes of an op: a small sorted map from names to values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "ir/attr_name.h"
#include "ir/dtype.h"
#include "ir/type.h"

namespace poptorch::ir {

// `@name`: another graph of the module.
struct GraphRef {
  std::string name;
  bool operator==(const GraphRef&) const = default;
};

struct Attr;
using AttrList = std::vector<Attr>;

// Lists in lists, the outermost one counted: what reads an attribute refuses more, as all that
// walks through one calls itself for each of them.
constexpr int most_nested_lists = 64;

// none | bool | int | float | "string" | dtype:f32 | @graph | [attr, ...]
struct Attr {
  std::variant<std::monostate, bool, int64_t, double, std::string, DType, GraphRef, AttrList> value;

  Attr() = default;
  Attr(bool v) : value(v) {}
  Attr(int v) : value(int64_t{v}) {}
  Attr(int64_t v) : value(v) {}
  Attr(double v) : value(v) {}
  Attr(const char* v) : value(std::string(v)) {}
  Attr(std::string v) : value(std::move(v)) {}
  Attr(DType v) : value(v) {}
  Attr(GraphRef v) : value(std::move(v)) {}
  Attr(AttrList v) : value(std::move(v)) {}
  Attr(const Dims& v);

  bool is_none() const { return std::holds_alternative<std::monostate>(value); }
  // Bitwise on floats, so that NaN equals NaN and 0.0 differs from -0.0.
  bool operator==(const Attr& other) const;
  std::string text() const;
};

// Sorted by name, so that equal ops print equal bytes. The typed getters are internal errors when
// the attribute is absent (unless a default is given) or of another kind; ints pass for floats.
class Attrs {
 public:
  using Item = std::pair<std::string, Attr>;

  bool has(AttrName name) const { return find(name) != nullptr; }
  const Attr* find(AttrName name) const;
  void set(AttrName name, Attr value);
  void erase(AttrName name);

  bool get_bool(AttrName name) const;
  int64_t get_int(AttrName name) const;
  double get_float(AttrName name) const;
  const std::string& get_string(AttrName name) const;
  DType get_dtype(AttrName name) const;
  const std::string& get_graph(AttrName name) const;
  Dims get_ints(AttrName name) const;
  std::vector<bool> get_bools(AttrName name) const;
  // Empty when the attribute is absent or `none`.
  std::optional<int64_t> maybe_int(AttrName name) const;
  std::optional<double> maybe_float(AttrName name) const;
  int64_t get_int(AttrName name, int64_t otherwise) const;
  bool get_bool(AttrName name, bool otherwise) const;
  double get_float(AttrName name, double otherwise) const;

  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool empty() const { return items_.empty(); }
  bool operator==(const Attrs&) const = default;

 private:
  template <typename T>
  const T& get(AttrName name, const char* kind) const;

  std::vector<Item> items_;
};

}  // namespace poptorch::ir

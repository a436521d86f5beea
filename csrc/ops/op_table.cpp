// The op table, and what is checked and filled in by its rows.
#include <algorithm>
#include <array>
#include <unordered_map>

#include "ops/annotation.h"
#include "ops/families/fused.h"
#include "support/error.h"
#include "support/loading/at_load.h"
#include "support/loading/not_linked.h"

namespace poptorch::ops {

namespace {

struct Family {
  std::string_view name;
  std::vector<OpDef> (*rows)();
};

std::vector<Family>& families() {
  static std::vector<Family> all;
  return all;
}

#define FAMILY(name) \
  AT_LOAD("ops." #name) { families().push_back({#name, name##_ops}); }
#include "ops/families.def"
#undef FAMILY

struct Row {
  const OpDef* def;
  std::string_view family;
};

struct Table {
  std::vector<OpDef> rows;
  std::unordered_map<ir::OpName, Row> by_name;
};

Table make_table() {
  Table table;
  std::unordered_map<ir::OpName, std::string_view> family_of;
  std::unordered_map<std::string_view, ir::OpName> by_aten;
  for (const Family& family : families()) {
    std::vector<OpDef> rows = family.rows();
    for (OpDef& row : rows) {
      family_of.emplace(row.name, family.name);
      table.rows.push_back(std::move(row));
    }
  }
  std::sort(table.rows.begin(), table.rows.end(),
            [](const OpDef& a, const OpDef& b) { return a.name.text() < b.name.text(); });
  for (const OpDef& row : table.rows) {
    const Row found = {&row, family_of.at(row.name)};
    INTERNAL_CHECK(table.by_name.emplace(row.name, found).second, "op ", row.name,
                   " has two rows in csrc/ops");
    for (const std::string& aten : row.aten) {
      INTERNAL_CHECK(by_aten.emplace(aten, row.name).second, aten, " is named by the rows of ",
                     row.name, " and ", by_aten.at(aten));
    }
  }
  return table;
}

const Table& table() {
  static const Table built = make_table();
  return built;
}

// Edits (insert, delete, replace) that lead from one word to the other.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

const char* kind_of(const ir::Attr& attr) {
  constexpr std::array<const char*, 8> kinds = {"none",     "a bool",  "an int",  "a float",
                                                "a string", "a dtype", "a graph", "a list"};
  return kinds[attr.value.index()];
}

bool is_int(const ir::Attr& attr) { return std::holds_alternative<int64_t>(attr.value); }
bool is_double(const ir::Attr& attr) { return std::holds_alternative<double>(attr.value); }

// Ints pass for floats; an optional attribute (default `none`) takes any kind.
bool kind_fits(const AttrDef& def, const ir::Attr& attr) {
  const ir::Attr& like = def.default_value;
  return like.is_none() || like.value.index() == attr.value.index() ||
         (is_double(like) && is_int(attr));
}

void check_attrs(const OpDef& row, const ir::Op& op) {
  for (const auto& [name, value] : op.attrs) {
    const Annotation* annotation = find_annotation(name);
    if (annotation != nullptr && may_carry(row.name, *annotation)) continue;
    const auto def = std::find_if(row.attrs.begin(), row.attrs.end(),
                                  [&](const AttrDef& attr) { return attr.name == name; });
    if (def == row.attrs.end()) {
      std::string known;
      for (const AttrDef& attr : row.attrs) known += concat(known.empty() ? "" : ", ", attr.name);
      throw_user_error(concat("[", row.name, "] has no attribute \"", name, "\". Its attributes: ",
                              known.empty() ? "none" : known, "."));
    }
    USER_CHECK(kind_fits(*def, value), "[", row.name, "] attribute \"", name, "\" is ",
               value.text(), ", ", kind_of(value), ". Give ", kind_of(def->default_value), ".");
  }
  for (const AttrDef& attr : row.attrs) {
    USER_CHECK(!attr.required || op.attrs.has(attr.name), "[", row.name, "] attribute \"",
               attr.name, "\" is missing. Give ", kind_of(attr.default_value), ".");
  }
}

}  // namespace

size_t operand_slots(const ir::Op& op) {
  const OpDef* row = find_op(op.name);
  if (row == nullptr) return op.operands.size();
  const bool variadic = !row->operands.empty() && row->operands.back().ends_with('*');
  return std::max(op.operands.size(), row->operands.size() - (variadic ? 1 : 0));
}

std::vector<int> inplace_candidates(const ir::Op& op, size_t result) {
  const OpDef* row = find_op(op.name);
  if (row == nullptr) return {};
  if (row->places_for != nullptr) return row->places_for(op, result);
  return result < row->inplace.size() ? row->inplace[result] : std::vector<int>();
}

bool is_foreign(const ir::Op& op) {
  if (op.name == ir::op::custom) return true;
  if (op.name != ir::op::aten) return false;
  const std::string& overload = op.attrs.get_string(ir::attr::overload);
  return !overload.starts_with("aten::") && !overload.starts_with("prims::");
}

std::string report_name(const ir::Op& op) {
  if (op.name == ir::op::fused) return fused_name(op);
  if (op.name == ir::op::custom) {
    return concat(op.attrs.get_string(ir::attr::domain), "::", op.attrs.get_string(ir::attr::op));
  }
  return op.name == ir::op::aten ? op.attrs.get_string(ir::attr::overload) : op.name.str();
}

bool is_view(const ir::Op& op) {
  const OpDef* row = find_op(op.name);
  return row != nullptr && row->view;
}

bool is_move(const ir::Op& op) {
  return op.name == ir::op::ipu_copy || op.name == ir::op::remote_store ||
         op.name == ir::op::remote_load || op.name == ir::op::stash;
}

bool is_by_io_tiles(const ir::Op& op) {
  const ir::Attr* tiles = op.attrs.find(ir::attr::tiles);
  return tiles != nullptr && *tiles == ir::Attr("io");
}

AttrDef lowered_attr(std::string name, ir::Attr default_value) {
  return {std::move(name), std::move(default_value), false, true};
}

std::string_view lowered_part(const ir::Op& op) {
  const OpDef* row = find_op(op.name);
  if (row == nullptr) return {};
  if (row->lowered) return op.name.text();
  for (const AttrDef& attr : row->attrs) {
    if (!attr.lowered) continue;
    const ir::Attr* written = op.attrs.find(attr.name);
    if (written != nullptr && *written != attr.default_value) return attr.name;
  }
  return {};
}

bool takes_strides(Strided kind, const ir::Type& type) {
  if (type.is_contiguous() || kind == Strided::all) return true;
  if (kind == Strided::none || type.rank() < 2) return false;
  const size_t last = type.sizes.size() - 1;
  const auto fits = [&](size_t inner, size_t outer) {
    const bool packed = type.sizes[inner] <= 1 || type.strides[inner] == 1;
    return packed && (type.sizes[outer] <= 1 || type.strides[outer] >= type.sizes[inner]);
  };
  return fits(last, last - 1) || fits(last - 1, last);
}

std::vector<OpDef> joined(std::initializer_list<std::vector<OpDef>> parts) {
  std::vector<OpDef> rows;
  for (const auto& part : parts) rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

const std::vector<OpDef>& op_table() { return table().rows; }

const OpDef* find_op(ir::OpName name) {
  const auto at = table().by_name.find(name);
  if (at == table().by_name.end()) return nullptr;
  note_need("ops.", at->second.family);
  return at->second.def;
}

std::string near_names(std::string_view name) {
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const OpDef& row : op_table()) {
    const size_t edits = distance(name, row.name.text());
    const bool part = name.size() > 2 && row.name.text().find(name) != std::string_view::npos;
    if (edits <= 2 + name.size() / 8 || part) near.emplace_back(edits, row.name.text());
  }
  std::sort(near.begin(), near.end());
  std::string words;
  for (size_t i = 0; i < std::min<size_t>(near.size(), 5); ++i) {
    words += concat(i > 0 ? " or " : "", near[i].second);
  }
  return words;
}

const OpDef& op_def(ir::OpName name) {
  const OpDef* row = find_op(name);
  if (row == nullptr) {
    check_is_linked("op ", name.text());
    const std::string near = near_names(name.text());
    throw_user_error(concat("[op table] there is no op \"", name, "\". ",
                            near.empty() ? concat("`python -m poptorch ops` lists all ",
                                                  op_table().size(), ".")
                                         : concat("Did you mean ", near, "?")));
  }
  return *row;
}

ir::Attr attr_of(const ir::Op& op, ir::AttrName name) {
  if (const ir::Attr* written = op.attrs.find(name)) return *written;
  if (const OpDef* row = find_op(op.name)) {
    for (const AttrDef& attr : row->attrs) {
      if (attr.name == name && !attr.required) return attr.default_value;
    }
  }
  return {};
}

ir::Attrs shortest_attrs(const OpDef& row, const ir::Attrs& attrs) {
  ir::Attrs out = attrs;
  for (const AttrDef& def : row.attrs) {
    const ir::Attr* written = out.find(def.name);
    if (written == nullptr) continue;
    if (is_double(def.default_value) && is_int(*written)) {
      out.set(def.name, static_cast<double>(std::get<int64_t>(written->value)));
      written = out.find(def.name);
    }
    if (!def.required && *written == def.default_value) out.erase(def.name);
  }
  return out;
}

ir::Attrs complete_attrs(const OpDef& row, const ir::Attrs& attrs) {
  ir::Attrs out = attrs;
  for (const AttrDef& def : row.attrs) {
    if (!def.required && !out.has(def.name)) out.set(def.name, def.default_value);
  }
  return out;
}

void check_signature(const OpDef& row, const ir::Op& op) {
  const size_t given = op.operands.size();
  const bool variadic = !row.operands.empty() && row.operands.back().ends_with('*');
  const size_t named = row.operands.size() - (variadic ? 1 : 0);
  USER_CHECK(given <= named || variadic, "[", row.name, "] takes ", named, " operands, got ", given,
             ". Leave the last ones out.");
  for (size_t i = 0; i < named; ++i) {
    USER_CHECK(op.operand(i) != nullptr || row.operands[i].ends_with('?'), "[", row.name,
               "] operand \"", row.operands[i], "\" (number ", i, ") is missing: got ", given,
               " operands. Give it.");
  }
  const bool may_be_absent = variadic && row.operands.back().ends_with("?*");
  for (size_t i = named; i < given; ++i) {
    USER_CHECK(op.operand(i) != nullptr || may_be_absent, "[", row.name, "] operand number ", i,
               " is absent (`_`), ", row.operands.back(), " takes tensors only. Give it.");
  }
  check_attrs(row, op);
}

}  // namespace poptorch::ops

// Prints IR text; ir/text.h has the grammar.
#include <algorithm>

#include "ir/text.h"

namespace poptorch::ir {

namespace {

// Words of a source location are written bare where they can be: most file and module names.
bool is_bare(const std::string& word) {
  return std::none_of(word.begin(), word.end(), [](char c) {
    return c == ' ' || c == ':' || c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 ||
           c == 0x7f;
  });
}

std::string word(const std::string& text) { return is_bare(text) ? text : Attr(text).text(); }

void print_values(std::string& out, const std::vector<Value*>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    out += i > 0 ? ", " : " ";
    if (values[i] == nullptr) {
      out += '_';
    } else {
      out += '%';
      out += values[i]->name;
    }
  }
}

void print_op(std::string& out, const Op& op) {
  for (const auto& result : op.results) {
    if (result->index > 0) out += ", ";
    out += '%';
    out += result->name;
  }
  if (!op.results.empty()) out += " = ";
  out += op.name.text();
  print_values(out, op.operands);
  const char* separator = " {";
  for (const auto& [name, attr] : op.attrs) {
    out += separator;
    out += name;
    out += '=';
    out += attr.text();
    separator = ", ";
  }
  if (!op.attrs.empty()) out += '}';
  for (const auto& result : op.results) {
    out += result->index == 0 ? " : " : ", ";
    out += result->type.text();
  }
  if (op.source_location.empty()) return;
  out += "  // ";
  out += word(op.source_location.file);
  out += ':';
  out += std::to_string(op.source_location.line);
  if (!op.source_location.module.empty()) {
    out += ' ';
    out += word(op.source_location.module);
  }
}

void print_graph(std::string& out, const Graph& graph) {
  out += "graph ";
  out += graph.name;
  out += " {\n";
  for (const auto& op : graph.ops) {
    out += "  ";
    print_op(out, *op);
    out += '\n';
  }
  out += "  output";
  print_values(out, graph.outputs);
  out += "\n}\n";
}

}  // namespace

std::string Op::text() const {
  std::string out;
  print_op(out, *this);
  return out;
}

std::string print(const Graph& graph) {
  std::string out;
  print_graph(out, graph);
  return out;
}

std::string print(const Module& module) {
  std::string out;
  for (const auto& graph : module.graphs) {
    if (!out.empty()) out += '\n';
    print_graph(out, *graph);
  }
  return out;
}

}  // namespace poptorch::ir

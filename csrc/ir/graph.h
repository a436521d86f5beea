// The IR: a module of graphs of ops in SSA form.
//
//   graph micro {
//     %x = stream_in {stream="x"} : f32[16,64]  // net.py:12 fc
//     %w = state {path="fc.weight"} : f32[10,64]
//     ...
//     output
//   }
//
// Ownership: a Module owns its graphs and constant data, a Graph its ops, an Op its results. Values
// and ops are referred to by plain pointers that stay valid until the op is erased.
// Graphs are pure: `state` reads a state as of graph entry, `assign` binds a new value at the end.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/attribute.h"
#include "ir/op_name.h"
#include "ir/type.h"

namespace poptorch::ir {

struct Op;

struct Value {
  std::string name;  // without the %; unique in its graph
  Type type;
  Op* op = nullptr;  // the op that defines it
  int index = 0;     // which of its results
};

// The user's source: kept through printing and parsing.
struct SourceLocation {
  std::string file;
  int line = 0;
  std::string module;  // dotted path, may be empty

  bool empty() const { return file.empty() && module.empty(); }
  bool operator==(const SourceLocation&) const = default;
};

struct Op {
  OpName name;
  std::vector<Value*> operands;  // nullptr: an absent optional tensor, printed `_`
  std::vector<std::unique_ptr<Value>> results;
  Attrs attrs;
  SourceLocation source_location;

  Value* result(size_t i = 0) const { return results[i].get(); }
  Value* operand(size_t i) const { return i < operands.size() ? operands[i] : nullptr; }
  // `%3 = relu %2 : f32[4]`: one line of IR text, for messages.
  std::string text() const;
};

class Graph {
 public:
  explicit Graph(std::string name) : name(std::move(name)) {}

  std::string name;
  std::vector<std::unique_ptr<Op>> ops;  // every operand is defined before its use
  std::vector<Value*> outputs;

  // Appends an op. An empty value name gets the next free number; a name that is taken gets a
  // suffix (`x.1`).
  Op* append(OpName op_name, std::vector<Value*> operands, Attrs attrs,
             const std::vector<Type>& types, SourceLocation source = {},
             const std::vector<std::string>& value_names = {});
  // Makes an op without putting it into `ops`: for passes that rebuild the list.
  std::unique_ptr<Op> make(OpName op_name, std::vector<Value*> operands, Attrs attrs,
                           const std::vector<Type>& types, SourceLocation source = {},
                           const std::vector<std::string>& value_names = {});
  // Appends an op of another graph. Its results keep their names, which no value here may have now.
  Op* adopt(std::unique_ptr<Op> op);
  // Points every use of a value that the map has (operands and outputs) at what it maps to; chains
  // (a to b, b to c) are followed to their end. Linear in the size of the graph.
  void replace_all(const std::unordered_map<Value*, Value*>& map);
  // Number of uses of each value, outputs included.
  std::unordered_map<const Value*, int> count_uses() const;

 private:
  std::string unique_name(const std::string& wanted);

  int64_t next_name_ = 0;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::string, int64_t> suffixes_;
};

// Bytes of a constant too large to be printed; found by the `hash` attribute.
struct ConstantData {
  Type type;
  std::vector<std::byte> bytes;
};

class Module {
 public:
  std::vector<std::unique_ptr<Graph>> graphs;
  std::map<std::string, std::shared_ptr<const ConstantData>> constants;  // by hash

  Graph* add_graph(std::string name);  // an internal error when the name is taken
  Graph* find_graph(std::string_view name) const;  // nullptr when there is none
  // The graphs that no loop runs, in the order in which they run: `preprocess` if there is one,
  // then `main`, which must be there. `preprocess` runs when the host has written what it reads.
  std::vector<Graph*> entries() const;
  // The ops of all graphs as they are now, one graph after the other.
  std::vector<Op*> all_ops() const;
  // Stores the bytes and returns their hash (16 hex digits of a 64-bit hash of type and content).
  std::string add_constant(const Type& type, const void* data);
  // Attributes of a `constant` op: few elements inline (`data`), many stored by `hash`.
  Attrs constant_attrs(const Type& type, const void* data);
};

// The bytes of a `constant` op, whether inline (`data=[...]`) or stored by hash.
std::vector<std::byte> constant_bytes(const Module& module, const Op& op);

}  // namespace poptorch::ir

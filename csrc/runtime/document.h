// What runtime.json says of a compiled model (docs/internals/file_format.md).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compile.h"
#include "ir/type.h"

namespace poptorch::runtime {

struct Document {
  struct Input {
    std::string name, stream;  // no stream: the program does not read it
    ir::DType dtype = ir::DType::f32;
    ir::Dims shape;
  };
  struct Output {
    std::string stream, mode;
    bool is_result = false;  // forward returns it
    int64_t period = 1;
    ir::Dims shape;
  };

  std::string refused;  // why only Python can run the program; empty: nothing
  CompileOptions options;
  std::vector<Input> inputs;    // in the order of forward's tensors
  std::vector<Output> outputs;  // results first, in their order
  std::map<std::string, std::vector<double>> numbers;  // by stream: of the optimizer
  std::map<std::string, std::string> weights;          // state -> tensor in weights.safetensors
  std::vector<std::string> updated;                    // states that a run changes
  std::vector<std::pair<std::string, std::string>> state_dict;  // name -> tensor
  uint64_t seed = 0;

  static Document parse(std::string_view text, const std::string& where);
};

}  // namespace poptorch::runtime

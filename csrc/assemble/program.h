// What runs: flat lists of instructions, one for each graph, nested by loops. Offsets are bytes
// into an arena; each replica has an arena of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ops/kernel.h"

namespace poptorch::assemble {

struct Instruction {
  enum class Kind : uint8_t {
    run,         // kernels[index] on the pointers
    copy,        // bytes from the first pointer to the second
    stream_in,   // a slice of streams[index] to the first pointer
    stream_out,  // the first pointer to a slice of streams[index]
    all_reduce,  // collectives[index], across replicas
    loop,        // blocks[index], `count` times
    poison,      // fills `bytes` at the first pointer with NaN
  };

  Kind kind = Kind::run;
  int index = 0;
  int first_pointer = 0;  // into Program::offsets: operands, then results, then scratch
  int operand_count = 0;
  int result_count = 0;
  int label = 0;  // into Program::labels
  int64_t bytes = 0;
  int64_t count = 1;
};

// The instructions of one graph. Replicas run them independently up to the next one that needs all
// of them (an all_reduce, or a loop that has one inside).
struct Block {
  std::vector<Instruction> instructions;
  bool is_joint = false;  // has an instruction that needs all replicas
};

struct Stream {
  std::string name;
  bool is_input = true;
  ir::Type type;             // of one slice
  bool repeat = false;       // one slice for all steps
  int64_t per_iteration = 1;  // slices of one replica in one device iteration
};

struct State {
  std::string path;
  ir::Type type;
  std::string role;  // parameter | buffer | optimizer | rng | hyper | ""
  int64_t addr = 0;
};

struct Constant {
  int64_t addr = 0;
  std::vector<std::byte> bytes;
};

struct Collective {
  ir::DType dtype = ir::DType::f32;
  int64_t numel = 0;
  bool is_mean = false;
};

struct Program {
  std::vector<Block> blocks;  // the first one is `main`
  std::vector<ops::Run> kernels;
  std::vector<int64_t> offsets;  // -1: an absent operand
  std::vector<Stream> streams;   // sorted: inputs then outputs, each by name
  std::vector<State> states;     // sorted by path
  std::vector<Constant> constants;
  std::vector<Collective> collectives;
  std::vector<std::string> labels;  // the user's source of an instruction, for messages
  int64_t arena_bytes = 0;
  int64_t device_iterations = 1;
  int device_loop = -1;  // the block that is one device iteration; -1: `main` itself
  int threads = 1;       // the most that the kernels were prepared for
};

}  // namespace poptorch::assemble

// What runs: flat lists of instructions, one for each graph, nested by loops. Offsets are bytes
// into an arena; each replica has an arena of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ops/kernel.h"
#include "ops/work.h"
#include "support/settings/settings.h"

namespace poptorch::assemble {

struct Instruction {
  enum class Kind : uint8_t {
    run,         // kernels[index] on the pointers
    copy,        // bytes from the first pointer to the second
    stream_in,   // a slice of streams[index] to the first pointer
    stream_out,  // the first pointer to a slice of streams[index], if it is not there already
    bind,        // points what uses directs[index] to a slice of its stream
    collective,  // collectives[index], across replicas
    shard,       // the replica's part of collectives[index] from the first pointer to the second
    loop,        // blocks[index], `count` times, or as long as the bool at the first pointer holds
    poison,      // fills `bytes` at the first pointer with NaN
  };

  Kind kind = Kind::run;
  int index = 0;
  int first_pointer = 0;  // into Program::offsets: operands, then results, then scratch
  int operand_count = 0;
  int result_count = 0;
  int label = 0;  // into Program::labels
  int source = 0;  // into Program::sources
  int check = -1;  // into Program::checks
  int task = -1;   // of a program that is scheduled by tasks (schedule/task_order.h)
  int64_t bytes = 0;
  int64_t count = 1;
  bool is_conditional = false;  // a loop
};

// What is known of an instruction whose operands and results are looked at for floating-point
// exceptions (run/floats/float_check.h).
struct FloatCheck {
  enum class Family : uint8_t {
    other,
    sum,         // of two
    product,     // of two
    quotient,    // of two
    reciprocal,
    remainder,
    real_only,   // a function that is real in a part of the real numbers
    comparison,
    mean,        // divides by a count
    product_sum,
  };

  std::string op;  // of an opaque op: its overload
  Family family = Family::other;
  bool is_elementwise = false;
  bool is_root = false;      // a reciprocal that is real for positive numbers alone
  bool may_make_inf = false;  // an attribute is infinite: a constant of the user's
  bool may_make_nan = false;
  std::vector<std::optional<ir::Type>> operands;  // absent: not there, or not looked at
  std::vector<ir::Type> results;
  std::vector<bool> is_checked;  // of each result: it is of floats, and it is used
};

// The op that an instruction comes from, for profiles.
struct Source {
  std::string op;     // of an opaque op: its overload
  std::string phase;  // forward | backward | update
  std::string types;  // "f32[8,4], f32[4] -> f32[8]"
  int label = 0;      // into Program::labels
  std::string algorithm;  // that computes it, where there are several
  ops::Work work;         // of one run
};

// Bytes [begin, end) of an arena.
struct Extent {
  int64_t begin = 0;
  int64_t end = 0;
};

// The instructions of one graph. Replicas run them independently up to the next one that needs all
// of them (a collective, or a loop that has one inside).
struct Block {
  std::vector<Instruction> instructions;
  bool is_joint = false;  // has an instruction that needs all replicas
  std::vector<Extent> carried;  // of a loop's body: what a round hands on to the next
  // Of a body that advances the random state, once a round, and changes it by nothing else: where
  // the state lies. -1: others.
  int64_t rng_addr = -1;
};

struct Stream {
  std::string name;
  bool is_input = true;
  ir::Type type;             // of one slice
  bool repeat = false;       // one slice for all steps
  int64_t per_iteration = 1;  // slices of one replica in one device iteration
};

// A streamed value that is used where the host has it (assemble/direct_streams.h).
struct Direct {
  int stream = 0;
  int64_t addr = 0;  // where it lies when the step's slice is not returned
  struct Use {
    int pointer;     // into Program::offsets
    int64_t offset;  // bytes from the value's start: of a view
  };
  std::vector<Use> uses;
};

struct State {
  std::string path;
  ir::Type type;     // as the host has it
  int64_t shard = 0;  // elements that each replica has of it; 0: it has all
  std::string role;  // parameter | buffer | optimizer | rng | preprocessed | ""
  int64_t addr = 0;
  bool is_preprocess_input = false;  // what the block `preprocess` computes depends on it
  bool is_shareable = false;      // large, and only the host writes it
  bool is_channels_last = false;  // it lies in the arena with dimension 1 as the last one
  bool is_assigned = false;       // runs change it

  // In the memory of one replica.
  ir::Type own_type() const { return shard > 0 ? ir::Type{type.dtype, {shard}, {}} : type; }
  int64_t own_bytes() const { return own_type().bytes(); }
};

struct Constant {
  int64_t addr = 0;
  std::vector<std::byte> bytes;
};

// What replicas do together. Pointers of its instruction: operands, then results.
struct Collective {
  enum class Kind : uint8_t { all_reduce, reduce_scatter, all_gather, shard };

  Kind kind = Kind::all_reduce;
  ir::DType dtype = ir::DType::f32;
  std::vector<int64_t> numels;  // of each tensor, the whole of it
  bool is_mean = false;
  int64_t group_size = 0;  // replicas that reduce together, see run/replica_groups.h; 0: all
  bool is_orthogonal = false;
  int64_t shards = 1;  // parts that a tensor is cut into: the replicas
};

struct Program {
  Settings settings;  // that the kernels were prepared under, and run under
  std::vector<Block> blocks;  // the first one is `main`
  std::vector<ops::Run> kernels;
  std::vector<int64_t> offsets;  // -1: an absent operand
  std::vector<Stream> streams;   // sorted: inputs then outputs, each by name
  std::vector<Direct> directs;
  std::vector<State> states;     // sorted by path
  std::vector<Constant> constants;
  std::vector<Collective> collectives;
  std::vector<FloatCheck> checks;  // empty unless they were asked for
  std::vector<Source> sources;
  std::vector<std::string> labels;  // the user's source of an instruction, for messages
  int64_t arena_bytes = 0;
  std::vector<Extent> resident;  // what a run usually touches, in order
  std::vector<Extent> scratch;   // in order; may overlap with it
  std::vector<Extent> persistent;  // states and constants
  bool runs_user_code = false;     // functions and ops of the user's, which must run in order
  int64_t device_iterations = 1;
  int device_loop = -1;  // the block that is one device iteration; -1: `main` itself
  int micro_loop = -1;   // the block that is one micro-batch of several; -1: none
  int preprocess = -1;   // the block to run before `main` when states were written; -1: none
  int threads = 1;       // the most that the kernels were prepared for
};

}  // namespace poptorch::assemble

// Kernel of `fused`: the entries of the body one after the other, over blocks that stay in the
// first-level cache. What an entry makes for later ones lies in registers: pieces of memory that
// are used again once their value is dead.
#include "ops/fused.h"

#include <algorithm>
#include <unordered_map>

#include "kernels/elementwise.h"
#include "kernels/loop.h"
#include "kernels/random.h"
#include "support/error.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using ops::Args;
using ops::Call;
using ops::Prepared;
using simd::random_group;

constexpr int64_t register_bytes = 24 * 1024;  // of all registers: operands want cache too
constexpr int64_t largest_block = 1024;
constexpr size_t most_values = 128;

// Where a value of the body is while a block is computed.
struct Place {
  enum class Kind {
    whole,    // an operand with its elements in order
    strided,  // another operand: where it lies, or copied to a register
    state,    // the random state: no elements
    result,   // in the memory of a result
    local,    // in a register
  };
  Kind kind = Kind::local;
  size_t index = 0;  // of the operand or result
  int64_t item_bytes = 0;
  int64_t slot = -1;  // register
};

struct Step {
  Function function;
  std::array<size_t, 3> in{};  // values
  size_t out = 0;              // value
  int drop = -1;               // number of the dropout that it is
};

struct Drop {
  Dropout dropout;
  int64_t salt;
  size_t rng;  // operand
};

struct Strided {
  size_t value;  // and operand
  Loop loop;
};

// What the kernel runs.
struct Region {
  std::vector<Place> places;  // by value
  std::vector<Step> steps;
  std::vector<Drop> drops;
  std::vector<Strided> strided;
  int64_t numel = 0, slots = 0, widest = 1, block = 0, grain = 0;
};

class Builder {
 public:
  explicit Builder(const Call& call) : graph_(ops::body_graph(call.op)) {
    INTERNAL_CHECK(graph_.ops.size() <= most_values, "[fused] a region of ", graph_.ops.size(),
                   " values, at most ", most_values, " are supported");
    region_.numel = call.out().numel();
    for (const auto& op : graph_.ops) {
      number_.emplace(op->result(), number_.size());
      op->name == "input" ? add_operand(*op) : add_step(*op);
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      Place& place = region_.places[number_.at(graph_.outputs[i])];
      place.kind = Place::Kind::result;
      place.index = i;
    }
  }

  Region take() {
    assign_registers();
    choose_block();
    return std::move(region_);
  }

 private:
  void add_operand(const ir::Op& op) {
    const ir::Type& type = op.result()->type;
    const ir::Type like{type.dtype, graph_.ops.back()->result()->type.sizes, {}};
    const size_t value = region_.places.size();
    Place place{Place::Kind::whole, value, ir::item_bytes(type.dtype)};
    if (is_random_state(op)) {
      place.kind = Place::Kind::state;
    } else if (type != like) {
      place.kind = Place::Kind::strided;
      region_.strided.push_back({value, Loop(like, {&type})});
    }
    region_.places.push_back(place);
  }

  bool is_random_state(const ir::Op& input) const {
    return std::any_of(graph_.ops.begin(), graph_.ops.end(), [&](const auto& op) {
      return op->name == "dropout" && op->operands[1] == input.result();
    });
  }

  void add_step(const ir::Op& op) {
    ir::Op complete;
    complete.name = op.name;
    complete.operands = op.operands;
    complete.attrs = ops::complete_attrs(ops::op_def(op.name), op.attrs);
    complete.results.push_back(std::make_unique<ir::Value>(*op.result()));
    Step step;
    step.out = region_.places.size();
    if (op.name == "dropout") {
      step.drop = static_cast<int>(region_.drops.size());
      region_.drops.push_back({Dropout(complete.attrs.get_float("p")),
                               complete.attrs.get_int("salt"), number_.at(op.operands[1])});
      step.function.operand_count = 1;
      step.function.picoseconds = 1000;
    } else {
      step.function = function_of({complete, 1});
    }
    for (size_t i = 0; i < static_cast<size_t>(step.function.operand_count); ++i) {
      const auto operand = static_cast<size_t>(step.function.operands[i]);
      step.in[i] = number_.at(op.operands[operand]);
    }
    region_.steps.push_back(step);
    region_.places.push_back(
        {Place::Kind::local, 0, ir::item_bytes(op.result()->type.dtype)});
  }

  // Registers for strided operands, which are read before the first step, and for local values. A
  // step may write where it reads when the items are equally wide.
  void assign_registers() {
    std::vector<size_t> last_use(region_.places.size(), 0);
    for (size_t i = 0; i < region_.steps.size(); ++i) {
      const Step& step = region_.steps[i];
      for (int j = 0; j < step.function.operand_count; ++j) {
        last_use[step.in[static_cast<size_t>(j)]] = i;
      }
    }
    for (const Strided& operand : region_.strided) assign(operand.value);
    for (size_t i = 0; i < region_.steps.size(); ++i) {
      const Step& step = region_.steps[i];
      const int64_t item_bytes = region_.places[step.out].item_bytes;
      const auto release = [&](bool equally_wide) {
        for (int j = 0; j < step.function.operand_count; ++j) {
          Place& place = region_.places[step.in[static_cast<size_t>(j)]];
          const bool is_dead = last_use[step.in[static_cast<size_t>(j)]] == i;
          const bool holds = place.slot >= 0 && !is_free(place.slot);
          if (is_dead && holds && (place.item_bytes == item_bytes) == equally_wide) {
            free_.push_back(place.slot);
          }
        }
      };
      release(true);
      if (region_.places[step.out].kind == Place::Kind::local) assign(step.out);
      release(false);
    }
  }

  bool is_free(int64_t slot) const {
    return std::find(free_.begin(), free_.end(), slot) != free_.end();
  }

  void assign(size_t value) {
    Place& place = region_.places[value];
    region_.widest = std::max(region_.widest, place.item_bytes);
    if (free_.empty()) free_.push_back(region_.slots++);
    place.slot = free_.back();
    free_.pop_back();
  }

  // A block should end where the rows of strided operands end: then they are read where they lie.
  void choose_block() {
    const int64_t fits = register_bytes / std::max<int64_t>(region_.slots * region_.widest, 1);
    const int64_t most = std::clamp(fits / random_group * random_group, random_group,
                                    largest_block);
    region_.block = most;
    for (const Strided& operand : region_.strided) {
      const int64_t row = operand.loop.row();
      if (row == region_.numel || row % region_.block == 0) continue;
      for (int64_t block = most; block >= 2 * random_group; block -= random_group) {
        if (row % block != 0) continue;
        region_.block = block;
        break;
      }
    }
    int picoseconds = 0;
    for (const Step& step : region_.steps) picoseconds += step.function.picoseconds;
    const int64_t blocks = (grain_of(picoseconds) + region_.block - 1) / region_.block;
    region_.grain = blocks * region_.block;
  }

  ir::Graph graph_;
  std::unordered_map<const ir::Value*, size_t> number_;
  Region region_;
  std::vector<int64_t> free_;
};

// Runs a region on a part of the elements; each thread has its own.
class Runner {
 public:
  Runner(const Region& region, const Args& args) : region_(region), args_(args) {
    for (size_t i = 0; i < region.places.size(); ++i) {
      const Place& place = region.places[i];
      if (place.slot >= 0) first_[i] = registers_ + place.slot * region.block * region.widest;
      step_[i] = 1;
    }
    for (size_t i = 0; i < region.drops.size(); ++i) {
      const Drop& drop = region.drops[i];
      draws_[i] = draw_of(args.in<int32_t>(drop.rng), drop.salt);
    }
  }

  void run(int64_t at, int64_t n) {
    for (size_t i = 0; i < region_.places.size(); ++i) {
      const Place& place = region_.places[i];
      if (place.kind == Place::Kind::whole) {
        first_[i] = static_cast<std::byte*>(args_.inputs[place.index]) + at * place.item_bytes;
      } else if (place.kind == Place::Kind::result) {
        first_[i] = static_cast<std::byte*>(args_.outputs[place.index]) + at * place.item_bytes;
      }
    }
    for (const Strided& operand : region_.strided) {
      const Place& place = region_.places[operand.value];
      std::byte* copy = registers_ + place.slot * region_.block * region_.widest;
      const Loop::Elements from =
          operand.loop.read(0, args_.inputs[place.index], at, n, copy);
      // The strips do not write to where they read: only results and registers are written.
      first_[operand.value] = static_cast<std::byte*>(const_cast<void*>(from.first));
      step_[operand.value] = from.step;
    }
    for (const Step& step : region_.steps) step.drop < 0 ? apply(step, n) : drop(step, at, n);
  }

 private:
  void apply(const Step& step, int64_t n) {
    simd::Strip strip{first_[step.out], {}, {}, n, step.function.params.data()};
    for (size_t i = 0; i < static_cast<size_t>(step.function.operand_count); ++i) {
      strip.in[i] = first_[step.in[i]];
      strip.step[i] = step_[step.in[i]];
    }
    step.function.run(strip);
  }

  void drop(const Step& step, int64_t at, int64_t n) {
    const auto number = static_cast<size_t>(step.drop);
    const Dropout& dropout = region_.drops[number].dropout;
    const auto* x = reinterpret_cast<const float*>(first_[step.in[0]]);
    auto* out = reinterpret_cast<float*>(first_[step.out]);
    if (dropout.drops_all) {
      std::fill_n(out, n, 0.0f);
      return;
    }
    if (step_[step.in[0]] == 0) x = std::fill_n(out, n, *x) - n;
    table_.dropout(draws_[number], at, n, dropout.threshold, static_cast<float>(dropout.scale), x,
                   out);
  }

  const Region& region_;
  const Args& args_;
  const simd::RandomTable& table_ = simd::random_table();
  std::byte* first_[most_values];  // of the block's elements, by value
  int64_t step_[most_values];
  simd::Draw draws_[most_values];
  alignas(64) std::byte registers_[register_bytes];
};

Prepared fused(const Call& call) {
  return {[region = Builder(call).take()](const Args& args) {
    parallel_for(args.threads, region.numel, region.grain, [&](int64_t begin, int64_t end) {
      Runner runner(region, args);
      for (int64_t at = begin; at < end; at += region.block) {
        runner.run(at, std::min(region.block, end - at));
      }
    });
  }};
}

KERNEL("fused", fused)

}  // namespace

}  // namespace poptorch::kernels

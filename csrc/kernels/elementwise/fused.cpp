// Kernel of `fused`: the entries of the body one after the other, over blocks that stay in the
// first-level cache. What an entry makes for later ones lies in registers: pieces of memory that
// are used again once their value is dead. 16-bit floats are f32 there, rounded after each entry,
// so that a region has the bits of its ops one by one; operands are upcast when they are first
// read, a row that many blocks read (a bias, say) once.
#include "ops/families/fused.h"

#include <algorithm>
#include <unordered_map>

#include "kernels/elementwise/elementwise.h"
#include "kernels/float16.h"
#include "kernels/float16_blocks.h"
#include "kernels/loop.h"
#include "kernels/random/random.h"
#include "support/ceil_div.h"
#include "support/error.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using simd::random_group;

constexpr int64_t register_bytes = 24 * 1024;  // of all registers: operands take cache too
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
  // Of 16-bit floats, else nullptr.
  Upcast upcast = nullptr;
  Downcast downcast = nullptr;
  Round round = nullptr;

  Place(Kind where, size_t number, ir::DType dtype)
      : kind(where),
        index(number),
        item_bytes(ir::item_bytes(dtype)),
        upcast(upcast_from(dtype)),
        downcast(downcast_to(dtype)),
        round(round_to(dtype)) {}

  bool is_half() const { return upcast != nullptr; }
  bool wants_register() const { return kind == Kind::local || is_half(); }
  // A register that may hold one value for many elements, which a step reads again and again.
  bool is_read_again() const { return kind == Kind::strided; }
  int64_t register_item_bytes() const { return is_half() ? 4 : item_bytes; }
};

struct Step {
  enum class Kind {
    function,
    dropout,
    chance,  // rounds by chance
    upcast,    // a 16-bit float in memory to its register
    downcast,  // a register to the 16-bit float in memory
    round,   // a register in place, after what does not round itself
  };
  Kind kind = Kind::function;
  simd::Rounding rounding = simd::Rounding::none;
  Function function;           // for the others: only how many operands there are
  std::array<size_t, 3> in{};  // values
  size_t out = 0;              // value
  size_t draw = 0;             // number of the draw
};

// What draws random numbers.
struct Drawn {
  int64_t salt;
  size_t rng;  // operand
  Dropout dropout;
  ChanceRound round;  // nullptr: dropout
};

struct Strided {
  size_t value;  // and operand
  Loop loop;
  bool stays;  // has its register for itself: what a block finds there may be used by the next one
};

// What the kernel runs.
struct Region {
  std::vector<Place> places;  // by value
  std::vector<Step> steps;
  std::vector<Drawn> draws;
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
      op->name == ir::op::input ? add_operand(*op) : add_step(*op);
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
    Place place(Place::Kind::whole, value, type.dtype);
    if (is_random_state(op)) {
      place.kind = Place::Kind::state;
    } else if (type != like) {
      place.kind = Place::Kind::strided;
      region_.strided.push_back({value, Loop(like, {&type}), place.is_half() && may_stay()});
    }
    is_ready_.push_back(place.kind != Place::Kind::whole || !place.is_half());
    region_.places.push_back(place);
  }

  // Registers of others become smaller.
  bool may_stay() const {
    constexpr auto most = 4;
    return std::count_if(region_.strided.begin(), region_.strided.end(),
                         [](const Strided& operand) { return operand.stays; }) < most;
  }

  static bool rounds_by_chance(const ir::Op& op) {
    static const ir::OpName name("stochastic_cast");
    return op.name == name;
  }

  static bool is_drawing(const ir::Op& op) {
    return op.name == ir::op::dropout || rounds_by_chance(op);
  }

  bool is_random_state(const ir::Op& input) const {
    return std::any_of(graph_.ops.begin(), graph_.ops.end(), [&](const auto& op) {
      return is_drawing(*op) && op->operands[1] == input.result();
    });
  }

  void add_step(const ir::Op& op) {
    UpcastOp wide(op);
    wide.op.attrs = ops::complete_attrs(ops::op_def(op.name), wide.op.attrs);
    Step step;
    step.out = number_.at(op.result());
    if (is_drawing(op)) {
      const bool drops = op.name == ir::op::dropout;
      step.kind = drops ? Step::Kind::dropout : Step::Kind::chance;
      step.draw = region_.draws.size();
      region_.draws.push_back({wide.op.attrs.get_int(ir::attr::salt), number_.at(op.operands[1]),
                               Dropout(wide.op.attrs.get_float(ir::attr::p, 0.0)),
                               drops ? nullptr : chance_round_to(op.result()->type.dtype)});
      step.function.operand_count = 1;
      step.function.picoseconds = 1000;
    } else {
      step.function = function_of({wide.op, 1});
    }
    for (size_t i = 0; i < static_cast<size_t>(step.function.operand_count); ++i) {
      const auto operand = static_cast<size_t>(step.function.operands[i]);
      step.in[i] = number_.at(op.operands[operand]);
      if (!is_ready_[step.in[i]]) add_conversion(Step::Kind::upcast, step.in[i]);
    }
    region_.steps.push_back(step);
    add_value(op);
  }

  // The value that the last step makes.
  void add_value(const ir::Op& op) {
    const size_t value = region_.places.size();
    const auto output = std::find(graph_.outputs.begin(), graph_.outputs.end(), op.result());
    const bool is_result = output != graph_.outputs.end();
    const auto index = static_cast<size_t>(output - graph_.outputs.begin());
    const Place::Kind kind = is_result ? Place::Kind::result : Place::Kind::local;
    region_.places.emplace_back(kind, is_result ? index : 0, op.result()->type.dtype);
    is_ready_.push_back(true);
    if (!region_.places.back().is_half()) return;
    if (!is_result && rounds_by_chance(op)) return;  // it is rounded
    if (!is_result && region_.steps.back().function.rounds) {
      region_.steps.back().rounding = rounding_of(op.result()->type.dtype);
      return;
    }
    add_conversion(is_result ? Step::Kind::downcast : Step::Kind::round, value);
  }

  void add_conversion(Step::Kind kind, size_t value) {
    Step step;
    step.kind = kind;
    step.function.operand_count = 1;
    step.function.picoseconds = 100;
    step.in[0] = step.out = value;
    region_.steps.push_back(step);
    is_ready_[value] = kind != Step::Kind::downcast;
  }

  // Registers for strided operands, which are read before the first step, for local values and
  // for 16-bit floats. A step may write where it reads when it reads an element no more once it has
  // written that element: the items are equally wide, and each is read once.
  void assign_registers() {
    std::vector<size_t> last_use(region_.places.size(), 0);
    for (size_t i = 0; i < region_.steps.size(); ++i) {
      const Step& step = region_.steps[i];
      for (int j = 0; j < step.function.operand_count; ++j) {
        last_use[step.in[static_cast<size_t>(j)]] = i;
      }
    }
    for (const Strided& operand : region_.strided) {
      assign(operand.value);
      if (operand.stays) last_use[operand.value] = region_.steps.size();
    }
    for (size_t i = 0; i < region_.steps.size(); ++i) {
      const Step& step = region_.steps[i];
      const Place& out = region_.places[step.out];
      const auto release = [&](bool before_writing) {
        for (int j = 0; j < step.function.operand_count; ++j) {
          const Place& place = region_.places[step.in[static_cast<size_t>(j)]];
          const bool is_dead = last_use[step.in[static_cast<size_t>(j)]] == i;
          const bool holds = place.slot >= 0 && !is_free(place.slot);
          const bool is_equal = place.register_item_bytes() == out.register_item_bytes();
          const bool may_be_written = is_equal && !place.is_read_again();
          if (is_dead && holds && may_be_written == before_writing) free_.push_back(place.slot);
        }
      };
      release(true);
      if (out.wants_register() && out.slot < 0) assign(step.out);
      release(false);
    }
  }

  bool is_free(int64_t slot) const {
    return std::find(free_.begin(), free_.end(), slot) != free_.end();
  }

  void assign(size_t value) {
    Place& place = region_.places[value];
    region_.widest = std::max(region_.widest, place.register_item_bytes());
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
    const int64_t blocks = ceil_div(grain_of(picoseconds), region_.block);
    region_.grain = blocks * region_.block;
  }

  ir::Graph graph_;
  std::unordered_map<const ir::Value*, size_t> number_;
  Region region_;
  std::vector<bool> is_ready_;  // by value: steps can read it, it needs no upcast
  std::vector<int64_t> free_;
};

// Runs a region on a part of the elements; each thread has its own.
class Runner {
 public:
  Runner(const Region& region, const Args& args) : region_(region), args_(args) {
    for (size_t i = 0; i < region.places.size(); ++i) {
      const Place& place = region.places[i];
      if (place.slot >= 0) first_[i] = slot_of(place);
      step_[i] = 1;
    }
    for (size_t i = 0; i < region.draws.size(); ++i) {
      const Drawn& drawn = region.draws[i];
      draws_[i] = draw_of(args.in<int32_t>(drawn.rng), drawn.salt);
    }
  }

  void run(int64_t at, int64_t n) {
    for (size_t i = 0; i < region_.places.size(); ++i) {
      const Place& place = region_.places[i];
      std::byte*& first = place.is_half() ? half_[i] : first_[i];
      if (place.kind == Place::Kind::whole) {
        first = static_cast<std::byte*>(args_.inputs[place.index]) + at * place.item_bytes;
      } else if (place.kind == Place::Kind::result) {
        first = static_cast<std::byte*>(args_.outputs[place.index]) + at * place.item_bytes;
      }
    }
    for (const Strided& operand : region_.strided) read(operand, at, n);
    for (const Step& step : region_.steps) {
      switch (step.kind) {
        case Step::Kind::function: apply(step, n); break;
        case Step::Kind::dropout: drop(step, at, n); break;
        case Step::Kind::chance: round_by_chance(step, at, n); break;
        default: convert(step, n);
      }
    }
  }

 private:
  std::byte* slot_of(const Place& place) {
    return registers_ + place.slot * region_.block * region_.widest;
  }

  void read(const Strided& operand, int64_t at, int64_t n) {
    const Place& place = region_.places[operand.value];
    // 16-bit floats go to the end of the register: an upcast from there reads ahead of its writes.
    std::byte* slot = slot_of(place);
    std::byte* copy = slot + region_.block * (place.register_item_bytes() - place.item_bytes);
    const Loop::Elements from = operand.loop.read(0, args_.inputs[place.index], at, n, copy);
    step_[operand.value] = from.step;
    if (place.is_half()) {
      Held& before = held_[operand.value];
      if (operand.stays && from.first == before.first && n <= before.count) return;
      before = {from.first == copy ? nullptr : from.first, n};
      place.upcast(static_cast<const uint16_t*>(from.first), reinterpret_cast<float*>(slot),
                   from.step == 0 ? 1 : n);
      return;
    }
    // Inner loops do not write to where they read: only results and registers are written.
    first_[operand.value] = static_cast<std::byte*>(const_cast<void*>(from.first));
  }

  void convert(const Step& step, int64_t n) {
    const Place& place = region_.places[step.out];
    auto* wide = reinterpret_cast<float*>(first_[step.out]);
    auto* half = reinterpret_cast<uint16_t*>(half_[step.out]);
    switch (step.kind) {
      case Step::Kind::upcast: return place.upcast(half, wide, n);
      case Step::Kind::downcast: return place.downcast(wide, half, n);
      default: return place.round(wide, n);
    }
  }

  void apply(const Step& step, int64_t n) {
    simd::InnerLoop inner{first_[step.out], {}, {}, n, step.function.params.data(), step.rounding};
    for (size_t i = 0; i < static_cast<size_t>(step.function.operand_count); ++i) {
      inner.in[i] = first_[step.in[i]];
      inner.step[i] = step_[step.in[i]];
    }
    step.function.run(inner);
  }

  void drop(const Step& step, int64_t at, int64_t n) {
    const Dropout& dropout = region_.draws[step.draw].dropout;
    auto* out = reinterpret_cast<float*>(first_[step.out]);
    const float* x = each_element(step, n);
    if (dropout.drops_all) {
      std::transform(x, x + n, out, [](float number) { return number * 0.0f; });
      return;
    }
    const auto scale = static_cast<float>(dropout.scale);
    table_.dropout(draws_[step.draw], at, n, dropout.threshold, scale, x, out);
  }

  void round_by_chance(const Step& step, int64_t at, int64_t n) {
    region_.draws[step.draw].round(draws_[step.draw], at, n, each_element(step, n),
                                   reinterpret_cast<float*>(first_[step.out]));
  }

  // The operand of a step that draws; one number for all elements is written out first.
  const float* each_element(const Step& step, int64_t n) {
    const auto* x = reinterpret_cast<const float*>(first_[step.in[0]]);
    if (step_[step.in[0]] != 0) return x;
    return std::fill_n(reinterpret_cast<float*>(first_[step.out]), n, *x) - n;
  }

  // What the register of a 16-bit operand holds; copies are new each time.
  struct Held {
    const void* first = nullptr;
    int64_t count = 0;
  };

  const Region& region_;
  const Args& args_;
  const simd::RandomTable& table_ = simd::random_table();
  std::byte* first_[most_values];  // of the block's elements as steps see them, by value
  std::byte* half_[most_values];   // 16-bit floats in memory
  int64_t step_[most_values];
  Held held_[most_values];
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

KERNEL("fused", fused, true)

}  // namespace

}  // namespace poptorch::kernels

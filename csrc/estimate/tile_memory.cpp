#include "estimate/tile_memory.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "estimate/program_ops.h"
#include "support/mutant.h"

namespace poptorch::estimate {

namespace {

constexpr int64_t grain_bytes = 8;
// Shares of Cost::always_bytes, 77 bytes a step: state of 30 to 60 bytes for the vertices of a
// step, and 4 bytes of exchange code for each message.
constexpr double vertex_state_share = 45.0 / 77, exchange_share = 16.0 / 77;
// Before the partial sums in interleaved memory.
constexpr int64_t reserved_bytes = 24;

// Bytes of live values on each tile.
class Tiles {
 public:
  explicit Tiles(int64_t count) : extra_(static_cast<size_t>(count)) {}

  // Returns the tile after the last grain.
  int64_t add(int64_t bytes, int64_t begin, int64_t sign = 1) {
    const auto count = static_cast<int64_t>(extra_.size());
    const int64_t grains = (bytes + grain_bytes - 1) / grain_bytes;
    const int64_t rest = grains % count;
    each_ += sign * (grains / count) * grain_bytes;
    for (int64_t i = begin; i < begin + rest; ++i) {
      extra_[static_cast<size_t>(i < count ? i : i - count)] += sign * grain_bytes;
    }
    return (begin + rest) % count;
  }

  int64_t fullest() const { return each_ + *std::max_element(extra_.begin(), extra_.end()); }
  std::vector<int64_t> all() const {
    std::vector<int64_t> bytes = extra_;
    for (int64_t& one : bytes) one += each_;
    return bytes;
  }

 private:
  int64_t each_ = 0;
  std::vector<int64_t> extra_;
};

int64_t whole(double bytes) { return static_cast<int64_t>(std::ceil(bytes)); }

// What an op adds to the live values on a tile.
struct Own {
  int64_t below = 0;        // interleaved memory
  int64_t interleaved = 0;  // partial sums
};

// Highest address of a tile with these live bytes.
int64_t highest(int64_t live, const Own& own, const device::Target& target) {
  const int64_t below = live + own.below;
  if (own.interleaved == 0) return below;
  const int64_t start = target.interleaved_start;
  return start + reserved_bytes + own.interleaved + std::max<int64_t>(0, below - start);
}

// One IPU.
class Sweep {
 public:
  Sweep(const Holdings& holdings, int64_t ipu, CostTable& table)
      : target_(table.target()), has_dithering_(table.settings(ipu).has_dithering), table_(table),
        tiles_(device::compute_part(target_, table.settings(ipu)).tiles) {
    for (const Holding& one : holdings.all) {
      const bool is_here = one.ipu == ipu && one.category != Category::streaming;
      if (is_here) all_.push_back(&one);
      if (one.ipu == ipu && !is_here) streaming_ += one.bytes;
    }
    for (const Turn& turn : holdings.turns) {
      if (turn.ipu == ipu) turns_.push_back(turn);
    }
    for (size_t i = 0; i < all_.size(); ++i) {
      (all_[i]->is_always ? always_ : begins_).push_back(i);
    }
    ends_ = begins_;
    std::stable_sort(begins_.begin(), begins_.end(), [&](size_t a, size_t b) {
      return all_[a]->span.begin < all_[b]->span.begin;
    });
    std::stable_sort(ends_.begin(), ends_.end(), [&](size_t a, size_t b) {
      return all_[a]->span.end < all_[b]->span.end;
    });
  }

  IpuTiles run(const std::unordered_map<const ir::Op*, int64_t>& ids) {
    starts_.resize(all_.size());
    for (const size_t i : always_) place(i);
    add_programs(ids);
    keep({whole(program_.all()), 0});
    for (const Turn& turn : turns_) {
      move_to(turn.position);
      const auto id = ids.find(turn.op);
      if (id == ids.end()) continue;
      const Own own = own_of(*turn.op);
      const int64_t live = tiles_.fullest();
      const int64_t temporary = own.below + own.interleaved - whole(program_.all());
      out_.steps.push_back(
          {id->second, turn.op, live_, temporary, highest(live, own, target_)});
      positions_.push_back(turn.position);
      most_ = std::max(most_, live + own.below + own.interleaved);
      if (out_.steps.back().tile_bytes > out_.peak_bytes) {
        out_.peak = out_.steps.size() - 1;
        out_.temporary_bytes = temporary;
        keep(own);
      }
    }
    return finish();
  }

 private:
  // Results of convolutions begin on the first tile without dithering.
  bool begins_anywhere(const ir::Op& op) const {
    constexpr ir::AttrName dithering(std::string_view("dithering"));
    const bool is_convolution = op.name == ir::op::convolution ||
                                op.name == ir::op::convolution_backward ||
                                op.attrs.has(device::conv_sizes);
    const bool by_option = has_dithering_ && !MUTANT(ignores_dithering);
    if (MUTANT(ignores_own_dithering)) return !is_convolution || by_option;
    return !is_convolution || op.attrs.get_bool(dithering, by_option);
  }

  void place(size_t i) {
    starts_[i] = begins_anywhere(*all_[i]->op) ? next_ : 0;
    const int64_t after = tiles_.add(all_[i]->bytes, starts_[i]);
    if (starts_[i] == next_) next_ = after;
    live_[static_cast<size_t>(all_[i]->category)] += all_[i]->bytes;
  }

  void move_to(int position) {
    for (; begun_ < begins_.size() && all_[begins_[begun_]]->span.begin <= position; ++begun_) {
      place(begins_[begun_]);
    }
    for (; ended_ < ends_.size() && all_[ends_[ended_]]->span.end < position; ++ended_) {
      const size_t i = ends_[ended_];
      tiles_.add(all_[i]->bytes, starts_[i], -1);
      live_[static_cast<size_t>(all_[i]->category)] -= all_[i]->bytes;
    }
  }

  void add_programs(const std::unordered_map<const ir::Op*, int64_t>& ids) {
    std::unordered_set<const device::Cost*> known;  // equal ops have one
    double bytes = 0;
    for (const Turn& turn : turns_) {
      if (!ids.contains(turn.op)) continue;
      const device::Cost& cost = table_.of(*turn.op);
      if (known.insert(&cost).second || MUTANT(shares_no_code)) bytes += cost.always_bytes;
    }
    program_.vertex_state = bytes * vertex_state_share;
    program_.exchange = bytes * exchange_share;
    program_.code = bytes - program_.vertex_state - program_.exchange;
  }

  Own own_of(const ir::Op& op) {
    const device::Cost& cost = table_.of(op);
    const int64_t interleaved = whole(cost.interleaved_bytes);
    return {whole(program_.all()) + whole(cost.temporary_bytes) - interleaved, interleaved};
  }

  // The tiles as they are now, as the peak.
  void keep(const Own& own) {
    out_.bytes = live_;
    out_.by_tile = tiles_.all();
    const int64_t sum = std::accumulate(out_.by_tile.begin(), out_.by_tile.end(), int64_t{0});
    const auto count = static_cast<int64_t>(out_.by_tile.size());
    out_.mean_bytes = sum / count + own.below + own.interleaved;
    for (int64_t& bytes : out_.by_tile) bytes = highest(bytes, own, target_);
    out_.peak_bytes = *std::max_element(out_.by_tile.begin(), out_.by_tile.end());
    most_ = std::max(most_, tiles_.fullest() + own.below + own.interleaved);
  }

  IpuTiles finish() {
    out_.program = program_;
    out_.peak_without_gaps = most_;
    out_.bytes[static_cast<size_t>(Category::streaming)] = streaming_;
    const int64_t all = out_.mean_bytes * static_cast<int64_t>(out_.by_tile.size());
    for (const Holding* one : all_) {
      if (one->bytes * 1000 >= all) add_value(*one);
    }
    std::stable_sort(out_.values.begin(), out_.values.end(),
                     [](const LiveValue& a, const LiveValue& b) { return a.bytes > b.bytes; });
    return std::move(out_);
  }

  void add_value(const Holding& one) {
    const auto begin = positions_.begin(), end = positions_.end();
    const auto first = one.is_always ? begin : std::lower_bound(begin, end, one.span.begin);
    const auto after = one.is_always ? end : std::upper_bound(begin, end, one.span.end);
    // An IPU without ops has what is always live.
    if (first >= after && !positions_.empty()) return;
    const auto number = [&](auto place) { return static_cast<size_t>(place - begin); };
    out_.values.push_back({one.name, one.category, one.bytes, one.op, number(first),
                           std::max<size_t>(number(after), 1) - 1});
  }

  const device::Target& target_;
  const bool has_dithering_;
  CostTable& table_;
  Tiles tiles_;
  std::vector<const Holding*> all_;
  std::vector<size_t> always_, begins_, ends_;  // the last two by time
  size_t begun_ = 0, ended_ = 0;
  std::vector<int64_t> starts_;  // tiles
  int64_t next_ = 0;
  int64_t streaming_ = 0;
  int64_t most_ = 0;
  CategoryBytes live_ = {};
  ProgramBytes program_;
  std::vector<Turn> turns_;
  std::vector<int> positions_;  // of the steps
  IpuTiles out_;
};

}  // namespace

std::vector<IpuTiles> tile_memory(ir::Module& module, CostTable& table) {
  std::unordered_map<const ir::Op*, int64_t> ids;
  for (const ProgramOp& one : program_ops(module)) ids.emplace(one.op, one.id);
  const Holdings holdings = find_holdings(module);
  std::vector<IpuTiles> all;
  for (int64_t ipu = 0; ipu < holdings.ipus; ++ipu) {
    all.push_back(Sweep(holdings, ipu, table).run(ids));
  }
  return all;
}

}  // namespace poptorch::estimate

#include "device/cost/multi_conv.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "support/mutant.h"

namespace poptorch::device {

namespace {

constexpr ir::AttrName name_cycle_back_off{std::string_view("cycle_back_off")};
constexpr ir::AttrName name_multi_conv{std::string_view("multi_conv")};
constexpr ir::AttrName name_plan_type{std::string_view("plan_type")};
constexpr ir::AttrName name_reserved_tiles{std::string_view("reserved_tiles")};

// Tiles are shared out in this many parts of an IPU: fewer plans to look for.
constexpr int64_t parts = 16;
constexpr int halvings = 6;
// Defaults of the vendor's libraries.
constexpr int64_t reserved_tiles = 50;
constexpr double back_off = 0.1;

// One convolution, planned for parts of an IPU.
class Member {
 public:
  Member(ir::Op* op, const Target& whole, const Settings& settings)
      : op_(op), target_(whole), settings_(settings) {}

  int64_t tiles(int64_t part) const {
    const int64_t reserved = MUTANT(ignores_reserved_tiles)
                                 ? reserved_tiles
                                 : op_->attrs.get_int(name_reserved_tiles, reserved_tiles);
    return std::max({target_.tiles * part / parts, reserved, int64_t{1}});
  }

  double cycles(int64_t part) {
    const auto [at, is_new] = cycles_.try_emplace(part);
    if (is_new) {
      Target some = target_;
      some.tiles = std::min(tiles(part), target_.tiles);
      at->second = cost_of(*op_, some, settings_).cycles();
    }
    return at->second;
  }

  // The least part that is as fast; none if the whole IPU is not.
  std::optional<int64_t> least(double most_cycles) {
    if (cycles(parts) > most_cycles) return std::nullopt;
    int64_t low = 1;
    for (int64_t high = parts; low < high;) {
      const int64_t middle = (low + high) / 2;
      if (cycles(middle) <= most_cycles) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  ir::Op* op() const { return op_; }

 private:
  ir::Op* op_;
  Target target_;
  Settings settings_;
  std::map<int64_t, double> cycles_;
};

using Shares = std::vector<int64_t>;

// The least parts with which all take so long at most; none if there are not as many tiles.
std::optional<Shares> shares_for(std::vector<Member>& members, double most_cycles, int64_t tiles) {
  Shares out;
  for (Member& member : members) {
    const std::optional<int64_t> part = member.least(most_cycles);
    if (!part) return std::nullopt;
    tiles -= member.tiles(*part);
    out.push_back(*part);
  }
  return tiles < 0 ? std::nullopt : std::optional(out);
}

// The fastest parallel plan, then the one of fewest tiles that takes little longer.
void share(const std::vector<ir::Op*>& ops, const Target& target, const Settings& settings) {
  std::vector<Member> members;
  double serial = 0, low = 0;
  for (ir::Op* op : ops) {
    members.emplace_back(op, target, settings);
    const double alone = members.back().cycles(parts);
    serial += alone;
    low = std::max(low, alone);
  }
  double high = serial;
  if (!shares_for(members, high, target.tiles)) return;
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (shares_for(members, middle, target.tiles) ? high : low) = middle;
  }
  const double share = MUTANT(ignores_back_off)
                           ? back_off
                           : ops[0]->attrs.get_float(name_cycle_back_off, back_off);
  const double allowed = high * (1 + share);
  const Shares found = *shares_for(members, allowed, target.tiles);
  double slowest = 0, sum = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    slowest = std::max(slowest, members[i].cycles(found[i]));
    sum += members[i].cycles(found[i]);
  }
  if (slowest >= serial) return;
  for (size_t i = 0; i < members.size(); ++i) {
    ir::Attrs& attrs = members[i].op()->attrs;
    attrs.set(multi_conv_tiles, members[i].tiles(found[i]));
    attrs.set(multi_conv_cycles, members[i].cycles(found[i]) * slowest / sum);
  }
}

// Number, part of the step, IPU, and checkpoint of what is recomputed.
using Key = std::tuple<int64_t, std::string, int64_t, std::string>;

std::string text_of(const ir::Op& op, ir::AttrName name) {
  const ir::Attr* attr = op.attrs.find(name);
  return attr == nullptr ? "" : attr->text();
}

bool is_parallel(const ir::Op& op) {
  const ir::Attr* plan = op.attrs.find(name_plan_type);
  const bool is_any = plan == nullptr || MUTANT(ignores_plan_type);
  return op.attrs.has(name_multi_conv) && (is_any || *plan == ir::Attr("parallel"));
}

// Members that none of the others needs, in the order of the graph.
std::vector<std::vector<ir::Op*>> independent(const ir::Graph& graph,
                                              const std::vector<ir::Op*>& members) {
  std::vector<std::vector<ir::Op*>> out(1);
  const std::unordered_set<const ir::Op*> all(members.begin(), members.end());
  std::unordered_set<const ir::Value*> after;
  for (const auto& op : graph.ops) {
    const bool depends = std::any_of(op->operands.begin(), op->operands.end(),
                                     [&](const ir::Value* x) { return after.contains(x); });
    const bool is_member = all.contains(op.get());
    if (is_member && depends) {
      out.emplace_back();
      after.clear();
    }
    if (is_member) out.back().push_back(op.get());
    if (!is_member && !depends) continue;
    for (const auto& result : op->results) after.insert(result.get());
  }
  return out;
}

}  // namespace

void share_tiles(ir::Module& module, const Target& target,
                 const std::function<Settings(int64_t ipu)>& settings_of) {
  for (const auto& graph : module.graphs) {
    std::map<Key, std::vector<ir::Op*>> groups;
    for (const auto& op : graph->ops) {
      if (!is_parallel(*op)) continue;
      groups[{op->attrs.get_int(name_multi_conv), text_of(*op, ir::attr::part),
              op->attrs.get_int(ir::attr::ipu, 0), text_of(*op, ir::attr::recompute)}]
          .push_back(op.get());
    }
    for (const auto& [key, members] : groups) {
      Settings settings = settings_of(std::get<2>(key));
      const Target part = compute_part(target, settings);
      settings.io_tiles = 0;
      for (const std::vector<ir::Op*>& ops : independent(*graph, members)) {
        if (ops.size() > 1) share(ops, part, settings);
      }
    }
  }
}

}  // namespace poptorch::device

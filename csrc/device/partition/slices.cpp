#include "device/partition/slices.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "device/partition/plan.h"
#include "support/ceil_div.h"

namespace poptorch::device {

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

// From 3,600 measurements on hardware (docs/internals/device_model.md): the cycles of the vertices
// outside of their loops, the exchange of pieces that no plan of the exchange makes larger, and its
// set-up.
constexpr double look_up_factor = 1.22;
constexpr double second_exchange_factor = 2.5;
// Copies of pieces: an element of 2 bytes takes as long as one of 4.
constexpr double output_copy_cycles = 1.28;   // an element
constexpr double second_stage_cycles = 2300;  // set-up of an exchange of many small pieces
constexpr double uneven_cycles = 1970;        // the same where parts of the table differ
constexpr double update_exchange_factor = 1.2;
constexpr double update_output_cycles = 4.8;  // an element
constexpr double update_input_cycles = 3;     // an element

double as_double(int64_t n) { return static_cast<double>(n); }

struct Choice {
  int64_t elements, rows, lookups;  // on one tile
  int64_t element_splits, row_splits, lookup_splits, serial;
};

double cycles_of(const SlicePlan& plan, const Target& target) {
  return plan.compute + plan.exchange + plan.steps * target.step_cycles;
}

class Planner {
 public:
  Planner(const SliceProblem& problem, const Target& target) : p_(problem), target_(target) {}

  SlicePlan best(double limit) const {
    SlicePlan found;
    double least = infinite;
    const int64_t grain = std::max<int64_t>(1, 8 / p_.item_bytes);
    const int64_t parts = std::max<int64_t>(1, ceil_div(p_.elements, grain));
    for (int64_t serial = 1; serial <= 8 && serial <= p_.lookups; serial *= 2) {
      for (int64_t h = 1; h <= std::min(parts, target_.tiles); ++h) {
        const int64_t element_parts = ceil_div(parts, h);
        if (h > 1 && element_parts == ceil_div(parts, h - 1)) continue;
        const int64_t elements = std::min(p_.elements, element_parts * grain);
        search_rows({elements, 0, 0, h, 1, 1, serial}, limit, least, found);
      }
    }
    return found;
  }

 private:
  void search_rows(Choice c, double limit, double& least, SlicePlan& found) const {
    const int64_t most =
        std::min(target_.tiles / c.element_splits, std::max<int64_t>(1, p_.rows / 2));
    for (int64_t s = 1; s <= most; s = next(s)) {
      c.row_splits = s;
      c.rows = ceil_div(p_.rows, s);
      if (s > 1 && c.rows == ceil_div(p_.rows, s - 1)) continue;
      const int64_t lookups = ceil_div(p_.lookups, c.serial);
      const int64_t rest = std::min(target_.tiles / c.element_splits / s, lookups);
      for (int64_t l = 1; l <= rest; l = next(l)) {
        c.lookup_splits = l;
        c.lookups = ceil_div(lookups, l);
        if (l > 1 && c.lookups == ceil_div(lookups, l - 1)) continue;
        consider(c, limit, least, found);
      }
    }
  }

  static int64_t next(int64_t n) { return n < 64 ? n + 1 : n + n / 64; }

  void consider(const Choice& c, double limit, double& least, SlicePlan& found) const {
    SlicePlan plan{c.element_splits, c.row_splits, c.lookup_splits, c.serial};
    const double planned = p_.is_update ? price_update(c, plan) : price_look_up(c, plan);
    if (plan.temporary_bytes > limit || planned >= least) return;
    least = planned;
    found = plan;
  }

  double row_bytes(const Choice& c) const { return as_double(c.elements * p_.item_bytes); }

  // Bytes of the part of the table on a tile beyond those of a table that is spread evenly.
  double excess_bytes(const Choice& c) const {
    const double even = as_double(p_.rows * p_.elements * p_.item_bytes) / as_double(target_.tiles);
    return std::max(0.0, as_double(c.rows) * row_bytes(c) - even);
  }

  double look_up_cycles(double rows, double lookups, const Choice& c) const {
    const auto workers = as_double(target_.workers);
    const double each = std::ceil(lookups / workers);
    const double share = std::min(1.0, rows / as_double(p_.rows));
    const double hits = std::ceil(each * share);
    const double words = std::ceil(row_bytes(c) / 8);
    return (30 + hits * (19 + 2 * words) + (each - hits) * 8) * workers;
  }

  double price_look_up(const Choice& c, SlicePlan& plan) const {
    const double rate = target_.exchange_bytes;
    const double table = as_double(c.rows) * row_bytes(c);
    const double first = c.lookup_splits > 1 ? table / rate : 0;
    const double excess = c.lookup_splits > 1 ? 0 : excess_bytes(c) / rate;
    const auto lookups = as_double(c.lookups);
    double compute = look_up_cycles(as_double(c.rows), lookups, c);
    double second = 0;
    double set_up = 0;
    const double part = std::ceil(lookups / as_double(c.row_splits));
    if (c.row_splits > 1) {
      const double gathered = as_double(c.row_splits) * part;
      second = gathered * row_bytes(c) / rate;
      compute += look_up_cycles(as_double(p_.rows), part, c);
      set_up = second_stage_cycles + (p_.rows % c.row_splits == 0 ? 0 : uneven_cycles);
    }
    const auto serial = as_double(c.serial);
    const double output = as_double(p_.lookups * p_.elements) / as_double(target_.tiles);
    plan.compute = look_up_factor * compute * serial + output_copy_cycles * output;
    plan.exchange = 1.1 * first + (second_exchange_factor * second + set_up) * serial;
    plan.steps = 1 + (c.row_splits > 1 ? 1 : 0) + serial;
    const double gathered = c.row_splits > 1 ? as_double(c.row_splits) * part * row_bytes(c) : 0;
    plan.temporary_bytes = (c.lookup_splits > 1 ? table : 0) + 4 * lookups +
                           lookups * row_bytes(c) + 2 * gathered;
    return first + excess + (compute + second) * serial;
  }

  // Every worker looks at all updates and makes those of its own rows.
  double update_cycles(const Choice& c) const {
    const auto lookups = as_double(c.lookups);
    const double own = as_double(ceil_div(c.rows, target_.workers)) / as_double(p_.rows);
    const double hits = std::ceil(lookups * std::min(1.0, own));
    const double words = std::ceil(row_bytes(c) / 8);
    const double hit = 10 + 0.75 * (words - 1);
    return (38 + hits * hit + (lookups - hits) * 7) * as_double(target_.workers);
  }

  double price_update(const Choice& c, SlicePlan& plan) const {
    const double rate = target_.exchange_bytes;
    const double table = as_double(c.rows) * row_bytes(c);
    const auto lookups = as_double(c.lookups);
    const double vertex = update_cycles(c);
    // Updates lie where they are needed unless several tiles have parts of the rows.
    const double updates = c.row_splits > 1 ? lookups * (row_bytes(c) + 4) / rate : 0;
    double rest = 0;
    if (c.lookup_splits > 1) {
      const double outputs = std::ceil(table / as_double(p_.item_bytes * c.lookup_splits));
      rest += table / 8;                        // zeros
      rest += table / rate;                     // to the tiles that sum
      rest += 6 * std::ceil(table / 16);        // sums
      rest += outputs * 1.5 + 60;               // added to the table
    }
    if (c.lookup_splits == 1) rest += 2 * excess_bytes(c) / rate;  // there and back
    const auto serial = as_double(c.serial);
    const auto tiles = as_double(target_.tiles);
    const double input = as_double(p_.lookups * p_.elements) / tiles;
    const double output = as_double(p_.rows * p_.elements) / tiles;
    plan.compute = vertex * serial + 1.2 * rest + update_output_cycles * output +
                   update_input_cycles * input;
    plan.exchange = update_exchange_factor * updates * serial;
    plan.steps = 2 + serial + (c.lookup_splits > 1 ? 1 : 0) + (c.row_splits > 1 ? 1 : 0);
    plan.temporary_bytes = table + lookups * (row_bytes(c) + 4);
    return (vertex + updates) * serial + rest;
  }

  const SliceProblem& p_;
  const Target& target_;
};

}  // namespace

// The planner estimates other cycles than the plan takes. Its order of plans holds on hardware: one
// that it takes only for want of memory is not faster than those that need more.
SlicePlan plan_of(const SliceProblem& problem, const Target& target, double memory_proportion) {
  const Planner planner(problem, target);
  const auto tile = as_double(target.tile_bytes);
  SlicePlan plan;
  double least = 0;  // cycles
  for (double part = std::max(memory_proportion, least_proportion); part <= 2; part *= 2) {
    const SlicePlan found = planner.best(part * tile);
    if (found.steps == 0) continue;
    if (plan.steps == 0) plan = found;
    least = std::max(least, cycles_of(found, target));
  }
  if (plan.steps == 0) plan = planner.best(infinite);
  plan.exchange += std::max(0.0, least - cycles_of(plan, target));
  return plan;
}

}  // namespace poptorch::device

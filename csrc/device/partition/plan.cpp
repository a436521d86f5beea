#include "device/partition/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "support/ceil_div.h"

namespace poptorch::device {

namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
constexpr int64_t most_serial = 256;

double as_double(int64_t n) { return static_cast<double>(n); }

// The smallest split for each distinct size of the largest part; few of the many above 64.
std::vector<int64_t> splits_of(int64_t n, int64_t most) {
  std::vector<int64_t> out;
  int64_t size_before = 0;
  for (int64_t split = 1; split <= std::min(n, most);) {
    const int64_t size = ceil_div(n, split);
    if (size != size_before) out.push_back(split);
    size_before = size;
    split = split < 64 ? split + 1 : std::max(split + 1, split + split / 64);
  }
  return out;
}

// Copy of elements into another order: their exchange and the copy on the tile. A piece of 2 bytes
// takes as long as one of 4.
double rearrange_cycles(double elements, double item_bytes, bool is_aligned, const Target& target) {
  const double each = std::ceil(elements / as_double(target.tiles));
  return each * (is_aligned ? 5.0 / 4 : 5.0 / 3) + each * item_bytes / target.exchange_bytes;
}

double elements_of_inputs(const Problem& p) {
  return as_double(p.batch * p.groups * p.in_channels) *
         as_double(p.field[0].input * p.field[1].input);
}

double elements_of_weights(const Problem& p) {
  return as_double(p.groups * p.in_channels * p.out_channels) *
         as_double(p.field[0].kernel * p.field[1].kernel);
}

double elements_of_output(const Problem& p) {
  return as_double(p.batch * p.groups * p.out_channels) *
         as_double(p.field[0].output * p.field[1].output);
}

// A form computed by a method: what does not depend on the partition.
struct Setting {
  const Form& form;
  const Method& method;
  const Target& target;
  double limit = 0;  // bytes that may be temporary

  const Problem& problem() const { return form.problem; }
  double item_bytes() const { return as_double(problem().item_bytes); }
};

// Bytes and cycles of putting operands and result into the order of the method.
struct Rearrangement {
  double steps = 0;
  double cycles = 0;
  double bytes = 0;
};

Rearrangement rearrangement_of(const Setting& s) {
  const Problem& p = s.problem();
  const bool is_free = p.is_product && !p.is_layer && !s.form.rearranges_weights;
  const bool pads_in = !is_free && p.in_channels % s.method.in_group != 0;
  const bool pads_out = !is_free && p.out_channels % s.method.out_group != 0;
  const int64_t vector = p.item_bytes == 4 ? 2 : 4;
  const bool is_aligned = p.in_channels % vector == 0 && p.out_channels % vector == 0;
  Rearrangement out;
  const auto add = [&](bool is_needed, double elements) {
    if (!is_needed) return;
    ++out.steps;
    out.cycles += rearrange_cycles(elements, s.item_bytes(), is_aligned, s.target);
    const double each = std::ceil(elements / as_double(s.target.tiles));
    out.bytes = std::max(out.bytes, 2 * each * s.item_bytes());
  };
  add(s.form.rearranges_inputs || pads_in, elements_of_inputs(p));
  add(s.form.rearranges_weights || pads_in || pads_out, elements_of_weights(p));
  add(s.form.rearranges_output || pads_out, elements_of_output(p));
  if (p.is_layer && !p.is_product && s.method.vertex == Vertex::amp && s.method.out_group != 16) {
    const double each = elements_of_output(p) * s.item_bytes() / as_double(s.target.tiles);
    out.cycles += each * 1.25 / 8;
  }
  return out;
}

// The least number of stages that sums so many partial results at once.
double stages_for(double depth) { return depth >= 125 ? 3 : depth >= 16 ? 2 : 1; }

struct Reduction {
  double compute = 0;
  double exchange = 0;
};

Reduction reduction_of(double partials, double depth, const Setting& s) {
  Reduction out;
  const double bytes = as_double(s.method.partial_bytes);
  out.exchange = partials * bytes / s.target.exchange_bytes;
  if (depth == 1) return out;
  const double stages = stages_for(depth);
  double elements = partials;
  double left = depth;
  for (double stage = stages; stage > 0; --stage) {
    const double factor = stage == 1 ? left : std::ceil(std::pow(left, 1 / stage));
    const double outputs = std::ceil(elements / factor);
    out.compute += reduce_cycles(outputs, factor, bytes, s.target);
    if (stage > 1) out.exchange += outputs * bytes / s.target.exchange_bytes;
    elements = outputs;
    left = std::ceil(left / factor);
  }
  return out;
}

Share share_of(const Setting& s, const Splits& x) {
  const Problem& p = s.problem();
  const Method& m = s.method;
  Share out;
  out.conv_groups = ceil_div(ceil_div(p.groups, m.conv_group), x.groups);
  out.in_groups = ceil_div(ceil_div(ceil_div(p.in_channels, x.serial_in), m.in_group), x.in);
  out.out_groups = ceil_div(ceil_div(ceil_div(p.out_channels, x.serial_out), m.out_group), x.out);
  out.batch = ceil_div(p.batch, x.batch);
  out.outer = ceil_div(p.field[0].output, x.outer);
  out.inner = ceil_div(p.field[1].output, x.inner);
  out.kernel_outer = ceil_div(p.field[0].kernel, x.kernel);
  out.kernel_inner = p.field[1].kernel;
  return out;
}

class Search {
 public:
  explicit Search(const Setting& setting, Plan& best)
      : s_(setting), best_(best), rearrangement_(rearrangement_of(setting)) {}

  void run() {
    const Problem& p = s_.problem();
    if (rearrangement_.bytes > s_.limit) return;
    for (int64_t parts = 1; parts <= most_serial && parts <= p.out_channels; parts *= 2) {
      search({.serial_out = parts});
    }
    for (int64_t parts = 2; parts <= most_serial && parts <= p.in_channels; parts *= 2) {
      search({.serial_in = parts});
    }
  }

 private:
  // Channels and groups first: a bound over the rest often shows that no plan is better.
  void search(Splits x) {
    const Problem& p = s_.problem();
    const Method& m = s_.method;
    const int64_t tiles = s_.target.tiles;
    const auto groups = splits_of(ceil_div(p.groups, m.conv_group), tiles);
    const auto outs =
        splits_of(ceil_div(ceil_div(p.out_channels, x.serial_out), m.out_group), tiles);
    const auto ins = splits_of(ceil_div(ceil_div(p.in_channels, x.serial_in), m.in_group), tiles);
    const auto kernels = splits_of(p.field[0].kernel, tiles);
    for (const int64_t g : groups) {
      for (const int64_t out : outs) {
        if (g * out > tiles) break;
        for (const int64_t in : ins) {
          if (g * out * in > tiles) break;
          for (const int64_t kernel : kernels) {
            if (g * out * in * kernel > tiles) break;
            x.groups = g, x.out = out, x.in = in, x.kernel = kernel;
            if (bound(x) < best_.planned) search_fields(x);
          }
        }
      }
    }
  }

  // No partition of batch and fields is cheaper.
  double bound(const Splits& x) const {
    const Problem& p = s_.problem();
    const Share share = share_of(s_, x);
    const int64_t rest = s_.target.tiles / x.tiles();
    const double outputs = std::ceil(as_double(p.batch * p.field[0].output * p.field[1].output) /
                                     as_double(rest));
    const double positions = as_double(share.kernel_outer * share.kernel_inner) /
                             as_double(p.field[0].input_dilation * p.field[1].input_dilation);
    const double groups = as_double(share.conv_groups * share.out_groups);
    const double height = s_.method.vertex == Vertex::amp ? 4 : 1;
    const double work = groups * as_double(share.in_groups) * outputs *
                        std::max(positions / height, 1.0 / height) *
                        s_.method.row_cycles(p.item_bytes);
    const double partials = groups * as_double(s_.method.conv_group * s_.method.out_group) *
                            outputs * as_double(s_.method.partial_bytes);
    const double each = work + partials / s_.target.exchange_bytes;
    return each * as_double(x.serial()) + rearrangement_.cycles;
  }

  void search_fields(Splits x) {
    const Problem& p = s_.problem();
    const int64_t rest = s_.target.tiles / x.tiles();
    for (const int64_t batch : splits_of(p.batch, rest)) {
      for (const int64_t outer : splits_of(p.field[0].output, rest / batch)) {
        for (const int64_t inner : splits_of(p.field[1].output, rest / batch / outer)) {
          x.batch = batch, x.outer = outer, x.inner = inner;
          consider(x);
        }
      }
    }
  }

  void consider(const Splits& x) {
    const Problem& p = s_.problem();
    const Method& m = s_.method;
    const Share share = share_of(s_, x);
    const double in = as_double(share.conv_groups * m.conv_group) *
                      as_double(share.in_groups * m.in_group);
    const double out = as_double(share.conv_groups * m.conv_group) *
                       as_double(share.out_groups * m.out_group);
    const double inputs = in * as_double(share.batch) *
                          as_double(p.field[0].inputs_of(share.outer, share.kernel_outer) *
                                    p.field[1].inputs_of(share.inner, share.kernel_inner));
    const double weights = in * as_double(share.out_groups * m.out_group) *
                           as_double(share.kernel_outer * share.kernel_inner);
    const double partials = out * as_double(share.batch * share.outer * share.inner);
    Plan plan{.form = s_.form, .method = m, .splits = x};
    plan.input_bytes = inputs * s_.item_bytes();
    plan.weight_bytes = weights * s_.item_bytes();
    plan.partial_bytes = partials * as_double(m.partial_bytes);
    plan.temporary_bytes = temporary_bytes(plan, x);
    if (plan.temporary_bytes > s_.limit) return;
    price(plan, share, partials);
    if (plan.planned < best_.planned) best_ = plan;
  }

  double temporary_bytes(const Plan& plan, const Splits& x) const {
    double bytes = plan.input_bytes + plan.weight_bytes + plan.partial_bytes;
    if (s_.method.vertex == Vertex::slic) bytes += plan.partial_bytes;
    bytes = std::max(bytes, rearrangement_.bytes);
    if (x.serial_in > 1) bytes += plan.partial_bytes / as_double(x.depth());
    return bytes;
  }

  void price(Plan& plan, const Share& share, double partials) const {
    const Splits& x = plan.splits;
    const double rate = s_.target.exchange_bytes;
    const double rows = as_double(x.batch * x.outer * x.inner);
    double exchange = plan.input_bytes * (1 - 1 / as_double(x.out)) / rate;
    if (x.out % 2 == 0) exchange /= 2;
    exchange += plan.weight_bytes * (1 - 1 / rows) / rate;
    double compute = vertex_cycles(s_.method, share, s_.problem(), s_.target);
    const Reduction reduction = reduction_of(partials, as_double(x.depth()), s_);
    compute += reduction.compute;
    if (x.depth() == 1 && s_.method.partial_bytes != s_.problem().item_bytes) {
      compute += 12 + 6 * (37 + 2 * std::ceil(partials / 4 / as_double(s_.target.workers)));
    }
    const auto serial = as_double(x.serial());
    const double reductions = x.depth() == 1 ? 0 : stages_for(as_double(x.depth()));
    const double casts = s_.method.partial_bytes == s_.problem().item_bytes ? 0 : 1;
    plan.steps = (1 + (x.depth() == 1 ? casts : reductions)) * serial + rearrangement_.steps;
    if (x.serial_in > 1) {
      compute += 50 + 3 * std::ceil(partials / as_double(x.depth()) / 2);
    }
    plan.compute = compute * serial;
    plan.rearrange = rearrangement_.cycles;
    plan.planned = (compute + exchange + reduction.exchange) * serial + plan.rearrange;
    plan.exchange = (exchange + (x.depth() == 1 ? 0 : reduction.exchange)) * serial;
  }

  const Setting& s_;
  Plan& best_;
  Rearrangement rearrangement_;
};

Plan search_plan(const Problem& problem, const Target& target, double limit) {
  Plan best;
  best.planned = infinite;
  const std::vector<Form> forms = forms_of(problem);
  for (const Form& form : forms) {
    for (Method method : methods_for(form.problem, target)) {
      Search({form, method, target, limit}, best).run();
    }
  }
  return best;
}

}  // namespace

Plan plan_of(const Problem& problem, const Target& target, double memory_proportion) {
  using Key = std::tuple<Problem, Target, double>;
  static std::mutex mutex;
  static std::map<Key, Plan> known;
  const Key key{problem, target, memory_proportion};
  {
    const std::lock_guard lock(mutex);
    if (const auto found = known.find(key); found != known.end()) return found->second;
  }
  const auto tile = as_double(target.tile_bytes);
  Plan plan;
  plan.planned = infinite;
  // What does not fit is planned with more memory: the report says that it does not fit.
  const double first = std::max(memory_proportion, least_proportion);
  for (double part = first; plan.planned == infinite && part <= 2; part *= 2) {
    plan = search_plan(problem, target, part * tile);
  }
  if (plan.planned == infinite) plan = search_plan(problem, target, infinite);
  const std::lock_guard lock(mutex);
  return known.emplace(key, plan).first->second;
}

}  // namespace poptorch::device

#include "place/strategy.h"

#include <algorithm>
#include <string_view>

#include "ops/op_def.h"
#include "support/error.h"

namespace poptorch::place {

namespace {

struct Kind {
  std::string_view name;
  bool is_phased;
};

constexpr Kind kinds[] = {
#define STRATEGY(name, is_phased, doc) {#name, is_phased},
#include "place/strategies.def"
#undef STRATEGY
};

const Kind& kind_from(const std::string& name) {
  std::string names;
  for (const Kind& kind : kinds) {
    if (kind.name == name) return kind;
    names += concat(names.empty() ? "" : ", ", kind.name);
  }
  throw_user_error(concat("[place] there is no strategy \"", name, "\". The strategies are: ",
                          names, "."));
}

Spot spot_from(const ir::AttrList& row, size_t first) {
  Spot spot;
  int64_t* const fields[] = {&spot.ipu, &spot.stage, &spot.phase};
  for (size_t i = 0; i < 3; ++i) {
    if (first + i >= row.size()) break;
    const auto* number = std::get_if<int64_t>(&row[first + i].value);
    USER_CHECK(number != nullptr && *number >= 0, "[place] a block has ", row[first + i].text(),
               " for IPU, stage or phase. These are numbers of at least 0.");
    *fields[i] = *number;
  }
  return spot;
}

const ir::AttrList& list_of(const ir::Attr& attr) {
  const auto* list = std::get_if<ir::AttrList>(&attr.value);
  USER_CHECK(list != nullptr, "[place] expected a list in the op `strategy`, got ", attr.text(),
             ". A block is [name, ipu, stage, phase].");
  return *list;
}

}  // namespace

Strategy::Liveness Strategy::liveness_from(const std::string& name) {
  if (name == "always_live") return Liveness::always;
  if (name == "off_chip_after_fwd") return Liveness::after_fwd;
  if (name == "off_chip_after_fwd_no_overlap") return Liveness::after_fwd_no_overlap;
  if (name == "off_chip_after_each_phase") return Liveness::after_each_phase;
  throw_user_error(concat("[place] there is no liveness \"", name, "\". It is one of always_live, "
                          "off_chip_after_fwd, off_chip_after_fwd_no_overlap, "
                          "off_chip_after_each_phase."));
}

Strategy::Strategy(const ir::Op& op) {
  const std::string& kind = op.attrs.get_string("kind");
  is_phased_ = kind_from(kind).is_phased;
  phases_ = op.attrs.get_int("phases", 1);
  separate_backward_ = op.attrs.get_bool("separate_backward", false);
  if (op.attrs.has("liveness")) liveness_ = liveness_from(op.attrs.get_string("liveness"));
  // Two groups of IPUs take turns so that one can load and store while the other computes.
  if (kind == "parallel_phased") liveness_ = Liveness::after_fwd;
  if (op.attrs.has("outside")) outside_ = spot_from(list_of(*op.attrs.find("outside")), 0);
  for (const ir::Attr& item : list_of(*op.attrs.find("blocks"))) {
    const ir::AttrList& row = list_of(item);
    const auto* name = row.empty() ? nullptr : std::get_if<std::string>(&row[0].value);
    USER_CHECK(name != nullptr, "[place] a block of the op `strategy` has no name: ", item.text());
    const Spot spot = spot_from(row, 1);
    USER_CHECK(spot.phase < phases_, "[place] block \"", *name, "\" is in phase ", spot.phase,
               " of ", phases_, ". Phases are numbered from 0.");
    blocks_.emplace_back(*name, spot);
  }
}

const Spot& Strategy::spot_of(const std::string& block) const {
  const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const auto& known) { return known.first == block; });
  INTERNAL_CHECK(found != blocks_.end(), "[place] the op `strategy` does not know block \"", block,
                 "\"");
  return found->second;
}

// Phases between those of the model are free for transfers.
int64_t Strategy::stride() const {
  switch (liveness_) {
    case Liveness::after_fwd_no_overlap: return 2;
    case Liveness::after_each_phase: return 4;
    case Liveness::always:
    case Liveness::after_fwd: break;
  }
  return 1;
}

int64_t Strategy::phase_number(int64_t phase, Part part) const {
  if (part == Part::forward) return phase * stride();
  return (2 * (phases_ - 1) + (separate_backward_ ? 1 : 0) - phase) * stride();
}

bool Strategy::leaves_chip(Part made, Part read) const {
  if (!is_phased_ || liveness_ == Liveness::always) return false;
  if (liveness_ == Liveness::after_each_phase) return true;
  return made == Part::forward && read != Part::forward;
}

bool Strategy::is_off_chip(const ir::Op& state) const {
  if (!is_phased_ || state.name != "state") return false;
  const ir::Attr role = ops::attr_of(state, "role");
  const bool is_large = state.result()->type.numel() >= least_off_chip_elements;
  return is_large && (role == ir::Attr("parameter") || role == ir::Attr("optimizer"));
}

}  // namespace poptorch::place

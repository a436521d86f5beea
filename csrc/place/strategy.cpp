#include "place/strategy.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "support/error.h"

namespace poptorch::place {

namespace {

struct Kind {
  std::string_view name;
  bool is_phased;
  Liveness liveness;
};

constexpr Kind kinds[] = {
#define STRATEGY(name, is_phased, liveness, doc) {#name, is_phased, Liveness::liveness},
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

Location::Storage storage_from(const std::string& name) {
  if (name == "strategy") return Location::Storage::strategy;
  if (name == "on_chip") return Location::Storage::on_chip;
  if (name == "off_chip") return Location::Storage::off_chip;
  throw_user_error(concat("[place] there is no storage \"", name, "\". It is one of strategy, "
                          "on_chip, off_chip."));
}

bool is_by_io_tiles(const ir::Op& op, ir::AttrName name) {
  const std::string tiles = op.attrs.has(name) ? op.attrs.get_string(name) : "compute";
  USER_CHECK(tiles == "compute" || tiles == "io", "[place] there are no tiles \"", tiles,
             "\". They are compute or io.");
  return tiles == "io";
}

const ir::AttrList& list_of(const ir::Attr& attr) {
  const auto* list = std::get_if<ir::AttrList>(&attr.value);
  USER_CHECK(list != nullptr, "[place] expected a list in the op `strategy`, got ", attr.text(),
             ". A block is [name, ipu, stage, phase].");
  return *list;
}

Liveness liveness_from(const std::string& name) {
  if (name == "always_live") return Liveness::always;
  if (name == "off_chip_after_fwd") return Liveness::after_fwd;
  if (name == "off_chip_after_fwd_no_overlap") return Liveness::after_fwd_no_overlap;
  if (name == "off_chip_after_each_phase") return Liveness::after_each_phase;
  throw_user_error(concat("[place] there is no liveness \"", name, "\". It is one of always_live, "
                          "off_chip_after_fwd, off_chip_after_fwd_no_overlap, "
                          "off_chip_after_each_phase."));
}

}  // namespace

Strategy::Strategy(const ir::Op& op) {
  const Kind& kind = kind_from(op.attrs.get_string(ir::attr::kind));
  is_phased_ = kind.is_phased;
  liveness_ = kind.liveness;
  phases_ = op.attrs.get_int(ir::attr::phases, 1);
  separate_backward_ = op.attrs.get_bool(ir::attr::separate_backward, false);
  if (op.attrs.has(ir::attr::liveness)) {
    liveness_ = liveness_from(op.attrs.get_string(ir::attr::liveness));
  }
  if (op.attrs.has(ir::attr::outside)) {
    outside_ = spot_from(list_of(*op.attrs.find(ir::attr::outside)), 0);
  }
  if (!op.attrs.has(ir::attr::blocks)) return;
  for (const ir::Attr& item : list_of(*op.attrs.find(ir::attr::blocks))) {
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
  if (block.empty()) return outside_;
  const auto found = std::find_if(blocks_.begin(), blocks_.end(),
                                  [&](const auto& known) { return known.first == block; });
  INTERNAL_CHECK(found != blocks_.end(), "[place] the op `strategy` does not list block \"", block,
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

// One phase is left out before a separate backward pass: the phases of a pass and of its way back
// are then on the same of two groups of IPUs, even ones or odd ones.
int64_t Strategy::phase_number(int64_t phase, ir::Part part) const {
  if (part == ir::Part::forward) return phase * stride();
  return (2 * (phases_ - 1) + (separate_backward_ ? 2 : 0) - phase) * stride();
}

void Strategy::locate(const ir::Op& op) {
  constexpr std::array roles = {"activation", "parameter", "optimizer", "accumulator"};
  const std::string& role = op.attrs.get_string(ir::attr::role);
  USER_CHECK(std::find(roles.begin(), roles.end(), role) != roles.end(),
             "[place] there is no kind of tensors \"", role, "\". It is one of activation, "
             "parameter, optimizer, accumulator.");
  Location location;
  if (op.attrs.has(ir::attr::storage)) {
    location.storage = storage_from(op.attrs.get_string(ir::attr::storage));
  }
  location.least_elements = op.attrs.get_int(ir::attr::least_elements, location.least_elements);
  location.loads_by_io_tiles = is_by_io_tiles(op, ir::attr::load_tiles);
  location.stores_by_io_tiles = is_by_io_tiles(op, ir::attr::store_tiles);
  locations_[role] = location;
}

Location Strategy::location_of(std::string_view role) const {
  const auto found = locations_.find(role);
  return found == locations_.end() ? Location() : found->second;
}

// What the backward pass reads leaves the chip after the forward pass at the least.
bool Strategy::leaves_chip(const ir::Value& value, const ir::Op& reader) const {
  const Location location = location_of("activation");
  const ir::Op& maker = *value.op;
  const bool is_apart =
      maker.attrs.get_int(ir::attr::phase, 0) != reader.attrs.get_int(ir::attr::phase, 0);
  const bool is_forward = ir::part_of(maker) == ir::Part::forward &&
                          ir::part_of(reader) != ir::Part::forward;
  if (value.type.numel() < location.least_elements || (is_phased_ && !is_apart)) return false;
  switch (location.storage) {
    case Location::Storage::on_chip: return false;
    case Location::Storage::off_chip: break;
    case Location::Storage::strategy:
      if (!is_phased_ || liveness_ == Liveness::always) return false;
  }
  return is_forward || liveness_ == Liveness::after_each_phase;
}

bool Strategy::is_off_chip(std::string_view role, const ir::Type& type) const {
  const Location location = location_of(role);
  if (type.numel() < location.least_elements) return false;
  return location.storage == Location::Storage::strategy
             ? is_phased_
             : location.storage == Location::Storage::off_chip;
}

}  // namespace poptorch::place

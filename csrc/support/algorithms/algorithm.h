// Tables of algorithms: the ways to solve one kind of problem. Each of them is right wherever it
// applies. The cheapest is chosen. Costs are estimates; where they cannot know which of two is the
// faster on this processor, both are measured once (support/algorithms/measured.h).
//
//   const AlgorithmTable<Gemm, Run> gemms{"gemm", {
//       {.name = "small", .doc = "loops in registers", .applies = fits, .cost = ns, .make = small},
//       {.name = "blas", .doc = "PyTorch's BLAS", .applies = always, .cost = ns, .make = blas}}};
//   const auto& row = gemms.choose(problem);
//
// POPTORCH_ALGORITHM=gemm:blas,conv:winograd forces algorithms where they apply; of several of one
// family the first that applies. A switch of an algorithm's name (support/settings/switches.h)
// turns it off.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/algorithms/measured.h"
#include "support/error.h"
#include "support/loading/torch_library.h"
#include "support/settings/settings.h"

namespace poptorch {

struct AlgorithmName {
  std::string_view family, name, doc;
};

// Of all tables that are there: by family, then in the order of its table.
std::vector<AlgorithmName> all_algorithms();

// That a row may be chosen (support/loading/at_load.h).
void note_algorithm(std::string_view family, std::string_view name);

// Called by tables as they are made, at load time.
void register_algorithm(const AlgorithmName& name);

// `family:name,family:name` as AlgorithmTable::choose takes it; a user error, which lists the names
// there are, for others.
std::vector<ForcedAlgorithm> parse_algorithms(const std::string& text);

// For tests: multiplies the estimated cost of "family:name" in this process, so that a table errs.
void scale_cost(const std::string& algorithm, double factor);
double cost_scale(std::string_view family, std::string_view name);

// `Make` is what a row has to compute by, a function pointer as a rule.
template <typename Problem, typename Make>
struct Algorithm {
  std::string_view name, doc;
  // Whether it computes the problem rightly and safely; whether that is fast is a matter of cost.
  bool (*applies)(const Problem&);
  // About how long it takes, in units that all rows of a table share.
  double (*cost)(const Problem&);
  Make make;
  bool is_library = false;  // PyTorch's: its rate depends on the processor
  bool is_unit = false;     // on a unit whose rate differs between processors: AMX, AVX512-BF16
  bool is_for_threads = false;  // is not measured: one thread alone gains nothing
};

// How the rows of a table are measured.
template <typename Problem, typename Row>
struct Measuring {
  // What the times depend on; empty: too small to matter, or not to be measured. `has_unit`: one of
  // the rows to choose from runs on a unit, so that no cost can know.
  std::string (*key)(const Problem&, bool has_unit) = nullptr;
  // A trial for each row, on operands of its own; none where one of them cannot be made.
  std::vector<Trial> (*trials)(const Problem&, const std::vector<const Row*>&) = nullptr;
};

// Lives as long as the process does: what is chosen refers to it.
template <typename Problem, typename Make>
class AlgorithmTable {
 public:
  using Row = Algorithm<Problem, Make>;

  AlgorithmTable(std::string_view family, std::vector<Row> rows,
                 const Measuring<Problem, Row>& measuring = {})
      : family_(family), measuring_(measuring) {
    add(std::move(rows));
  }
  AlgorithmTable(const AlgorithmTable&) = delete;
  AlgorithmTable& operator=(const AlgorithmTable&) = delete;

  // Rows of another folder, at load time, behind those that are there.
  void add(std::vector<Row> rows) {
    for (Row& row : rows) {
      register_algorithm({family_, row.name, row.doc});
      rows_.push_back(row);
    }
  }

  // The one of this name, which must be there.
  const Row& row(std::string_view name) const {
    for (const Row& row : rows_) {
      if (row.name == name) return row;
    }
    throw_internal_error(__FILE__, __LINE__, "row", concat("no algorithm ", family_, ":", name));
  }

  struct Choice {
    const Row* row = nullptr;  // nullptr: none applies
    const Measured* measured = nullptr;  // null: chosen by costs

    // As plans and reports show it: "blas", "blocked (measured 812 us, blas 990 us)".
    std::string text() const {
      return measured != nullptr ? measured->text() : std::string(row->name);
    }
  };

  // A forced one that applies; else the fastest of those that cost about as little as the cheapest.
  // Loads PyTorch's library for one that calls it.
  Choice find(const Problem& problem) const {
    const Choice choice = choose_from(problem, true);
    if (choice.row != nullptr && choice.row->is_library) load_torch();
    return choice;
  }
  // The same by costs alone: that which applies and is on, of equal ones the first.
  const Row* cheapest(const Problem& problem) const { return choose_from(problem, false).row; }

  // As `find`, where one must apply.
  Choice chosen(const Problem& problem) const {
    const Choice choice = find(problem);
    if (choice.row == nullptr && !has_torch()) load_torch();  // which says that there is none
    INTERNAL_CHECK(choice.row != nullptr, "no algorithm of the family ", family_, " applies");
    return choice;
  }
  const Row& choose(const Problem& problem) const { return *chosen(problem).row; }

  // The estimate.
  double cost(const Row& row, const Problem& problem) const {
    return row.cost(problem) * cost_scale(family_, row.name);
  }

  // Whether POPTORCH_ALGORITHM names the row.
  bool is_forced(const Row& row) const {
    for (const ForcedAlgorithm& forced : settings().algorithms) {
      if (forced.family == family_ && forced.name == row.name) return true;
    }
    return false;
  }

 private:
  struct Costed {
    const Row* row = nullptr;
    double cost = 0;
  };

  Choice choose_from(const Problem& problem, bool measures) const {
    const Settings& present = settings();
    for (const ForcedAlgorithm& forced : present.algorithms) {
      if (forced.family != family_) continue;
      for (const Row& row : rows_) {
        if (row.name == forced.name && row.applies(problem)) return {&row};
      }
    }
    Costed best;
    std::array<Costed, 3> of_kind;  // the library's, ours on a unit, our others
    const auto keep_cheaper = [](Costed& kept, const Costed& other) {
      if (kept.row == nullptr || other.cost < kept.cost) kept = other;
    };
    for (const Row& row : rows_) {
      if (!present.is_on(row.name) || !row.applies(problem)) continue;
      note_algorithm(family_, row.name);
      const Costed one{&row, cost(row, problem)};
      keep_cheaper(best, one);
      if (row.is_for_threads) continue;
      keep_cheaper(of_kind[row.is_library ? 0 : row.is_unit ? 1 : 2], one);
    }
    const bool may_measure = measures && present.measures && measuring_.key != nullptr;
    if (!may_measure || best.row == nullptr || best.row->is_for_threads) return {best.row};
    return measured_of(problem, best, of_kind);
  }

  // Of the cheapest one of each origin, the fastest; `best` where costs can know.
  Choice measured_of(const Problem& problem, const Costed& best,
                     std::span<const Costed> cheapest) const {
    // A cost may err by so much: of loops compared with a library, and of rows on a unit.
    constexpr double near = 2, near_unit = 8;
    std::vector<const Row*> rows{best.row};
    bool has_unit = best.row->is_unit;
    for (const Costed& one : cheapest) {
      if (one.row == nullptr || one.row == best.row) continue;
      const bool either = one.row->is_unit || best.row->is_unit;
      if (one.cost > best.cost * (either ? near_unit : near)) continue;
      rows.push_back(one.row);
      has_unit = has_unit || either;
    }
    const std::string key = rows.size() == 1 ? "" : measuring_.key(problem, has_unit);
    if (key.empty()) return {best.row};
    std::vector<std::string> names;
    for (const Row* row : rows) names.emplace_back(row->name);
    const Measured* found = measured(concat(family_, " ", key), names,
                                     [&] { return measuring_.trials(problem, rows); });
    if (found == nullptr) return {best.row};
    return {&row(found->timings[0].algorithm), found};
  }

  std::string_view family_;
  std::vector<Row> rows_;
  Measuring<Problem, Row> measuring_;
};

}  // namespace poptorch

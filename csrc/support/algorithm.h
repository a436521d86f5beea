// Tables of algorithms: the ways to solve one kind of problem, of which each is right wherever it
// applies. The cheapest is chosen.
//
//   const AlgorithmTable<Gemm, Run> gemms{"gemm", {
//       {.name = "small", .doc = "loops in registers", .applies = fits, .cost = ns, .make = small},
//       {.name = "blas", .doc = "PyTorch's BLAS", .applies = always, .cost = ns, .make = blas}}};
//   const auto& row = gemms.choose(problem);
//
// POPTORCH_ALGORITHM=gemm:blas,conv:winograd forces algorithms where they apply; of several of one
// family the first that applies. A switch of an algorithm's name (support/switches.h) turns it off.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "support/error.h"
#include "support/settings.h"

namespace poptorch {

struct AlgorithmName {
  std::string_view family, name, doc;
};

// Of all tables that are there: by family, then in the order of its table.
std::vector<AlgorithmName> all_algorithms();

// Called by tables as they are made, at load time.
void register_algorithm(const AlgorithmName& name);

// `family:name,family:name` as AlgorithmTable::choose takes it; a user error, which lists the names
// there are, for others.
std::vector<ForcedAlgorithm> parse_algorithms(const std::string& text);

// `Make` is what a row has to compute by, a function pointer as a rule.
template <typename Problem, typename Make>
struct Algorithm {
  std::string_view name, doc;
  // Whether it computes the problem rightly and safely; whether that is fast is a matter of cost.
  bool (*applies)(const Problem&);
  // About how long it takes, in units that all rows of a table share.
  double (*cost)(const Problem&);
  Make make;
};

// Lives as long as the process does: what is chosen refers to it.
template <typename Problem, typename Make>
class AlgorithmTable {
 public:
  using Row = Algorithm<Problem, Make>;

  AlgorithmTable(std::string_view family, std::vector<Row> rows) : family_(family) {
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

  // A forced one that applies; else the cheapest that applies and is on, of equal ones the first.
  // nullptr: none applies.
  const Row* find(const Problem& problem) const {
    const Settings& present = settings();
    for (const ForcedAlgorithm& forced : present.algorithms) {
      if (forced.family != family_) continue;
      for (const Row& row : rows_) {
        if (row.name == forced.name && row.applies(problem)) return &row;
      }
    }
    const Row* best = nullptr;
    double least = 0;
    for (const Row& row : rows_) {
      if (!present.is_on(row.name) || !row.applies(problem)) continue;
      const double cost = row.cost(problem);
      if (best == nullptr || cost < least) {
        best = &row;
        least = cost;
      }
    }
    return best;
  }

  const Row& choose(const Problem& problem) const {
    const Row* row = find(problem);
    INTERNAL_CHECK(row != nullptr, "no algorithm of the family ", family_, " applies");
    return *row;
  }

  // Whether POPTORCH_ALGORITHM names the row.
  bool is_forced(const Row& row) const {
    for (const ForcedAlgorithm& forced : settings().algorithms) {
      if (forced.family == family_ && forced.name == row.name) return true;
    }
    return false;
  }

 private:
  std::string_view family_;
  std::vector<Row> rows_;
};

}  // namespace poptorch

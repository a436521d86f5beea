#include "place/work_report.h"

#include <memory>
#include <utility>

#include "ir/bodies.h"
#include "ir/part.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::place {

namespace {

class Report {
 public:
  explicit Report(const ir::Module& module) : module_(module) {}

  // `rounds`: how often the graph runs.
  void add(const ir::Graph& graph, double rounds) {
    for (const auto& op : graph.ops) {
      if (!ir::has_bodies(*op)) {
        add(*op, rounds, ops::work_of(*op));
      } else if (op->attrs.get_bool(ir::attr::conditional, false)) {
        add(*op, rounds, std::nullopt);
      } else {
        const auto count = static_cast<double>(op->attrs.get_int(ir::attr::count, 1));
        for (const ir::Graph* body : ir::bodies_of(module_, *op)) add(*body, rounds * count);
      }
    }
  }

  WorkReport rows;

 private:
  void add(const ir::Op& op, double rounds, const std::optional<ops::Work>& work) {
    if (rounds == 0 || (work && work->flops == 0.0 && work->bytes == 0)) return;
    const auto [at, is_new] =
        rows[ir::name_of(ir::part_of(op))].try_emplace(ops::report_name(op), OpWork{0.0, 0.0, 0});
    OpWork& row = at->second;
    add(row.flops, rounds, work ? work->flops : std::nullopt);
    add(row.bytes, rounds, work ? std::optional<double>(work->bytes) : std::nullopt);
    row.count += rounds;
  }

  static void add(std::optional<double>& sum, double rounds, std::optional<double> each) {
    if (sum && each) {
      *sum += rounds * *each;
    } else {
      sum.reset();
    }
  }

  const ir::Module& module_;
};

// Verify looks the data of large constants up, if only for its type.
void add_constants(ir::Module& module) {
  for (const ir::Op* op : module.all_ops()) {
    if (op->name != ir::op::constant || !op->attrs.has(ir::attr::hash) || op->results.empty()) {
      continue;
    }
    auto data = std::make_shared<ir::ConstantData>();
    data->type = op->result()->type;
    module.constants.emplace(op->attrs.get_string(ir::attr::hash), std::move(data));
  }
}

}  // namespace

std::unique_ptr<ir::Module> parse_placed(std::string_view text) {
  std::unique_ptr<ir::Module> module = ir::parse(text);
  add_constants(*module);
  ir::verify(*module, ir::Level::any);
  return module;
}

WorkReport work_report(std::string_view text) try {
  const std::unique_ptr<ir::Module> module = parse_placed(text);
  Report report(*module);
  report.add(*module->entries().back(), 1);
  return std::move(report.rows);
} catch (const InternalError& error) {
  throw UserError(error.rule);
}

}  // namespace poptorch::place

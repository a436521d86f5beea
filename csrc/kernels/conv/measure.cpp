// How the algorithms of convolutions are measured (support/algorithms/measured.h): in one
// thread, as no choice depends on their number, and on few images where there are many.
#include <algorithm>
#include <array>
#include <memory>

#include "kernels/conv/algorithms.h"
#include "ops/layout.h"
#include "support/error.h"
#include "support/memory/thread_memory.h"
#include "support/settings/switches.h"

namespace poptorch::kernels {

namespace {

using Direction = ConvProblem::Direction;
using P = const ConvProblem&;

// Multiplications, as in gemm/measure.cpp. An image is not cut.
constexpr int64_t least_work = int64_t{1} << 20, most_work = int64_t{1} << 26;

int64_t work_of_image(P p) {
  return ConvProblem::pixels_of(p.y) * p.y.sizes[1] * p.w.sizes[1] * p.taps();
}

// nullptr: neither row-major nor channels-last.
const char* layout_of(const ir::Type& type) {
  if (ops::lies_channels_last(type)) return "last";
  return type.is_contiguous() ? "rows" : nullptr;
}

std::string text_of(const ir::Dims& dims) {
  std::string text;
  for (const int64_t n : dims) text += concat(text.empty() ? "" : ",", n);
  return text;
}

ir::Type of_images(ir::Type type, int64_t images) {
  const ir::Dims strides = type.actual_strides();
  type.sizes[0] = images;
  type.set_strides(strides);
  return type;
}

// The op of a problem on few images, with operands and results in memory of their own.
class Trials {
 public:
  explicit Trials(P p) : is_forward_(p.is(Direction::forward)) {
    const int64_t few = std::clamp<int64_t>(most_work / work_of_image(p), 2, 1 << 20);
    const int64_t images = std::min(p.image_count(), few);
    ir::Type x = of_images(p.x, images), y = of_images(p.y, images), w = p.w;
    if (p.weights != ConvProblem::Weights::plain) w = last(w);
    op_.name = is_forward_ ? ir::op::convolution : ir::op::convolution_backward;
    ir::Attrs attrs;
    attrs.set(ir::attr::stride, p.stride);
    attrs.set(ir::attr::padding, p.padding);
    attrs.set(ir::attr::dilation, p.dilation);
    attrs.set(ir::attr::transposed, false);
    attrs.set(ir::attr::output_padding, ir::Dims(p.stride.size(), 0));
    attrs.set(ir::attr::groups, p.groups);
    if (is_forward_) {
      for (const ir::Type& type : {x, w}) add_operand(type);
      op_.operands.push_back(nullptr);
      add_result(y);
    } else {
      const bool both = p.is(Direction::gradients);
      const bool data = both ? p.wants_data : p.is(Direction::data_gradient);
      const bool weight = both ? p.wants_weight : p.is(Direction::weight_gradient);
      attrs.set(ir::attr::output_mask, ir::AttrList{data, weight, false});
      for (const ir::Type& type : {y, x, w}) add_operand(type);
      const ir::Type none{x.dtype, {0}, {}};
      for (const ir::Type& type : {data ? x : none, weight ? w : none, none}) add_result(type);
    }
    op_.attrs = ops::complete_attrs(ops::op_def(op_.name), attrs);
    problem_ = is_forward_ ? ConvProblem::forward(call_)
                           : ConvProblem::gradient(call_, p.direction, p.is_upcast);
  }
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  P problem() const { return problem_; }

  // Of what it keeps.
  static Trial trial(const std::shared_ptr<Trials>& self, const Prepared& prepared) {
    const size_t bytes = std::max<size_t>(prepared.scratch_bytes, 1);
    self->scratch_.numbers<std::byte>(static_cast<int64_t>(bytes));
    return [self, bytes, run = prepared.run] {
      auto* scratch = self->scratch_.numbers<std::byte>(static_cast<int64_t>(bytes));
      run({self->inputs_.data(), self->outputs_.data(), scratch, 1});
    };
  }

 private:
  static ir::Type last(const ir::Type& weight) {
    ir::Type type = ops::channels_last(weight);
    type.strides.clear();
    return ops::channels_first(type);
  }

  // Memory of ones: no arithmetic on them is slow.
  void* ones(const ir::Type& type) {
    memory_.push_back(std::make_unique<ThreadMemory>());
    const int64_t count = std::max<int64_t>(type.span(), 1);
    if (type.dtype == ir::DType::f32) {
      auto* numbers = memory_.back()->numbers<float>(count);
      std::fill_n(numbers, count, 1.0F);
      return numbers;
    }
    auto* numbers = memory_.back()->numbers<uint16_t>(count);
    std::fill_n(numbers, count, type.dtype == ir::DType::bf16 ? 0x3f80 : 0x3c00);
    return numbers;
  }

  void add_operand(const ir::Type& type) {
    operands_.push_back(std::make_unique<ir::Value>(ir::Value{.name = "x", .type = type}));
    op_.operands.push_back(operands_.back().get());
    inputs_[operands_.size() - 1] = ones(type);
  }

  void add_result(const ir::Type& type) {
    const int index = static_cast<int>(op_.results.size());
    op_.results.push_back(
        std::make_unique<ir::Value>(ir::Value{.name = "y", .type = type, .op = &op_,
                                              .index = index}));
    outputs_[op_.results.size() - 1] = ones(type);
  }

  bool is_forward_;
  std::vector<std::unique_ptr<ir::Value>> operands_;
  ir::Op op_;
  Call call_{op_, 1};
  ConvProblem problem_;
  std::vector<std::unique_ptr<ThreadMemory>> memory_;
  ThreadMemory scratch_;
  std::array<void*, 5> inputs_{}, outputs_{};
};

}  // namespace

std::string measuring_key(P p, bool has_unit) {
  // On vectors alone the estimates choose as well (`python -m benchmarks choice`), and networks
  // have many convolutions to measure.
  if (!has_unit) return "";
  const bool has_dtype = p.x.dtype == ir::DType::f32 || ir::is_half(p.x.dtype);
  if (!has_dtype || p.transposed || p.is_empty() || p.sees_padding_alone()) return "";
  // A call that has one thread in any run would look as fast as others, which have all of them: of
  // 16-bit gradients of weights, and with the option `deterministic`.
  const bool is_half_weight =
      p.is(Direction::weight_gradient) && (p.is_upcast || ir::is_half(p.x.dtype));
  if (is_half_weight || !is_on("torch_threads")) return "";
  const int64_t work = work_of_image(p);
  if (p.image_count() * work < least_work) return "";
  constexpr std::array names = {"forward", "dx", "dw", "dx+dw"};
  std::string key = concat(names[static_cast<size_t>(p.direction)], " ", ir::name_of(p.x.dtype));
  if (p.is(Direction::gradients) && !(p.wants_data && p.wants_weight)) {
    key += p.wants_data ? " dx" : " dw";
  }
  if (p.is_upcast) key += " upcast";
  const bool is_plain = p.weights == ConvProblem::Weights::plain;
  for (const ir::Type* type : {&p.x, &p.w, &p.y}) {
    const bool is_packed = type == &p.w && !is_plain;
    const char* layout = is_packed ? "last" : layout_of(*type);
    if (layout == nullptr) return "";
    key += concat(" ", text_of(type->sizes), ":", layout);
  }
  return concat(key, " stride ", text_of(p.stride), " padding ", text_of(p.padding), " dilation ",
                text_of(p.dilation), " groups ", p.groups);
}

std::vector<Trial> conv_trials(P p, const std::vector<ConvTrialRow>& rows) {
  const auto trials = std::make_shared<Trials>(p);
  std::vector<Trial> out;
  for (const ConvTrialRow& row : rows) {
    if (row.applies != nullptr && !row.applies(trials->problem())) return {};
    out.push_back(Trials::trial(trials, row.prepare(trials->problem())));
  }
  return out;
}

std::vector<Trial> conv_trials(P p, const std::vector<const ConvAlgorithm*>& rows) {
  std::vector<ConvTrialRow> all;
  for (const ConvAlgorithm* row : rows) all.push_back({row->applies, row->make.prepare});
  return conv_trials(p, all);
}

}  // namespace poptorch::kernels

#include "kernels/conv/packed.h"

#include "kernels/conv/algorithms.h"
#include "kernels/conv/library.h"
#include "kernels/move/copy.h"
#include "kernels/simd/elementwise.h"
#include "ops/layout.h"
#include "support/error.h"
#include "support/loading/not_linked.h"
#include "support/parallel.h"

namespace poptorch::kernels {
namespace {

// As they are, but with dimensions in this order.
Prepared pack_permuted(const Call& call, const ir::Dims& order) {
  const ir::Dims &sizes = call.in(0).sizes, strides = call.in(0).actual_strides();
  ir::Dims target_sizes, source_strides;
  for (const int64_t dim : order) {
    target_sizes.push_back(sizes[static_cast<size_t>(dim)]);
    source_strides.push_back(strides[static_cast<size_t>(dim)]);
  }
  const CopyPlan copy(target_sizes, ir::contiguous_strides(target_sizes), source_strides,
                      sizeof(float));
  const int64_t used = call.in(0).numel() * static_cast<int64_t>(sizeof(float));
  return {[copy, used, rest = call.out().bytes() - used](const Args& args) {
    copy.run(args.outputs[0], args.inputs[0], args.threads);
    fill_zero(args.out<std::byte>() + used, rest, args.threads);
  }};
}

bool has_one_channel(const ir::Dims& input_size) { return input_size[1] == 1; }

Prepared pack_as(const Call& call, WeightForm form) {
  if (form == WeightForm::as_they_lie) return pack_permuted(call, {0, 1, 2, 3});
  const bool by_tap =
      form == WeightForm::by_tap || has_one_channel(call.attrs().get_ints(ir::attr::input_size));
  return by_tap ? pack_permuted(call, {2, 3, 1, 0}) : library_convolutions().pack(call);
}

Prepared pack_convolution(const Call& call) {
  const auto choice = conv_algorithms().chosen(ConvProblem::packing(call));
  Prepared prepared = pack_as(call, choice.row->make.form);
  prepared.algorithm = choice.text();
  return prepared;
}
KERNEL("pack_convolution", pack_convolution)

// The products of our own end with relu themselves.
Prepared with_other_than_relu(const Call& call, Prepared convolution) {
  const std::string& activation = call.attrs().get_string(ir::attr::activation);
  if (activation == "none" || activation == "relu") return convolution;
  return with_activation(call, std::move(convolution), activation);
}

// Weights that stay in the module: not where oneDNN needs a layout of its own.
bool takes_unpacked(const Call& call) {
  return conv_algorithms().choose(ConvProblem::packed(call)).make.form != WeightForm::onednn;
}

Prepared packed_convolution(const Call& call) {
  onednn_activation(call);  // one of those there are
  Prepared convolution = prepare_conv(ConvProblem::packed(call));
  const bool by_form = !takes_unpacked(call) && !is_left_as_it_is(call);
  return by_form ? convolution : with_other_than_relu(call, std::move(convolution));
}

KERNEL("packed_convolution", packed_convolution, false, takes_unpacked)

}  // namespace

const char* onednn_activation(const Call& call) {
  const std::string& name = call.attrs().get_string(ir::attr::activation);
  for (const auto& [ours, theirs] : {std::pair{"none", "none"}, std::pair{"relu", "relu"},
                                     std::pair{"silu", "swish"},
                                     std::pair{"hardswish", "hardswish"}}) {
    if (name == ours) return theirs;
  }
  throw_user_error(concat("[packed_convolution] activation is \"", name,
                          "\", expected none, relu, silu or hardswish. Use one of these."));
}

Prepared with_activation(const Call& call, Prepared convolution, const std::string& activation) {
  const auto* function = simd::unary_f32(activation);
  if (function == nullptr) check_is_linked("function ", activation);
  const auto run = [=, n = call.out().numel(), run = std::move(convolution.run)](const Args& args) {
    constexpr int64_t grain = 8192;
    run(args);
    auto* y = args.out<float>(0);
    parallel_for(args.threads, n, grain, [&](int64_t begin, int64_t end) {
      function->run({y + begin, {y + begin}, {1}, end - begin, nullptr});
    });
  };
  return {run, convolution.scratch_bytes, convolution.algorithm};
}

bool is_left_as_it_is(const Call& call) {
  return is_unpacked(call) || has_one_channel(ops::channels_first(call.in(0)).sizes);
}

}  // namespace poptorch::kernels

// Kernels of the elementwise losses.
#include <algorithm>

#include "kernels/move/copy.h"
#include "kernels/reduction/types.h"
#include "kernels/rows/rows.h"
#include "ops/families/loss.h"
#include "ops/kernel.h"
#include "support/ceil_div.h"
#include "support/memory/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

using enum ops::Reduction;

// Sums are taken part by part: the parts do not depend on the number of threads.
constexpr int64_t part_elements = 8192;

int64_t parts_of(int64_t n) { return ceil_div(n, part_elements); }

// fn(part, begin, count)
void for_parts(int threads, int64_t n, const auto& fn) {
  parallel_for(threads, parts_of(n), 1, [&](int64_t part) {
    const int64_t begin = part * part_elements;
    fn(part, begin, std::min(part_elements, n - begin));
  });
}

double join(const double* parts, int64_t count, ops::Reduction reduction, int64_t n) {
  double total = 0;
  for (int64_t part = 0; part < count; ++part) total += parts[part];
  return reduction == mean ? total / static_cast<double>(n) : total;
}

// A weight that is broadcast to the elements: as it is when it has all of them, else a copy in
// scratch.
struct Weight {
  size_t operand = 0;
  bool present = false, copied = false;
  CopyPlan plan;
  int64_t offset_bytes = 0;

  Weight() = default;
  // Takes its room at `scratch_bytes`.
  Weight(const Call& call, size_t operand, const ir::Type& x, int64_t& scratch_bytes)
      : operand(operand), present(call.has_in(operand)) {
    if (!present || call.in(operand).sizes == x.sizes) return;
    const ir::Dims strides = ir::broadcast_strides(call.in(operand), x.sizes);
    const int64_t item_bytes = ir::item_bytes(x.dtype);
    plan = CopyPlan(x.sizes, x.actual_strides(), strides, item_bytes);
    copied = true;
    offset_bytes = scratch_bytes;
    scratch_bytes += align_up(x.numel() * item_bytes);
  }

  template <typename T>
  const T* get(const Args& args) const {
    if (!copied) return present ? args.in<T>(operand) : nullptr;
    plan.run(args.scratch + offset_bytes, args.inputs[operand], args.threads);
    return reinterpret_cast<const T*>(args.scratch + offset_bytes);
  }
};

// The name of the attribute that shapes the loss; empty: it has none.
template <typename T>
T parameter_of(const Call& call) {
  for (const ir::AttrName name : {ir::attr::beta, ir::attr::delta}) {
    if (call.attrs().has(name)) return static_cast<T>(call.attrs().get_float(name));
  }
  return 0;
}

template <typename T>
T* moved(T* p, int64_t by) {
  return p == nullptr ? nullptr : p + by;
}

template <typename T>
LossRow<T> part_of(LossRow<T> row, int64_t at) {
  row.x += at;
  row.target += at;
  row.weight = moved(row.weight, at);
  row.pos_weight = moved(row.pos_weight, at);
  row.grad = moved(row.grad, at);
  row.out = moved(row.out, at);
  return row;
}

template <typename T>
struct Loss {
  LossLoops<T> loops;
  int64_t n;
  ops::Reduction reduction;
  T parameter;
  Weight weight;
  int64_t scratch_bytes = 0;

  Loss(const Call& call, const LossLoops<T>& loops, const ir::Type& x, size_t weight_operand)
      : loops(loops), n(x.numel()), reduction(ops::reduction_of({call.op})) {
    parameter = parameter_of<T>(call);
    scratch_bytes = align_up(parts_of(n) * static_cast<int64_t>(sizeof(double)));
    weight = Weight(call, weight_operand, x, scratch_bytes);
  }

  void run(const Args& args) const {
    const LossRow<T> row{.x = args.in<T>(0),
                         .target = args.in<T>(1),
                         .weight = weight.template get<T>(args),
                         .out = reduction == none ? args.out<T>() : nullptr,
                         .parameter = parameter};
    auto* parts = reinterpret_cast<double*>(args.scratch);
    for_parts(args.threads, n, [&](int64_t part, int64_t begin, int64_t count) {
      const LossRow<T> here = part_of(row, begin);
      if (reduction == none) return loops.each(here, count);
      parts[part] = loops.sum(here, count);
    });
    if (reduction == none) return;
    *args.out<T>() = static_cast<T>(join(parts, parts_of(n), reduction, n));
  }

  void run_backward(const Args& args) const {
    const T* grad = args.in<T>(0);
    T scale = reduction == none ? T{1} : *grad;
    if (reduction == mean) scale /= static_cast<T>(n);
    const LossRow<T> row{.x = args.in<T>(1),
                         .target = args.in<T>(2),
                         .weight = weight.template get<T>(args),
                         .grad = reduction == none ? grad : nullptr,
                         .out = args.out<T>(),
                         .parameter = parameter,
                         .scale = scale};
    for_parts(args.threads, n, [&](int64_t, int64_t begin, int64_t count) {
      loops.backward(part_of(row, begin), count);
    });
  }
};

template <typename T>
const LossLoops<T>& loops_of(ir::OpName name) {
  const Rows<T>& all = rows<T>();
  if (name == ir::op::mse_loss || name == ir::op::mse_loss_backward) return all.mse;
  if (name == ir::op::smooth_l1_loss || name == ir::op::smooth_l1_loss_backward) {
    return all.smooth_l1;
  }
  if (name == ir::op::huber_loss || name == ir::op::huber_loss_backward) return all.huber;
  return all.cross_entropy;
}

template <bool backward>
Prepared loss(const Call& call) {
  constexpr size_t self = backward ? 1 : 0;
  return with_float_type(call, call.in(self).dtype, [&]<typename T>(T) -> Prepared {
    const Loss<T> loss(call, loops_of<T>(call.op.name), call.in(self), self + 2);
    return {[loss](const Args& args) { backward ? loss.run_backward(args) : loss.run(args); },
            static_cast<size_t>(loss.scratch_bytes)};
  });
}

Prepared binary_cross_entropy(const Call& call) {
  Prepared prepared = loss<false>(call);
  prepared.run = with_float_type(call, call.in(0).dtype, [&]<typename T>(T) {
    const int64_t n = call.in(0).numel();
    return Prepared{[n, compute = std::move(prepared.run)](const Args& args) {
      const T* x = args.in<T>(0);
      const T* wrong = std::find_if_not(x, x + n, [](T p) { return p >= 0 && p <= 1; });
      USER_CHECK(wrong == x + n, "[binary_cross_entropy] an element of the input is ", *wrong,
                 ". Give probabilities from 0 to 1, as torch.sigmoid does; or use "
                 "binary_cross_entropy_with_logits.");
      compute(args);
    }};
  }).run;
  return prepared;
}

// The elements are computed into scratch (or the result) and then added up.
Prepared logits_loss(const Call& call) {
  return with_float_type(call, call.in(0).dtype, [&]<typename T>(T) -> Prepared {
    const ir::Type& x = call.in(0);
    const int64_t n = x.numel();
    const ops::Reduction reduction = ops::reduction_of({call.op});
    int64_t bytes = align_up(parts_of(n) * static_cast<int64_t>(sizeof(double)));
    const int64_t values = bytes;
    if (reduction != none) bytes += align_up(n * static_cast<int64_t>(sizeof(T)));
    const Weight weight(call, 2, x, bytes), pos_weight(call, 3, x, bytes);
    const auto run = [=, &loops = rows<T>()](const Args& args) {
      const LossRow<T> row{
          .x = args.in<T>(0),
          .target = args.in<T>(1),
          .weight = weight.template get<T>(args),
          .pos_weight = pos_weight.template get<T>(args),
          .out = reduction == none ? args.out<T>() : reinterpret_cast<T*>(args.scratch + values)};
      auto* parts = reinterpret_cast<double*>(args.scratch);
      for_parts(args.threads, n, [&](int64_t part, int64_t begin, int64_t count) {
        loops.logits_loss(part_of(row, begin), count);
        if (reduction != none) parts[part] = loops.sum(row.out + begin, count);
      });
      if (reduction == none) return;
      *args.out<T>() = static_cast<T>(join(parts, parts_of(n), reduction, n));
    };
    return {run, static_cast<size_t>(bytes)};
  });
}

}  // namespace

KERNEL("mse_loss", loss<false>)
KERNEL("mse_loss_backward", loss<true>)
KERNEL("smooth_l1_loss", loss<false>)
KERNEL("smooth_l1_loss_backward", loss<true>)
KERNEL("huber_loss", loss<false>)
KERNEL("huber_loss_backward", loss<true>)
KERNEL("binary_cross_entropy", binary_cross_entropy)
KERNEL("binary_cross_entropy_backward", loss<true>)
KERNEL("binary_cross_entropy_with_logits", logits_loss)

}  // namespace poptorch::kernels

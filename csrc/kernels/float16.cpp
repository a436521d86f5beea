#include "kernels/float16.h"

#include "kernels/float16_blocks.h"
#include "support/memory/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {

namespace {

constexpr int64_t grain = 32768;  // elements worth some 5 us

// A half tensor and where its f32 copy lies in scratch.
struct Converted {
  size_t index;
  Upcast upcast;
  Downcast downcast;
  int64_t elements;
  int64_t offset_bytes;
};

bool is_upcast(const ir::Type& type, const Stays& stays) {
  return ir::is_half(type.dtype) && !(stays && stays(type));
}

std::unique_ptr<ir::Value> upcast_copy(const ir::Value& value, const Stays& stays) {
  auto wide = std::make_unique<ir::Value>(value);
  if (is_upcast(wide->type, stays)) wide->type.dtype = ir::DType::f32;
  return wide;
}

Prepared prepare_half(const Call& call, ops::Prepare inner) {
  Prepared sliced = prepare_sliced(call, inner);
  return sliced.run != nullptr ? sliced : prepare_upcast(call, inner);
}

AT_LOAD("half.wrapper") { ops::register_half(prepare_half); }

}  // namespace

UpcastOp::UpcastOp(const ir::Op& original, const Stays& stays) {
  op.name = original.name;
  op.source_location = original.source_location;
  for (const auto& [name, attr] : original.attrs) {
    const auto* dtype = std::get_if<ir::DType>(&attr.value);
    op.attrs.set(name, dtype != nullptr && ir::is_half(*dtype) ? ir::Attr(ir::DType::f32) : attr);
  }
  for (const ir::Value* operand : original.operands) {
    operands.push_back(operand == nullptr ? nullptr : upcast_copy(*operand, stays));
    op.operands.push_back(operands.back().get());
  }
  for (const auto& result : original.results) {
    op.results.push_back(upcast_copy(*result, stays));
    op.results.back()->op = &op;
  }
}

Prepared prepare_upcast(const Call& call, ops::Prepare inner, const Stays& stays) {
  const UpcastOp wide(call.op, stays);
  const Prepared prepared = inner({wide.op, call.threads});
  int64_t bytes = 0;
  const auto add = [&](std::vector<Converted>& list, size_t index, const ir::Type& type) {
    if (!is_upcast(type, stays)) return;
    list.push_back({index, upcast_from(type.dtype), downcast_to(type.dtype), type.span(), bytes});
    bytes += align_up(type.span() * 4);
  };
  std::vector<Converted> ins, outs;
  for (size_t i = 0; i < call.in_count(); ++i) {
    if (call.has_in(i)) add(ins, i, call.in(i));
  }
  for (size_t i = 0; i < call.op.results.size(); ++i) add(outs, i, call.out(i));
  // Pointer arrays lie in scratch too: a run must not allocate.
  const size_t n_in = call.in_count(), n_out = call.op.results.size();
  const int64_t pointers = bytes;
  bytes += align_up(static_cast<int64_t>((n_in + n_out) * sizeof(void*)));
  const int64_t inner_scratch = bytes;
  const auto run = [=, run = prepared.run](const Args& args) {
    void** inputs = reinterpret_cast<void**>(args.scratch + pointers);
    void** outputs = inputs + n_in;
    for (size_t i = 0; i < n_in; ++i) inputs[i] = args.inputs[i];
    for (size_t i = 0; i < n_out; ++i) outputs[i] = args.outputs[i];
    for (const Converted& half : ins) {
      auto* to = reinterpret_cast<float*>(args.scratch + half.offset_bytes);
      const auto* from = args.in<uint16_t>(half.index);
      parallel_for(args.threads, half.elements, grain, [&](int64_t begin, int64_t end) {
        half.upcast(from + begin, to + begin, end - begin);
      });
      inputs[half.index] = to;
    }
    for (const Converted& half : outs) outputs[half.index] = args.scratch + half.offset_bytes;
    run({inputs, outputs, args.scratch + inner_scratch, args.threads});
    for (const Converted& half : outs) {
      const auto* from = reinterpret_cast<const float*>(args.scratch + half.offset_bytes);
      auto* to = args.out<uint16_t>(half.index);
      parallel_for(args.threads, half.elements, grain, [&](int64_t begin, int64_t end) {
        half.downcast(from + begin, to + begin, end - begin);
      });
    }
  };
  return {run, static_cast<size_t>(inner_scratch) + prepared.scratch_bytes, prepared.algorithm};
}

}  // namespace poptorch::kernels

#include "ops/half.h"

#include "support/half.h"
#include "support/parallel.h"

namespace poptorch::ops {

namespace {

constexpr int64_t grain = 16384;  // elements worth some 5 us

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A half tensor and where its f32 copy lies in scratch.
struct Widened {
  size_t index;
  ir::DType dtype;
  int64_t elements;
  int64_t offset_bytes;
};

// The same op on f32: halves replaced in the types and in dtype attributes.
struct WideOp {
  ir::Op op;
  std::vector<std::unique_ptr<ir::Value>> operands;

  explicit WideOp(const ir::Op& narrow) {
    op.name = narrow.name;
    op.place = narrow.place;
    for (const auto& [name, attr] : narrow.attrs) {
      const auto* dtype = std::get_if<ir::DType>(&attr.value);
      op.attrs.set(name, dtype != nullptr && ir::is_half(*dtype) ? ir::Attr(ir::DType::f32) : attr);
    }
    for (const ir::Value* operand : narrow.operands) {
      operands.push_back(operand == nullptr ? nullptr : copy(*operand));
      op.operands.push_back(operands.back().get());
    }
    for (const auto& result : narrow.results) {
      op.results.push_back(copy(*result));
      op.results.back()->op = &op;
    }
  }

 private:
  static std::unique_ptr<ir::Value> copy(const ir::Value& value) {
    auto wide = std::make_unique<ir::Value>(value);
    if (ir::is_half(wide->type.dtype)) wide->type.dtype = ir::DType::f32;
    return wide;
  }
};

// All instruction sets give the same bits here, so the loader may choose.
#define VECTORIZED __attribute__((target_clones("avx2", "default"), optimize("O3")))

VECTORIZED void widen_f16(const uint16_t* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = f16_to_float(in[i]);
}
VECTORIZED void widen_bf16(const uint16_t* in, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_float(in[i]);
}
VECTORIZED void narrow_f16(const float* in, uint16_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = float_to_f16(in[i]);
}
VECTORIZED void narrow_bf16(const float* in, uint16_t* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = float_to_bf16(in[i]);
}

template <typename Fn>
void in_parts(int threads, int64_t n, const Fn& fn) {
  parallel_for(threads, n, grain, fn);
}

}  // namespace

void widen(ir::DType from, const void* in, float* out, int64_t n) {
  const auto* bits = static_cast<const uint16_t*>(in);
  return from == ir::DType::f16 ? widen_f16(bits, out, n) : widen_bf16(bits, out, n);
}

void narrow(ir::DType to, const float* in, void* out, int64_t n) {
  auto* bits = static_cast<uint16_t*>(out);
  return to == ir::DType::f16 ? narrow_f16(in, bits, n) : narrow_bf16(in, bits, n);
}

bool uses_half(const Call& call) {
  for (size_t i = 0; i < call.in_count(); ++i) {
    if (call.has_in(i) && ir::is_half(call.in(i).dtype)) return true;
  }
  for (const auto& result : call.op.results) {
    if (ir::is_half(result->type.dtype)) return true;
  }
  return false;
}

Prepared prepare_widened(const Call& call, Prepare inner) {
  const WideOp wide(call.op);
  const Prepared prepared = inner({wide.op, call.threads});
  int64_t bytes = 0;
  const auto add = [&](std::vector<Widened>& list, size_t index, const ir::Type& type) {
    if (!ir::is_half(type.dtype)) return;
    list.push_back({index, type.dtype, type.span(), bytes});
    bytes += aligned(type.span() * 4);
  };
  std::vector<Widened> ins, outs;
  for (size_t i = 0; i < call.in_count(); ++i) {
    if (call.has_in(i)) add(ins, i, call.in(i));
  }
  for (size_t i = 0; i < call.op.results.size(); ++i) add(outs, i, call.out(i));
  // Pointer arrays lie in scratch too: a run must not allocate.
  const size_t n_in = call.in_count(), n_out = call.op.results.size();
  const int64_t pointers = bytes;
  bytes += aligned(static_cast<int64_t>((n_in + n_out) * sizeof(void*)));
  const int64_t inner_scratch = bytes;
  const auto run = [=, run = prepared.run](const Args& args) {
    void** inputs = reinterpret_cast<void**>(args.scratch + pointers);
    void** outputs = inputs + n_in;
    for (size_t i = 0; i < n_in; ++i) inputs[i] = args.inputs[i];
    for (size_t i = 0; i < n_out; ++i) outputs[i] = args.outputs[i];
    for (const Widened& half : ins) {
      auto* to = reinterpret_cast<float*>(args.scratch + half.offset_bytes);
      const auto* from = args.in<uint16_t>(half.index);
      in_parts(args.threads, half.elements, [&](int64_t begin, int64_t end) {
        widen(half.dtype, from + begin, to + begin, end - begin);
      });
      inputs[half.index] = to;
    }
    for (const Widened& half : outs) outputs[half.index] = args.scratch + half.offset_bytes;
    run({inputs, outputs, args.scratch + inner_scratch, args.threads});
    for (const Widened& half : outs) {
      const auto* from = reinterpret_cast<const float*>(args.scratch + half.offset_bytes);
      auto* to = args.out<uint16_t>(half.index);
      in_parts(args.threads, half.elements, [&](int64_t begin, int64_t end) {
        narrow(half.dtype, from + begin, to + begin, end - begin);
      });
    }
  };
  return {run, static_cast<size_t>(inner_scratch) + prepared.scratch_bytes};
}

}  // namespace poptorch::ops

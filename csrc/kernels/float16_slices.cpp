// Calls of 16-bit floats cut along their leading dimensions. Ops of the table below treat slices
// one by one; so a few of them at a time are upcast, computed and rounded by one thread, in memory
// that stays in its first cache, where whole f32 tensors would go through main memory three times.
#include <algorithm>
#include <unordered_map>

#include "kernels/float16.h"
#include "kernels/float16_blocks.h"
#include "ops/layout.h"
#include "support/ceil_div.h"
#include "support/memory/align.h"
#include "support/parallel.h"
#include "support/settings/switches.h"

namespace poptorch::kernels {

namespace {

using ir::Dims;

constexpr int64_t block_elements = 1024;  // of one tensor
constexpr int64_t grain_elements = 16384;

// How many leading dimensions of the first result the op goes through one index at a time.
using Leading = int64_t (*)(const Call&);

int64_t before_dim(const Call& call) {
  return ops::wrap_dim({call.op}, call.attrs().get_int(ir::attr::dim), call.out().rank());
}

int64_t before_normalized(const Call& call) {
  const auto dims = call.attrs().get_ints(ir::attr::normalized_shape);
  return call.out().rank() - static_cast<int64_t>(dims.size());
}

// Pooling: image by image and channel by channel, where a channel lies in one piece.
int64_t before_images(const Call& call) {
  return call.out().rank() - (ops::is_channels_last(call.op) ? 3 : 2);
}

const std::unordered_map<ir::OpName, Leading>& table() {
  static const std::unordered_map<ir::OpName, Leading> leading = {
      {ir::op::_softmax, before_dim},
      {ir::op::_safe_softmax, before_dim},
      {ir::op::_log_softmax, before_dim},
      {ir::op::_softmax_backward_data, before_dim},
      {ir::op::_log_softmax_backward_data, before_dim},
      {ir::op::native_layer_norm, before_normalized},
      {ir::op::max_pool2d, before_images},
      {ir::op::max_pool2d_backward, before_images},
      {ir::op::avg_pool2d, before_images},
      {ir::op::avg_pool2d_backward, before_images},
      {ir::op::adaptive_max_pool2d, before_images},
      {ir::op::adaptive_max_pool2d_backward, before_images},
      {ir::op::adaptive_avg_pool2d, before_images},
      {ir::op::adaptive_avg_pool2d_backward, before_images},
      {ir::op::upsample_nearest2d, before_images},
      {ir::op::upsample_nearest2d_backward, before_images},
      {ir::op::upsample_bilinear2d, before_images},
      {ir::op::upsample_bilinear2d_backward, before_images}};
  return leading;
}

// An operand or result: cut along the leading dimensions, or the same for all slices.
struct Tensor {
  size_t index = 0;
  bool present = false, cut = false;
  int64_t elements = 0;  // of one slice; of the whole tensor when it is not cut
  int64_t item_bytes = 0;
  Upcast upcast = nullptr;
  Downcast downcast = nullptr;
  int64_t offset_bytes = 0;  // of its f32 copy in scratch: one thread's, or the shared part

  int64_t f32_bytes(int64_t slices) const {
    return upcast == nullptr ? 0 : align_up(elements * (cut ? slices : 1) * 4);
  }
};

bool is_cut(const ir::Type& type, const Dims& sizes, int64_t leading) {
  return type.rank() == static_cast<int64_t>(sizes.size()) &&
         std::equal(sizes.begin(), sizes.begin() + leading, type.sizes.begin());
}

struct Slices {
  int64_t leading = 0, count = 1, in_block = 1;
  std::vector<Tensor> ins, outs;

  Slices(const Call& call, int64_t leading_dims) : leading(leading_dims) {
    const Dims& sizes = call.out().sizes;
    for (int64_t d = 0; d < leading; ++d) count *= sizes[static_cast<size_t>(d)];
    for (size_t i = 0; i < call.in_count(); ++i) {
      ins.push_back(call.has_in(i) ? tensor(i, call.in(i), sizes) : Tensor{.index = i});
    }
    for (size_t i = 0; i < call.op.results.size(); ++i) {
      outs.push_back(tensor(i, call.out(i), sizes));
    }
    int64_t largest = 1;
    for (const auto* list : {&ins, &outs}) {
      for (const Tensor& t : *list) largest = std::max(largest, t.cut ? t.elements : 0);
    }
    in_block = std::clamp<int64_t>(block_elements / largest, 1, std::max<int64_t>(count, 1));
  }

  Tensor tensor(size_t index, const ir::Type& type, const Dims& sizes) const {
    const bool cut = is_cut(type, sizes, leading);
    return {index, true, cut, cut && count > 0 ? type.numel() / count : type.span(),
            ir::item_bytes(type.dtype), upcast_from(type.dtype), downcast_to(type.dtype), 0};
  }

  // What cannot be cut: results that slices add up in, and tensors that are not row-major.
  bool possible(const Call& call) const {
    for (const Tensor& t : outs) {
      if (!t.cut || !call.out(t.index).is_contiguous()) return false;
    }
    for (const Tensor& t : ins) {
      if (t.cut && !call.in(t.index).is_contiguous()) return false;
    }
    return true;
  }
};

// The op on `slices` slices, in f32.
Prepared prepare_block(const Call& call, const Slices& s, int64_t slices, ops::Prepare inner) {
  UpcastOp wide(call.op);
  const auto cut = [&](ir::Type& type) {
    for (int64_t d = 0; d < s.leading; ++d) {
      type.sizes[static_cast<size_t>(d)] = d + 1 == s.leading ? slices : 1;
    }
    type.strides.clear();
  };
  for (const Tensor& t : s.ins) {
    if (t.cut) cut(wide.operands[t.index]->type);
  }
  for (const Tensor& t : s.outs) cut(wide.op.results[t.index]->type);
  return inner({wide.op, 1});
}

// Where a thread keeps what it works on.
struct Memory {
  int64_t shared = 0;      // f32 copies of what is not cut
  int64_t pointers = 0;    // in a thread's part: the arrays that the kernel is given
  int64_t inner = 0;       // its scratch
  int64_t per_thread = 0;

  int64_t bytes(int threads) const { return shared + threads * per_thread; }
};

Memory lay_out(Slices& s, size_t inner_scratch) {
  Memory memory;
  for (auto* list : {&s.ins, &s.outs}) {
    for (Tensor& t : *list) {
      int64_t& end = t.cut ? memory.pointers : memory.shared;
      t.offset_bytes = end;
      end += t.f32_bytes(s.in_block);
    }
  }
  const auto arrays = static_cast<int64_t>((s.ins.size() + s.outs.size()) * sizeof(void*));
  memory.inner = memory.pointers + align_up(arrays);
  memory.per_thread = memory.inner + align_up(static_cast<int64_t>(inner_scratch));
  return memory;
}

struct Sliced {
  Slices slices;
  Memory memory;
  ops::Run block, last;  // on a full block, on what is left

  void run_block(const Args& args, std::byte* own, int64_t first, int64_t n) const {
    void** inputs = reinterpret_cast<void**>(own + memory.pointers);
    void** outputs = inputs + slices.ins.size();
    for (const Tensor& t : slices.ins) {
      auto* from = static_cast<std::byte*>(args.inputs[t.index]);
      if (t.cut && t.present) from += first * t.elements * t.item_bytes;
      inputs[t.index] = from;
      if (t.upcast == nullptr) continue;
      std::byte* to = (t.cut ? own : args.scratch) + t.offset_bytes;
      inputs[t.index] = to;
      if (!t.cut) continue;
      t.upcast(reinterpret_cast<const uint16_t*>(from), reinterpret_cast<float*>(to),
               n * t.elements);
    }
    for (const Tensor& t : slices.outs) {
      outputs[t.index] = t.downcast != nullptr ? own + t.offset_bytes : result(args, t, first);
    }
    (n == slices.in_block ? block : last)({inputs, outputs, own + memory.inner, 1});
    for (const Tensor& t : slices.outs) {
      if (t.downcast == nullptr) continue;
      t.downcast(reinterpret_cast<const float*>(own + t.offset_bytes),
                 reinterpret_cast<uint16_t*>(result(args, t, first)), n * t.elements);
    }
  }

  static std::byte* result(const Args& args, const Tensor& t, int64_t first) {
    return args.out<std::byte>(t.index) + first * t.elements * t.item_bytes;
  }

  void operator()(const Args& args) const {
    for (const Tensor& t : slices.ins) {
      if (t.cut || t.upcast == nullptr) continue;
      t.upcast(args.in<uint16_t>(t.index), reinterpret_cast<float*>(args.scratch + t.offset_bytes),
               t.elements);
    }
    const int64_t blocks = ceil_div(slices.count, slices.in_block);
    const int64_t elements = slices.count * std::max<int64_t>(slices.outs[0].elements, 1);
    const int64_t parts = std::clamp<int64_t>(elements / grain_elements, 1, args.threads);
    parallel_parts(args.threads, parts, blocks, [&](int64_t part, int64_t begin, int64_t end) {
      std::byte* own = args.scratch + memory.shared + part * memory.per_thread;
      for (int64_t b = begin; b < end; ++b) {
        const int64_t first = b * slices.in_block;
        run_block(args, own, first, std::min(slices.in_block, slices.count - first));
      }
    });
  }
};

}  // namespace

Prepared prepare_sliced(const Call& call, ops::Prepare inner) {
  const auto row = table().find(call.op.name);
  if (row == table().end() || !is_on("blocked_upcast")) return {};
  const int64_t leading = row->second(call);
  Slices slices(call, leading);
  // A tensor or two that the caches hold: whole ones are as fast.
  if (leading < 1 || slices.count < 2 || slices.in_block == slices.count) return {};
  if (!slices.possible(call)) return {};
  const Prepared block = prepare_block(call, slices, slices.in_block, inner);
  const int64_t rest = slices.count % slices.in_block;
  const Prepared last = rest == 0 ? block : prepare_block(call, slices, rest, inner);
  const Memory memory = lay_out(slices, std::max(block.scratch_bytes, last.scratch_bytes));
  return {Sliced{std::move(slices), memory, block.run, last.run},
          static_cast<size_t>(memory.bytes(call.threads)), block.algorithm};
}

}  // namespace poptorch::kernels

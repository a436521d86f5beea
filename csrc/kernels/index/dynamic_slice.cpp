// dynamic_slice, dynamic_update: a part of a tensor whose start is known at run time.
#include <cstring>

#include "kernels/along_dim.h"
#include "kernels/index/rows.h"
#include "kernels/reduction/types.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

namespace {

// Where the part lies in the tensor; counts are entries of the dimension.
struct Part {
  AlongDim along;
  int64_t size, step, count, row_bytes;

  Part(const Call& call, const ir::Type& whole)
      : along(call, whole),
        size(call.attrs().get_int(ir::attr::size)),
        step(call.attrs().get_int(ir::attr::step)),
        count((size - 1) / step + 1),
        row_bytes(along.inner * ir::item_bytes(whole.dtype)) {}

  // The first entry, or a user error when the part is not inside.
  int64_t first(const std::string& op, int64_t start) const {
    const int64_t at = start < 0 ? start + along.n : start;
    USER_CHECK(at >= 0 && at <= along.n - size, "[", op, "] start ", start, " with size ", size,
               " is out of range: dimension ", along.dim, " has ", along.n, " entries, so 0 to ",
               along.n - size, " (or ", -along.n, " to ", -size,
               ", counted from the end) are allowed. Check where the start comes from.");
    return at;
  }

  // Calls move(whole, part, bytes) with the bytes that lie together: places in the two tensors.
  void each(int64_t first, int threads, const auto& move) const {
    const int64_t rows = step == 1 ? 1 : count, bytes = step == 1 ? count * row_bytes : row_bytes;
    parallel_for(threads, along.outer * rows, grain_for(bytes / 4), [&](int64_t i) {
      const int64_t outer = i / rows, row = i % rows;
      move((outer * along.n + first + row * step) * row_bytes,
           (outer * count + row) * row_bytes, bytes);
    });
  }
};

Prepared dynamic_slice(const Call& call) {
  const Part part(call, call.in(0));
  return with_index_type(call, call.in(1).dtype, [&]<typename Index>(Index) -> Prepared {
    return {[part](const Args& args) {
      const auto* x = args.in<std::byte>(0);
      auto* out = args.out<std::byte>();
      const int64_t first = part.first("dynamic_slice", *args.in<Index>(1));
      part.each(first, args.threads, [=](int64_t whole, int64_t own, int64_t bytes) {
        std::memcpy(out + own, x + whole, static_cast<size_t>(bytes));
      });
    }};
  });
}

Prepared dynamic_update(const Call& call) {
  const Part part(call, call.in(0));
  const int64_t bytes_of_all = call.in(0).bytes();
  return with_index_type(call, call.in(2).dtype, [&]<typename Index>(Index) -> Prepared {
    return {[part, bytes_of_all](const Args& args) {
      const int64_t first = part.first("dynamic_update", *args.in<Index>(2));
      copy_unless_same(args, bytes_of_all);
      const auto* src = args.in<std::byte>(1);
      auto* out = args.out<std::byte>();
      part.each(first, args.threads, [=](int64_t whole, int64_t own, int64_t bytes) {
        std::memcpy(out + whole, src + own, static_cast<size_t>(bytes));
      });
    }};
  });
}

KERNEL("dynamic_slice", dynamic_slice, true)
KERNEL("dynamic_update", dynamic_update, true)

}  // namespace

}  // namespace poptorch::kernels

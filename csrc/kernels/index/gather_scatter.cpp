// gather, scatter, scatter_add, index_select, index_add: positions along one dimension; bincount.
#include "kernels/along_dim.h"
#include "kernels/index/lines.h"
#include "kernels/reduction/types.h"
#include "ops/kernel.h"

namespace poptorch::kernels {

namespace {

// One line of a gather; a loop of its own for lines along the indexed dimension, where it is the
// last one.
template <typename T, typename Index>
void gather_line(const Lines& lines, const T* from, const Index* at, T* to) {
  if (lines.step == 0 && lines.along == 1) {
    for (int64_t j = 0; j < lines.length; ++j) to[j] = from[at[j]];
  } else {
    for (int64_t j = 0; j < lines.length; ++j) to[j] = from[at[j] * lines.along + j * lines.step];
  }
}

template <typename T, bool add>
Prepared scatter_typed(const Call& call) {
  const Lines lines(call, call.in(0), call.in(1), call.in(2));
  const auto run = [lines, bytes = call.in(0).bytes()](const Args& args) {
    copy_unless_same(args, bytes);
    T* out = args.out<T>();
    const T* src = args.in<T>(2);
    const auto write = [=](int64_t to, int64_t from) {
      out[to] = add ? static_cast<T>(out[to] + src[from]) : src[from];
    };
    scatter_lines(add ? "scatter_add" : "scatter", lines, args, write);
  };
  return {run};
}

template <typename T, typename Index>
Prepared gather_typed(const Call& call) {
  const Lines lines(call, call.in(0), call.in(1), call.in(1));
  const auto run = [lines](const Args& args) {
    const Index* index = args.in<Index>(1);
    const T* x = args.in<T>(0);
    T* out = args.out<T>();
    IndexGuard guard;
    parallel_for(args.threads, lines.count, grain_for(lines.length), [&](int64_t line) {
      const int64_t first = line * lines.length;
      const Index* at = index + first;
      if (!guard.allows_all(at, lines.length, lines.size, first)) return;
      gather_line(lines, x + lines.outer.start(line).self, at, out + first);
    });
    guard.check("gather", index, 0, lines.size, lines.dim);
  };
  return {run};
}

Prepared gather(const Call& call) {
  return with_index_type(call, call.in(1).dtype, [&]<typename Index>(Index) {
    return with_item_type(ir::item_bytes(call.in(0).dtype),
                          [&]<typename T>(T) { return gather_typed<T, Index>(call); });
  });
}

Prepared scatter(const Call& call) {
  return with_item_type(ir::item_bytes(call.in(0).dtype),
                        [&]<typename T>(T) { return scatter_typed<T, false>(call); });
}

Prepared scatter_add(const Call& call) {
  return with_type(call.in(0).dtype,
                   [&]<typename T>(T) { return scatter_typed<T, true>(call); });
}

Prepared index_select(const Call& call) {
  const AlongDim a(call, call.in(0));
  const int64_t row_bytes = a.inner * ir::item_bytes(call.in(0).dtype), n = call.in(1).numel();
  return with_index_type(call, call.in(1).dtype, [&]<typename Index>(Index) -> Prepared {
    return {[=](const Args& args) {
      const Index* index = args.in<Index>(1);
      check_indices("index_select", index, n, 0, a.n, a.dim);
      take_rows(args.out<std::byte>(), args.in<std::byte>(0), index, a.outer, n, a.n, row_bytes,
                args.threads);
    }};
  });
}

Prepared index_add(const Call& call) {
  const AlongDim a(call, call.in(0));
  const int64_t n = call.in(1).numel(), bytes = call.in(0).bytes();
  const double alpha = call.attrs().get_float(ir::attr::alpha);
  const bool is_vector = call.in(0).rank() <= 1;
  return with_type(call.in(0).dtype, [&, dtype = call.in(1).dtype]<typename T>(T) -> Prepared {
    const auto run = [=](const Args& args) {
      if (bytes == 0 && !is_vector) return;  // eager looks at no index either
      const int64_t* index =
          Indices(args.inputs[1], dtype).read(0, n, reinterpret_cast<int64_t*>(args.scratch));
      check_indices("index_add", index, n, 0, a.n, a.dim);
      copy_unless_same(args, bytes);
      const auto add = [&](int64_t outer, int threads) {
        add_rows(args.out<T>() + outer * a.n * a.inner, a.n,
                 args.in<T>(2) + outer * n * a.inner, index, n, a.inner, static_cast<T>(alpha),
                 threads);
      };
      if (a.outer == 1) return add(0, args.threads);
      parallel_for(args.threads, a.outer, grain_for(n * a.inner), [&](int64_t outer) {
        add(outer, 1);
      });
    };
    return {run, dtype == ir::DType::i64 ? 0 : static_cast<size_t>(n) * sizeof(int64_t)};
  });
}

template <typename T>
Prepared bincount_typed(const Call& call) {
  const int64_t n = call.in(0).numel(), length = call.out().numel();
  const bool is_weighted = call.has_in(1);
  return {[=, dtype = call.in(0).dtype](const Args& args) {
    const Indices numbers(args.inputs[0], dtype);
    const T* weights = is_weighted ? args.in<T>(1) : nullptr;
    T* out = args.out<T>();
    std::fill_n(out, length, T{});
    for (int64_t i = 0; i < n; ++i) {
      const int64_t number = numbers[i];
      USER_CHECK(number >= 0 && number < length, "[bincount] the number ", number, " (entry ", i,
                 ") is out of range: minlength is ", length, ", so 0 to ", length - 1,
                 " can be counted. Pass minlength: one more than the largest number.");
      const T one = is_weighted ? weights[i] : T{1};
      out[number] = static_cast<T>(out[number] + one);
    }
  }};
}

Prepared bincount(const Call& call) {
  return with_type(call.out().dtype, [&]<typename T>(T) { return bincount_typed<T>(call); });
}

KERNEL("gather", gather, true)
KERNEL("scatter", scatter, true)
KERNEL("scatter_add", scatter_add)
KERNEL("index_select", index_select, true)
KERNEL("index_add", index_add)
KERNEL("bincount", bincount)

}  // namespace

}  // namespace poptorch::kernels

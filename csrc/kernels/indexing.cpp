// gather, scatter, scatter_add, index_select, index_add: positions along one dimension.
#include "kernels/indexing_rows.h"
#include "kernels/reduction_types.h"
#include "kernels/shape_copy.h"
#include "ops/kernel.h"
#include "ops/reduction.h"

namespace poptorch::kernels {

namespace {

using ir::Dims;
using ir::Type;
using ops::Args;
using ops::Call;
using ops::Prepared;

// The entries of an index tensor as lines along its last dimension, and where each line starts in
// `self` (position 0 of the indexed dimension) and in `src`.
struct Lines {
  int64_t count = 1, length = 1;
  int64_t size = 1, along = 1;  // entries and stride of the indexed dimension of self
  int64_t step = 0;             // stride of self along a line; 0 when that is the indexed dimension
  int64_t groups = 1;           // consecutive lines fall into groups that share no entry of self
  int64_t dim = 0;
  struct Dim {
    int64_t size, self, src;
  };
  std::vector<Dim> outer;

  struct Start {
    int64_t self, src;
  };
  Start start(int64_t line) const {
    Start at{0, 0};
    for (size_t d = outer.size(); d-- > 0;) {
      const int64_t i = line % outer[d].size;
      line /= outer[d].size;
      at.self += i * outer[d].self;
      at.src += i * outer[d].src;
    }
    return at;
  }
};

Dims at_least_one(const Dims& sizes) { return sizes.empty() ? Dims{1} : sizes; }

Lines lines_of(const Call& call, const Type& self, const Type& index, const Type& src) {
  Lines lines;
  lines.dim = ops::single_dim({call.op}, self);
  const Dims sizes = at_least_one(index.sizes), self_sizes = at_least_one(self.sizes);
  const Dims self_strides = ir::contiguous_strides(self_sizes);
  const Dims src_strides = ir::contiguous_strides(at_least_one(src.sizes));
  const int64_t last = static_cast<int64_t>(sizes.size()) - 1;
  lines.length = sizes[last];
  lines.size = self_sizes[lines.dim];
  lines.along = self_strides[lines.dim];
  lines.step = lines.dim == last ? 0 : 1;
  for (int64_t d = 0; d < last; ++d) {
    lines.count *= sizes[d];
    if (d < lines.dim) lines.groups *= sizes[d];
    lines.outer.push_back({sizes[d], d == lines.dim ? 0 : self_strides[d], src_strides[d]});
  }
  return lines;
}

// The result starts as operand 0, whose memory it may have been given.
void copy_unless_same(const Args& args, int64_t bytes) {
  if (args.inputs[0] != args.outputs[0]) {
    copy_bytes(args.outputs[0], args.inputs[0], bytes, args.threads);
  }
}

template <typename T, typename Index>
Prepared gather_typed(const Call& call) {
  const Lines lines = lines_of(call, call.in(0), call.in(1), call.in(1));
  const auto run = [lines](const Args& args) {
    const Index* index = args.in<Index>(1);
    check_indices("gather", index, lines.count * lines.length, 0, lines.size, lines.dim);
    const T* x = args.in<T>(0);
    T* out = args.out<T>();
    parallel_for(args.threads, lines.count, grain_for(lines.length),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t line = begin; line < end; ++line) {
                     const T* from = x + lines.start(line).self;
                     const Index* at = index + line * lines.length;
                     T* to = out + line * lines.length;
                     for (int64_t j = 0; j < lines.length; ++j)
                       to[j] = from[at[j] * lines.along + j * lines.step];
                   }
                 });
  };
  return {run};
}

// Units are groups of lines, cut along the lines where that keeps targets apart.
template <typename T, typename Index, typename Write>
void scatter_lines(const Lines& lines, T* out, const Index* index, const T* src, int threads,
                   const Write& write) {
  constexpr int64_t cut = 512;
  const int64_t cuts = lines.step == 0 ? 1 : (lines.length + cut - 1) / cut;
  const int64_t width = cuts == 1 ? lines.length : cut;
  const int64_t in_group = lines.groups == 0 ? 0 : lines.count / lines.groups;
  parallel_for(
      threads, lines.groups * cuts, grain_for(in_group * width), [&](int64_t begin, int64_t end) {
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t group = unit / cuts, first = unit % cuts * width;
          const int64_t last = std::min(lines.length, first + width);
          for (int64_t line = group * in_group; line < (group + 1) * in_group; ++line) {
            const auto start = lines.start(line);
            const Index* at = index + line * lines.length;
            for (int64_t j = first; j < last; ++j) {
              write(out[start.self + at[j] * lines.along + j * lines.step], src[start.src + j]);
            }
          }
        }
      });
}

template <typename T, typename Index, bool add>
Prepared scatter_typed(const Call& call) {
  const Lines lines = lines_of(call, call.in(0), call.in(1), call.in(2));
  const auto run = [lines, n = call.in(1).numel(), bytes = call.in(0).bytes()](const Args& args) {
    const Index* index = args.in<Index>(1);
    check_indices(add ? "scatter_add" : "scatter", index, n, 0, lines.size, lines.dim);
    copy_unless_same(args, bytes);
    scatter_lines(lines, args.out<T>(), index, args.in<T>(2), args.threads, [](T& to, T from) {
      if constexpr (add) {
        to = static_cast<T>(to + from);
      } else {
        to = from;
      }
    });
  };
  return {run};
}

// Calls fn(T{}, Index{}) with an unsigned T of the item size.
template <typename Fn>
Prepared by_size_and_index(const Call& call, const Fn& fn) {
  return with_index_type(call, call.in(1).dtype, [&]<typename Index>(Index index) {
    switch (ir::item_bytes(call.in(0).dtype)) {
      case 1: return fn(uint8_t{}, index);
      case 2: return fn(uint16_t{}, index);
      case 4: return fn(uint32_t{}, index);
      default: return fn(uint64_t{}, index);
    }
  });
}

Prepared gather(const Call& call) {
  return by_size_and_index(
      call, [&]<typename T, typename Index>(T, Index) { return gather_typed<T, Index>(call); });
}

Prepared scatter(const Call& call) {
  return by_size_and_index(call, [&]<typename T, typename Index>(T, Index) {
    return scatter_typed<T, Index, false>(call);
  });
}

template <typename Fn>
Prepared by_type_and_index(const Call& call, const Fn& fn) {
  return with_index_type(call, call.in(1).dtype, [&]<typename Index>(Index index) {
    return with_type(call.in(0).dtype, [&]<typename T>(T) { return fn(T{}, index); });
  });
}

Prepared scatter_add(const Call& call) {
  return by_type_and_index(call, [&]<typename T, typename Index>(T, Index) {
    return scatter_typed<T, Index, true>(call);
  });
}

// [outer, size, inner] around the indexed dimension.
struct Around {
  int64_t outer = 1, size = 1, inner = 1, dim = 0;
};

Around around(const Call& call) {
  const Type& x = call.in(0);
  Around a;
  a.dim = ops::single_dim({call.op}, x);
  for (int64_t d = 0; d < x.rank(); ++d) {
    (d < a.dim ? a.outer : d == a.dim ? a.size : a.inner) *= x.sizes[d];
  }
  return a;
}

Prepared index_select(const Call& call) {
  const Around a = around(call);
  const int64_t row_bytes = a.inner * ir::item_bytes(call.in(0).dtype), n = call.in(1).numel();
  return with_index_type(call, call.in(1).dtype, [&]<typename Index>(Index) -> Prepared {
    return {[=](const Args& args) {
      const Index* index = args.in<Index>(1);
      check_indices("index_select", index, n, 0, a.size, a.dim);
      take_rows(args.out<std::byte>(), args.in<std::byte>(0), index, a.outer, n, a.size, row_bytes,
                args.threads);
    }};
  });
}

Prepared index_add(const Call& call) {
  const Around a = around(call);
  const int64_t n = call.in(1).numel(), bytes = call.in(0).bytes();
  const double alpha = call.attrs().get_float("alpha");
  return by_type_and_index(call, [&]<typename T, typename Index>(T, Index) -> Prepared {
    return {[=](const Args& args) {
      const Index* index = args.in<Index>(1);
      check_indices("index_add", index, n, 0, a.size, a.dim);
      copy_unless_same(args, bytes);
      const auto add = [&](int64_t outer, int threads) {
        add_rows(args.out<T>() + outer * a.size * a.inner, a.size,
                 args.in<T>(2) + outer * n * a.inner, index, n, a.inner, static_cast<T>(alpha),
                 threads);
      };
      if (a.outer == 1) return add(0, args.threads);
      parallel_for(args.threads, a.outer, grain_for(n * a.inner), [&](int64_t begin, int64_t end) {
        for (int64_t outer = begin; outer < end; ++outer) add(outer, 1);
      });
    }};
  });
}

KERNEL("gather", gather, true)
KERNEL("scatter", scatter, true)
KERNEL("scatter_add", scatter_add)
KERNEL("index_select", index_select, true)
KERNEL("index_add", index_add)

}  // namespace

}  // namespace poptorch::kernels

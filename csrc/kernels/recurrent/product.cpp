#include "kernels/recurrent/product.h"

#include <algorithm>
#include <type_traits>

#include "kernels/gemm/gemm.h"
#include "support/memory/align.h"
#include "support/settings/switches.h"

namespace poptorch::kernels {
namespace {

// Large enough for a BLAS kernel, small enough to spread over threads.
int64_t units_of_block(int64_t batch, int64_t hidden, int64_t columns) {
  const int64_t few = batch <= 64 ? 64 : batch <= 256 ? 32 : 16;
  return columns == 1 && hidden >= 256 ? 2 * few : few;
}

// Fewer entries of a thread would be slow by themselves.
constexpr int64_t least_entries = 8;
// Bytes of weights that each thread reads by itself in each step: they are to stay in the second
// cache of its core. With three times as many, sharing entries took 1.06 times as long.
constexpr size_t most_weights = 1 << 20;

}  // namespace

template <typename T>
RecurrentProduct<T>::RecurrentProduct(Side side, int64_t rows, int64_t depth, int64_t hidden,
                                      int64_t gates, int64_t batch)
    : forward_(side == Side::forward),
      packs_(std::is_same_v<T, float> && has_packed_gemm()),
      rows_(rows),
      batch_(batch),
      depth_(depth),
      hidden_(hidden),
      columns_(forward_ ? gates : 1),
      units_(std::min(hidden, units_of_block(batch, hidden, columns_))) {}

template <typename T>
bool RecurrentProduct<T>::shares_entries(int threads) const {
  return is_on("recurrent_entries") && packs_ && batch_ >= least_entries * threads &&
         weight_bytes() <= most_weights;
}

template <typename T>
int64_t RecurrentProduct<T>::block_grain() const {
  const int64_t work = rows_ * units_ * columns_ * depth_;
  return std::max<int64_t>(1, gemm_grain / std::max<int64_t>(1, work));
}

template <typename T>
int64_t RecurrentProduct<T>::entry_grain(int64_t time) const {
  const int64_t work = time * hidden_ * columns_ * depth_;
  return std::max<int64_t>(1, gemm_grain / std::max<int64_t>(1, work));
}

template <typename T>
PackedGemm RecurrentProduct<T>::packed(int64_t units, int64_t rows) const {
  return {rows, depth_, columns_, units};
}

// Scratch: packed blocks, then products.
template <typename T>
size_t RecurrentProduct<T>::packed_bytes() const {
  return packs_ ? kernels::packed_bytes(packed(units_, rows_)) : 0;
}

template <typename T>
size_t RecurrentProduct<T>::scratch_bytes() const {
  return weight_bytes() +
         align_up(static_cast<size_t>(rows_ * hidden_ * columns_) * sizeof(T));
}

template <typename T>
typename RecurrentProduct<T>::Block RecurrentProduct<T>::block(int64_t index, const T* w,
                                                               std::byte* scratch) const {
  const int64_t unit = index * units_;
  const int64_t units = std::min(units_, hidden_ - unit);
  const size_t bytes = packed_bytes();
  T* products = reinterpret_cast<T*>(scratch + weight_bytes());
  return {unit,
          units,
          units * columns_,
          products + unit * columns_ * rows_,
          w + unit * (forward_ ? depth_ : 1),
          scratch + bytes * static_cast<size_t>(index)};
}

template <typename T>
void RecurrentProduct<T>::pack(const T* w, std::byte* scratch, int threads) const {
  if constexpr (std::is_same_v<T, float>) {
    if (!packs_) return;
    parallel_for(threads, block_count(), 1, [&](int64_t index) {
      const Block b = block(index, w, scratch);
      pack_weights(packed(b.units, rows_), {b.weights, hidden_ * depth_, stride(), forward_},
                   reinterpret_cast<float*>(b.packed));
    });
  }
}

template <typename T>
void RecurrentProduct<T>::multiply(const Block& b, const T* a, int64_t stride_a, Range rows) const {
  a += rows.begin * stride_a;
  T* product = b.product + rows.begin * b.width;
  if (depth_ == 0) return static_cast<void>(std::fill_n(product, rows.count() * b.width, T{0}));
  if constexpr (std::is_same_v<T, float>) {
    if (packs_) {
      return packed_gemm(packed(b.units, rows.count()), a, stride_a,
                         reinterpret_cast<const float*>(b.packed), product);
    }
  }
  for (int64_t gate = 0; gate < columns_; ++gate) {
    gemm<T>({rows.count(), b.units, depth_, false, forward_, stride_a, stride(), b.width}, a,
            b.weights + gate * hidden_ * depth_, product + gate * b.units, 1);
  }
}

template class RecurrentProduct<float>;
template class RecurrentProduct<double>;

}  // namespace poptorch::kernels

#include "kernels/recurrent_product.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/blas.h"
#include "kernels/gemm.h"
#include "support/align.h"
#include "support/parallel.h"

namespace poptorch::kernels {
namespace {

// MKL's packed products. Matrix identifiers and layouts are numbers of the CBLAS interface.
constexpr int row_major = 101, not_transposed = 111, transposed = 112, packed = 151, second = 162;

struct PackedGemm {
  size_t (*size)(int matrix, int m, int n, int k) =
      find_symbol<decltype(size)>("cblas_sgemm_pack_get_size");
  void (*pack)(int layout, int matrix, int trans, int m, int n, int k, float alpha,
               const float* from, int stride, float* to) =
      find_symbol<decltype(pack)>("cblas_sgemm_pack");
  void (*compute)(int layout, int trans_a, int trans_b, int m, int n, int k, const float* a,
                  int lda, const float* b, int ldb, float beta, float* c, int ldc) =
      find_symbol<decltype(compute)>("cblas_sgemm_compute");

  bool found() const { return size != nullptr && pack != nullptr && compute != nullptr; }
};

const PackedGemm& packed_gemm() {
  static const PackedGemm functions;
  return functions;
}

// Large enough for a BLAS kernel, small enough to spread over threads.
int64_t units_of_block(int64_t batch, int64_t hidden, int64_t columns) {
  const int64_t few = batch <= 64 ? 64 : batch <= 256 ? 32 : 16;
  return columns == 1 && hidden >= 256 ? 2 * few : few;
}

}  // namespace

template <typename T>
RecurrentProduct<T>::RecurrentProduct(Side side, int64_t rows, int64_t depth, int64_t hidden,
                                      int64_t gates, int64_t batch)
    : forward_(side == Side::forward),
      rows_(rows),
      depth_(depth),
      hidden_(hidden),
      gates_(gates),
      columns_(forward_ ? gates : 1),
      units_(std::min(hidden, units_of_block(batch, hidden, columns_))) {}

template <typename T>
int64_t RecurrentProduct<T>::grain() const {
  const int64_t work = rows_ * units_ * columns_ * depth_;
  return std::max<int64_t>(1, gemm_grain / std::max<int64_t>(1, work));
}

template <typename T>
bool RecurrentProduct<T>::is_packed() const {
  return std::is_same_v<T, float> && packed_gemm().found() && rows_ > 0 && depth_ > 0;
}

template <typename T>
size_t RecurrentProduct<T>::packed_bytes() const {
  if (!is_packed()) return 0;
  return align_up(packed_gemm().size(second, static_cast<int>(rows_),
                                     static_cast<int>(units_ * columns_),
                                     static_cast<int>(depth_)));
}

// Scratch: packed blocks, then products, then (forward) the weights with a block's rows together.
template <typename T>
size_t RecurrentProduct<T>::scratch_bytes() const {
  const int64_t numbers = rows_ * hidden_ * columns_ + (forward_ ? gates_ * hidden_ * depth_ : 0);
  return packed_bytes() * static_cast<size_t>(block_count()) +
         align_up(static_cast<size_t>(numbers) * sizeof(T));
}

template <typename T>
typename RecurrentProduct<T>::Block RecurrentProduct<T>::block(int64_t index, const T* w,
                                                               std::byte* scratch) const {
  const int64_t unit = index * units_;
  const int64_t units = std::min(units_, hidden_ - unit);
  T* products = reinterpret_cast<T*>(scratch + packed_bytes() * static_cast<size_t>(block_count()));
  const T* gathered = products + rows_ * hidden_ * columns_;
  return {unit,
          units,
          units * columns_,
          products + unit * columns_ * rows_,
          forward_ ? gathered + unit * gates_ * depth_ : w + unit,
          scratch + packed_bytes() * static_cast<size_t>(index)};
}

template <typename T>
void RecurrentProduct<T>::pack(const T* w, std::byte* scratch, int threads) const {
  parallel_for(threads, block_count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const Block b = block(index, w, scratch);
      for (int64_t gate = 0; forward_ && depth_ > 0 && gate < gates_; ++gate) {
        std::memcpy(const_cast<T*>(b.weights) + gate * b.units * depth_,
                    w + (gate * hidden_ + b.unit) * depth_,
                    static_cast<size_t>(b.units * depth_) * sizeof(T));
      }
      if constexpr (std::is_same_v<T, float>) {
        if (!is_packed()) continue;
        const SingleThreadedBlas single;
        packed_gemm().pack(row_major, second, forward_ ? transposed : not_transposed,
                           static_cast<int>(rows_), static_cast<int>(b.width),
                           static_cast<int>(depth_), 1, b.weights, static_cast<int>(stride()),
                           reinterpret_cast<float*>(b.packed));
      }
    }
  });
}

template <typename T>
void RecurrentProduct<T>::multiply(const Block& b, const T* a, int64_t stride_a) const {
  if constexpr (std::is_same_v<T, float>) {
    if (is_packed()) {
      const SingleThreadedBlas single;
      packed_gemm().compute(row_major, not_transposed, packed, static_cast<int>(rows_),
                            static_cast<int>(b.width), static_cast<int>(depth_), a,
                            static_cast<int>(stride_a), reinterpret_cast<const float*>(b.packed),
                            static_cast<int>(stride()), 0, b.product, static_cast<int>(b.width));
      return;
    }
  }
  if (depth_ == 0) return static_cast<void>(std::fill_n(b.product, rows_ * b.width, T{0}));
  gemm<T>({rows_, b.width, depth_, false, forward_, stride_a, stride(), b.width}, a, b.weights,
          b.product, 1);
}

template class RecurrentProduct<float>;
template class RecurrentProduct<double>;

}  // namespace poptorch::kernels

// The images of batch norm as its loops see them: where they lie or, for 16-bit floats, upcast
// block by block in memory of the thread, which stays in the caches where f32 copies of whole
// images would not.
#pragma once

#include <algorithm>
#include <array>

#include "kernels/float16_blocks.h"
#include "kernels/rows/rows.h"
#include "support/thread_memory.h"

namespace poptorch::kernels {

// Some entries of the images: one run of them, or some columns of some rows.
struct ImageBlock {
  int64_t at, rows, stride, columns;
};

template <typename T>
class Images {
 public:
  // T is float for 16-bit floats.
  explicit Images(ir::DType dtype) {
    if (!ir::is_half(dtype)) return;
    upcast_ = upcast_rows_from(dtype);
    downcast_ = downcast_to(dtype);
  }

  // The block as the loops see it, in what `read` and `target` give.
  ImageBlock seen(const ImageBlock& block) const {
    return upcast_ == nullptr ? block : ImageBlock{0, block.rows, block.columns, block.columns};
  }

  // An image's entries of a block; nullptr: there is no such image. Those in one slot are replaced.
  const T* read(size_t slot, const void* image, const ImageBlock& block) const {
    if (upcast_ == nullptr || image == nullptr) return static_cast<const T*>(image);
    if constexpr (std::is_same_v<T, float>) {
      float* to = buffer(slot, block);
      upcast_(static_cast<const uint16_t*>(image) + block.at, to,
              {block.rows, block.columns, block.stride, block.columns});
      return to;
    }
    return nullptr;
  }

  // Where the entries of a block are written, and what puts them into the image.
  T* target(size_t slot, void* image, const ImageBlock& block) const {
    if (upcast_ == nullptr || image == nullptr) return static_cast<T*>(image);
    return buffer(slot, block);
  }
  void write(const T* entries, void* image, const ImageBlock& block) const {
    if (upcast_ == nullptr || image == nullptr) return;
    if constexpr (std::is_same_v<T, float>) {
      auto* to = static_cast<uint16_t*>(image) + block.at;
      if (block.stride == block.columns) return downcast_(entries, to, block.rows * block.columns);
      for (int64_t row = 0; row < block.rows; ++row) {
        downcast_(entries + row * block.columns, to + row * block.stride, block.columns);
      }
    }
  }

 private:
  static T* buffer(size_t slot, const ImageBlock& block) {
    thread_local std::array<ThreadMemory, 4> memory;
    return memory[slot].template numbers<T>(block.rows * block.columns);
  }

  UpcastRows upcast_ = nullptr;
  Downcast downcast_ = nullptr;
};

// fn(block) for runs of rows of a block.
void for_rows_of(const ImageBlock& block, int64_t rows, const auto& fn) {
  for (int64_t row = 0; row < block.rows; row += rows) {
    fn(ImageBlock{block.at + row * block.stride, std::min(rows, block.rows - row), block.stride,
                  block.columns});
  }
}

}  // namespace poptorch::kernels

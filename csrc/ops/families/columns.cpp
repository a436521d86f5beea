// Rows that turn images into matrices of sliding blocks, and back.
#include "ops/families/columns.h"

#include "ops/checks.h"
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

void finish_axis(const InferInput& in, const char* name, WindowAxis& axis) {
  USER_CHECK(axis.kernel > 0 && axis.stride > 0 && axis.dilation > 0 && axis.padding >= 0, "[",
             in.op.name, "] kernel ", axis.kernel, ", stride ", axis.stride, ", dilation ",
             axis.dilation, " and padding ", axis.padding, " of the ", name,
             " must be at least 1, and the padding 0. Correct them.");
  const int64_t reach = axis.dilation * (axis.kernel - 1) + 1;
  const int64_t room = axis.size + 2 * axis.padding - reach;
  USER_CHECK(room >= 0, "[", in.op.name, "] the ", name, " ", axis.size, " with padding ",
             axis.padding, " is smaller than the block of ", reach, ". Use a smaller block.");
  axis.out = room / axis.stride + 1;
}

Types infer_im2col(const InferInput& in) {
  const Type& x = in.operand(0);
  USER_CHECK(x.rank() == 3 || x.rank() == 4, "[im2col] the image is ", x.text(),
             ", sizes [C, H, W] or [N, C, H, W] are needed. Reshape it.");
  const SlidingBlocks blocks = sliding_blocks(in, x.sizes);
  Dims sizes(x.sizes.begin(), x.sizes.end() - 2);
  sizes.back() *= blocks.in_block();
  sizes.push_back(blocks.blocks());
  return {{x.dtype, sizes, {}}};
}

// The sizes of the image that col2im makes, by its attribute output_size.
Dims col2im_sizes(const InferInput& in) {
  const Dims& columns = in.operand(0).sizes;
  const auto [height, width] = pair_of(in, ir::attr::output_size, 1);
  const auto [kernel_h, kernel_w] = pair_of(in, ir::attr::kernel_size, 1);
  USER_CHECK(kernel_h > 0 && kernel_w > 0, "[col2im] kernel_size is [", kernel_h, ", ", kernel_w,
             "], both must be at least 1. Give [height, width].");
  Dims sizes(columns.begin(), columns.end() - 1);
  sizes.back() /= kernel_h * kernel_w;
  sizes.insert(sizes.end(), {height, width});
  return sizes;
}

Types infer_col2im(const InferInput& in) {
  const Type& x = in.operand(0);
  USER_CHECK(x.rank() == 2 || x.rank() == 3, "[col2im] the columns are ", x.text(),
             ", sizes [rows, blocks] or [N, rows, blocks] are needed. Reshape them.");
  const Dims image = col2im_sizes(in);
  const SlidingBlocks blocks = sliding_blocks(in, image);
  const int64_t rows = x.sizes[x.rank() - 2], count = x.sizes[x.rank() - 1];
  USER_CHECK(rows % blocks.in_block() == 0 && count == blocks.blocks(), "[col2im] the columns are ",
             x.text(), ", the image has ", blocks.blocks(), " blocks of ", blocks.in_block(),
             " pixels. Give as many columns as blocks, and rows in multiples of a block.");
  return {{x.dtype, image, {}}};
}

const std::vector<AttrDef> block_attrs = {{"kernel_size", ir::AttrList{}, true},
                                          {"dilation", ir::AttrList{}},
                                          {"padding", ir::AttrList{}},
                                          {"stride", ir::AttrList{}}};

}  // namespace

SlidingBlocks sliding_blocks(const InferInput& in, const Dims& image) {
  SlidingBlocks blocks;
  for (size_t d = 0; d + 2 < image.size(); ++d) blocks.planes *= image[d];
  blocks.h.size = image[image.size() - 2];
  blocks.w.size = image[image.size() - 1];
  std::tie(blocks.h.kernel, blocks.w.kernel) = pair_of(in, ir::attr::kernel_size, 1);
  std::tie(blocks.h.dilation, blocks.w.dilation) = pair_of(in, ir::attr::dilation, 1);
  std::tie(blocks.h.padding, blocks.w.padding) = pair_of(in, ir::attr::padding, 0);
  std::tie(blocks.h.stride, blocks.w.stride) = pair_of(in, ir::attr::stride, 1);
  finish_axis(in, "height", blocks.h);
  finish_axis(in, "width", blocks.w);
  return blocks;
}

std::vector<OpDef> columns_ops() {
  std::vector<AttrDef> with_size = block_attrs;
  with_size.insert(with_size.begin(), {"output_size", ir::AttrList{}, true});
  return {
      {.name = "im2col",
       .aten = {"aten::im2col"},
       .doc = "The blocks of kernel_size that slide over each image, one after the other, as "
              "columns [C * kernel height * kernel width, blocks]; padding counts as 0.",
       .operands = {"self"},
       .attrs = block_attrs,
       .infer = infer_im2col,
       .flops = none},
      {.name = "col2im",
       .aten = {"aten::col2im"},
       .doc = "Images of output_size from columns as `im2col` makes them; where blocks overlap "
              "they are added up.",
       .operands = {"self"},
       .attrs = with_size,
       .infer = infer_col2im,
       .flops = flops_of_operand<>},
  };
}

}  // namespace poptorch::ops

// Rows of points in space, one in each row of a matrix.
#include "ops/families/indexing.h"
#include "ops/families/shape.h"
#include "ops/work.h"
#include "support/error.h"

namespace poptorch::ops {

namespace {

void check_points(const InferInput& in, size_t i) {
  const Type& x = in.operand(i);
  USER_CHECK(x.rank() == 2 && ir::is_float(x.dtype) && x.dtype == in.operand(0).dtype, "[",
             in.op.name, "] points are ", x.text(), ", the first ones ", in.operand(0).text(),
             ". Give matrices of one floating-point type, with a point in each row.");
}

void check_batch(const InferInput& in, size_t i, size_t points) {
  if (!in.has(i)) return;
  check_index(in, i);
  USER_CHECK(in.operand(i).sizes == ir::Dims{in.operand(points).sizes[0]}, "[nearest] the points ",
             in.operand(points).text(), " have the batch ", in.operand(i).text(),
             ". Give the number of its example for each point.");
}

Types infer_nearest(const InferInput& in) {
  check_points(in, 0);
  check_points(in, 1);
  const Type &x = in.operand(0), &y = in.operand(1);
  USER_CHECK(x.sizes[1] == y.sizes[1] && y.sizes[0] > 0, "[nearest] x is ", x.text(), ", y is ",
             y.text(), ". Give points with as many coordinates, and at least one in y.");
  check_batch(in, 2, 0);
  check_batch(in, 3, 1);
  USER_CHECK(in.has(2) == in.has(3) && (!in.has(2) || in.operand(2).dtype == in.operand(3).dtype),
             "[nearest] only one batch is given, or the two are of different types. Give none or "
             "both, of one type.");
  return {{index_dtype(in, y.sizes[0]), {x.sizes[0]}, {}}};
}

Types infer_fps(const InferInput& in) {
  check_points(in, 0);
  const Examples examples = examples_of(in);
  int64_t total = 0;
  for (const int64_t count : examples.counts) total += count;
  if (in.has(1)) {
    check_index(in, 1);
    USER_CHECK(in.operand(1).numel() == static_cast<int64_t>(examples.counts.size()),
               "[fps] starts are ", in.operand(1).text(), " for ", examples.counts.size(),
               " examples. Give one for each.");
  }
  return {{index_dtype(in, in.operand(0).sizes[0]), {total}, {}}};
}

// Difference, square and sum of each coordinate of a pair of points.
constexpr double of_coordinate = 3;

// Every point of x with every point of y: batches are not known here.
double nearest_flops(const WorkInput& in) {
  return of_coordinate * numel(in.operand(0)) * static_cast<double>(in.operand(1).sizes[0]);
}

// Every point of an example with each one that is taken of it.
double fps_flops(const WorkInput& in) {
  const Examples examples = examples_of(in);
  double pairs = 0;
  for (size_t i = 0; i < examples.counts.size(); ++i) {
    pairs += static_cast<double>(examples.counts[i] * (examples.ptr[i + 1] - examples.ptr[i]));
  }
  return of_coordinate * pairs * static_cast<double>(in.operand(0).sizes[1]);
}

}  // namespace

Examples examples_of(const InferInput& in) {
  Examples examples{ints_of(in.attrs(), ir::attr::ptr), ints_of(in.attrs(), ir::attr::counts)};
  const ir::Dims& ptr = examples.ptr;
  bool fits = ptr.size() == examples.counts.size() + 1 && ptr.front() == 0 &&
              ptr.back() == in.operand(0).sizes[0];
  for (size_t i = 0; fits && i < examples.counts.size(); ++i) {
    fits = ptr[i] <= ptr[i + 1] && examples.counts[i] >= 0 &&
           examples.counts[i] <= ptr[i + 1] - ptr[i];
  }
  USER_CHECK(fits, "[fps] ptr is ", ir::Attr(ptr).text(), ", counts are ",
             ir::Attr(examples.counts).text(), " for points of ", in.operand(0).text(),
             ". Let ptr rise from 0 to the number of points, and take no more than there are.");
  return examples;
}

std::vector<OpDef> point_ops() {
  return {
      {.name = "nearest",
       .aten = {"poptorch::nearest"},
       .doc = "For each point of `x` the position of the nearest point of `y` with an equal batch, "
              "the first of those at an equal distance. An example without points in `y` is "
              "refused.",
       .operands = {"x", "y", "batch_x?", "batch_y?"},
       .attrs = {{"index_dtype", DType::i32}},
       .infer = infer_nearest,
       .flops = nearest_flops},
      {.name = "fps",
       .aten = {"poptorch::fps"},
       .doc = "Farthest points: of each example, the rows `ptr[i]` to `ptr[i + 1]`, the positions "
              "of `counts[i]` points. The first one is number `starts[i]` of the example (0 when "
              "absent), each other one the point that is farthest from those taken.",
       .operands = {"src", "starts?"},
       .attrs = {{"ptr", ir::AttrList{}, true},
                 {"counts", ir::AttrList{}, true},
                 {"index_dtype", DType::i32}},
       .infer = infer_fps,
       .flops = fps_flops},
  };
}

}  // namespace poptorch::ops

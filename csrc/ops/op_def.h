// The op table: one row for each IR op. Translation, verify, passes, plan, assemble and the op
// tests read the row; the code that computes is a kernel of the same name
// (ops/kernel.h).
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace poptorch::ops {

using ir::Dims;
using ir::DType;
using ir::Type;
using Types = std::vector<Type>;

// What a type rule gets. `operand(i)` of an absent optional operand is an internal error: check
// `has(i)`.
struct InferInput {
  const ir::Op& op;

  bool has(size_t i) const { return op.operand(i) != nullptr; }
  size_t count() const { return op.operands.size(); }
  const ir::Type& operand(size_t i) const;
  const ir::Attrs& attrs() const { return op.attrs; }
};

// Result types (always contiguous), or a user error in the form
// `[op] what is wrong: both values. What to do.` Attributes that are not written have their
// default.
using Infer = std::vector<ir::Type> (*)(const InferInput&);

// Work: what one run of an op takes on any target. It depends on types and attributes alone.
//
// FLOPs are operations on floating-point numbers. A sum, a product, a comparison and a function of
// one element (exp, gelu) are one each; moves, selections and casts are none, nor is anything on
// integers and bools. What multiplies matrices counts 2 m n k for each product and, as
// torch.utils.flop_counter does, nothing for what it adds, scales or activates on the way:
// convolutions, attention and recurrent layers too.
//
// Bytes are the fewest that must be read and written: each element of an operand and of a result
// once. What shows its operand in another way (reshape, expand) touches none, a look-up only the
// entries that it takes, an update only those that change.

// What a rule of work sees: an op that has all attributes of its row, and results. Images have
// channels as dimension 1.
struct WorkInput : InferInput {
  const ir::Type& result(size_t i = 0) const { return op.result(i)->type; }
};

// FLOPs or bytes of one run; at least 0.
using Count = double (*)(const WorkInput&);

struct AttrDef {
  std::string name;
  ir::Attr default_value;  // gives the kind; `none`: an optional attribute without a default kind
  bool required = false;   // must be written in the IR; `default_value` then only gives the kind
  bool lowered = false;    // only a lowering for a target (csrc/lower) gives it another value
};

// An attribute that only a lowering gives another value than this one.
AttrDef lowered_attr(std::string name, ir::Attr default_value);

// Whether the kernel takes operands that are not row-major.
enum class Strided {
  none,  // every operand must be contiguous
  all,   // any strides, stride 0 included, on any operand
  gemm,  // of the last two dimensions one has stride 1, the other a stride >= the first one's size
         // (a dimension of size 1 may have any); the leading ones are free
};

struct OpDef {
  ir::RegisteredName name;
  // Overloads translated 1:1 ("aten::gelu", "poptorch::dropout"); operand and attribute names are
  // their argument names. Empty: made by translate or by a pass.
  std::vector<std::string> aten;
  std::string doc;
  std::vector<std::string> operands;  // "x", optional "bias?", any number "tensors*" (the last)
  std::vector<std::string> results = {"out"};  // optional "mean?", any number "outs*"
  std::vector<AttrDef> attrs;
  Infer infer = nullptr;       // nullptr: types are as declared (constant, state, opaque aten)
  // nullptr: one for each element of the result of an elementwise row; else not known, and
  // reports say that it is not counted.
  Count flops = nullptr;
  Count bytes = nullptr;       // nullptr: all of every operand and result
  Strided strided = Strided::none;
  // inplace[i] lists the operands whose memory result i may take when they are not read later. The
  // kernel then gets equal pointers. Only offered when types are equal and contiguous.
  std::vector<std::vector<int>> inplace;
  // The same for rows where it depends on the op's attributes; then `inplace` is empty.
  std::vector<int> (*places_for)(const ir::Op&, size_t result) = nullptr;
  bool effects = false;  // must not be removed, merged or reordered against other effects
  bool random = false;   // depends on %rng and `salt`; still pure
  // One result, and an element of it depends on the elements of the operands that are broadcast to
  // its place and on its number alone.
  bool elementwise = false;
  // The result is elements of the first operand, in other places: a target need not copy them.
  bool view = false;
  bool lowered = false;  // only a lowering for a target (csrc/lower) makes it
};

// How many operands a kernel of the op is given: those of the row that an op leaves out at its end
// count as absent.
size_t operand_slots(const ir::Op& op);

// The operands whose memory the row lets a result of the op take.
std::vector<int> inplace_candidates(const ir::Op& op, size_t result);

// Whether the row of an op has `view`.
bool is_view(const ir::Op& op);
// Whether an op moves its operand to another IPU, to streaming memory or from there, or keeps it
// for a later task.
bool is_move(const ir::Op& op);
// Whether it moves it by the IO tiles.
bool is_by_io_tiles(const ir::Op& op);
// Whether an op's result is its operand's memory: a view or a move.
inline bool is_alias(const ir::Op& op) { return op.name == ir::op::view || is_move(op); }

// Whether the engine computes an op of several replicas: an all_reduce, or of sharded tensors.
bool is_collective(const ir::Op& op);
// Whether replicas have parts of a `state`.
bool is_sharded(const ir::Op& state);

// Whether an op is an operator of a library other than PyTorch: it computes tensors, and may keep
// its arguments, count its calls or draw numbers.
bool is_foreign(const ir::Op& op);

// The name of the op, or of one of its attributes, if only a lowering makes the op or gives the
// attribute its value; else empty. Verify refuses such ops in a program that is not lowered.
std::string_view lowered_part(const ir::Op& op);

// The op's name in reports: of an opaque op that of its overload, of a fused one with its entries.
std::string report_name(const ir::Op& op);

// Whether a kernel of this kind takes an operand of this type.
bool takes_strides(Strided kind, const ir::Type& type);

// All rows, sorted by name. The table is built once, at first use.
const std::vector<OpDef>& op_table();
// nullptr when there is no such row.
const OpDef* find_op(ir::OpName name);
// The row, or a user error that lists near names.
const OpDef& op_def(ir::OpName name);
// Types of an op's results by its row's rule; user errors get the op's place appended. The op's own
// results are not looked at.
std::vector<ir::Type> infer(const ir::Op& op);
// A user error for a type if arithmetic on its sizes could overflow.
void check_size(ir::OpName op, const ir::Type& type);

// The user's source as the end of a message, on a line of its own; empty when nothing is known.
std::string source_text(const ir::SourceLocation& source);

// The attribute as written, or the row's default; `none` when the row has no such attribute.
ir::Attr attr_of(const ir::Op& op, ir::AttrName name);
// Attributes in their shortest form: those equal to the row's default left out, ints made floats
// where the default is a float. Equal ops then print equal bytes.
ir::Attrs shortest_attrs(const OpDef& row, const ir::Attrs& attrs);
// All attributes of the row: those that are not written with their default.
ir::Attrs complete_attrs(const OpDef& row, const ir::Attrs& attrs);
// Operand and attribute names, kinds and counts against the row; a user error. `op` needs no
// results.
void check_signature(const OpDef& row, const ir::Op& op);
// An attribute of the table in ops/annotation.h.
bool is_annotation(std::string_view attr_name);
// Names of the table near to this one, as words for a message; empty when none is near.
std::string near_names(std::string_view name);

// Rules shared by the families (ops/infer.cpp).
std::vector<ir::Type> same_as_first(const InferInput& in);
// Operands broadcast together, dtype of the first one (all must be equal).
std::vector<ir::Type> broadcast_all(const InferInput& in);
std::vector<ir::Type> broadcast_to_bool(const InferInput& in);
ir::Dims broadcast_sizes(const InferInput& in, const ir::Dims& a, const ir::Dims& b);
// Negative dims count from the end; out of range is a user error.
int64_t wrap_dim(const InferInput& in, int64_t dim, int64_t rank);

// The rows of all parts.
std::vector<OpDef> joined(std::initializer_list<std::vector<OpDef>> parts);

// One function for each family file; op_table() joins them (families.def lists them).
#define FAMILY(name) std::vector<OpDef> name##_ops();
#include "ops/families.def"
#undef FAMILY

}  // namespace poptorch::ops

// What is called through the dispatcher: the opaque op, any functional PyTorch operator, and
// functions of the host.
//
//   %3 = aten %0, %1 {args=["%0", ["%1", none], 2, dtype:f32], overload="aten::foo.bar"} : f32[4]
//
// `overload` is the operator's full name. `args` holds its arguments in the order of its schema,
// keyword-only ones included; arguments left out at the end take the schema's defaults.
//
//   schema type                      in `args`
//   Tensor                           "%k": operand number k; "%complexk": its pairs of numbers (a
//                                    last dimension of 2) as a complex tensor
//   Tensor?                          "%k" or none; an absent operand (`_`) counts as none
//   Tensor[]  Tensor?[]              ["%0", "%complex2"]  ["%0", none]
//   bool  int  SymInt  float         true  3  3  0.5 (an int passes for a float)
//   Scalar                           bool, int or float; keeps its kind; [0.0, 1.0] is complex
//   int[]  SymInt[]  float[]  bool[] a list of these; one number stands for all of an int[N]
//   str                              "text"; a leading % is doubled: "%%text"
//   ScalarType                       dtype:i64, as the user wrote it (not narrowed); "complex64"
//   Layout                           "strided"
//   MemoryFormat                     "contiguous_format", "preserve_format", "channels_last",
//                                    "channels_last_3d"
//   Device                           "cpu"
//   Generator?                       "%rngk": one seeded from operand k (the i32[4] %rng) and the
//                                    attribute `salt`; operators that draw random numbers need one
//   T?                               none, or as T
//
// Operands of type i32 are widened to int64, as PyTorch's indices are, but for those that the
// attribute `int32` lists. All have the strides that they have in the user's program, on which
// results depend (which of A and its transpose is factorized, say): `strides` holds those of all
// operands, one after the other; where it ends, operands are row-major.
// Complex results become pairs of numbers. Results are flattened (a Tensor[] is several), converted
// to the declared types and made contiguous. An undefined result gives zeros, or nothing where a
// tensor without elements is declared. Operators that write to an argument, or return anything but
// tensors, are user errors.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <string>
#include <vector>

#include "kernels/aten/call.h"

namespace poptorch::aten {

// The argument list of one op, read once.
class Arguments {
 public:
  Arguments(const ir::Op& op, const c10::FunctionSchema& schema);

  // Appends the arguments of one call to the stack.
  void push(const ops::Args& args, const Tensors& inputs, torch::jit::Stack& stack) const;

 private:
  enum class Kind { constant, tensor, tensors, optional_tensors, generator };
  struct Operand {
    int index = -1;  // -1: none
    bool is_complex = false;
  };
  struct Argument {
    Kind kind = Kind::constant;
    c10::IValue constant;
    std::vector<Operand> operands;
  };
  // What an argument is read from; for messages too.
  struct Source {
    const ir::Op& op;
    const c10::Argument& argument;
  };

  Argument read(const Source& source, const ir::Attr& attr) const;
  Argument read_tensors(const Source& source, const ir::Attr& attr, bool optional) const;
  static Operand operand(const Source& source, const ir::Attr& attr);
  static int operand_index(const Source& source, const ir::Attr& attr, const std::string& prefix);

  std::vector<Argument> arguments_;
  int64_t salt_ = 0;
};

}  // namespace poptorch::aten

// Ops of the user's own libraries, written with poptorch/custom_op.h. In the IR each of them is an
// op `custom`:
//
//   %1 = custom %0 {domain="com.example", op="Scale", settings=[["by", 0.5]], version=1} : f32[4]
//
// A library is found when it is loaded, by whatever means: each one has a symbol that leads to its
// ops. Once found it is never unloaded, so that what refers to its ops may be kept.
#pragma once

#include <poptorch/custom_op_abi.h>

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "ops/kernel.h"

namespace poptorch::ops {

struct CustomOp {
  PoptorchOp abi;         // what the library's structure is too short for is 0
  const PoptorchOp* own;  // the library's, which the functions are given
  std::string library;    // its path

  // As in `com.example::Scale`.
  std::string title() const;
};

// The ops of all libraries that are loaded now, by domain, name, version and library.
std::vector<const CustomOp*> loaded_custom_ops();
// nullptr when no library has it; a user error when several have.
const CustomOp* find_custom_op(std::string_view domain, std::string_view name, int64_t version);
// The op that an op `custom` names; a user error, an ImportError in Python, that says what there is
// when there is none.
const CustomOp& custom_op_of(const ir::Op& op);

// One op `custom` in the form that its library takes. Refers to nothing of the IR.
class CustomCall {
 public:
  // Checks the number of inputs and the attributes: user errors.
  explicit CustomCall(const ir::Op& op);
  CustomCall(const CustomCall&) = delete;
  CustomCall& operator=(const CustomCall&) = delete;

  // What the shape function says, or a user error.
  std::vector<ir::Type> infer() const;
  // Calls the cost function, a user error where that fails. Call it before `run`.
  void prepare();
  size_t scratch_bytes() const;
  // Runs the kernel, on any thread. What the kernel throws is a user error.
  void run(const Args& args) const;

 private:
  struct Host;
  struct Value {  // of an attribute
    std::vector<double> floats;
    std::vector<int64_t> ints;
    std::vector<std::string> strings;
    std::vector<const char*> pointers;
    std::vector<int64_t> lengths;
  };

  void check_names(const ir::AttrList& settings) const;
  void add_attribute(const PoptorchAttribute& declared, const ir::AttrList& settings);
  void read_value(PoptorchAttribute& attribute, const ir::Attr& given);
  static PoptorchTensor tensor_of(const ir::Type& type, std::deque<ir::Dims>& sizes);
  PoptorchCall call(Host& host) const;
  // Throws what the function reported, if it did not return 0.
  void check(int32_t status, const Host& host) const;

  const CustomOp& op_;
  std::deque<ir::Dims> sizes_;  // deques, as others point to what is in them
  std::deque<Value> values_;
  std::vector<PoptorchTensor> inputs_, outputs_;
  std::vector<PoptorchAttribute> attributes_;
  double cost_ = 0;
};

}  // namespace poptorch::ops

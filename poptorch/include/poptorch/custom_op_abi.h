// What passes between a library of custom ops and poptorch: plain structures and functions.
// Libraries include poptorch/custom_op.h.
//
// Their members keep their places; new ones come at the end of the larger structures, where `size`
// says how much of one the side that filled it in knows.
//
// Who owns what: an op and all it points to belong to the library and live as long as it; poptorch
// keeps it loaded once it has found it. What a call points to is poptorch's and lives until the
// function returns.
#pragma once

#include <stdint.h>

#define POPTORCH_CUSTOM_OP_ABI 1

extern "C" {

// Element types. The numbers never change.
enum PoptorchDType {
  POPTORCH_BOOL = 0,
  POPTORCH_U8 = 1,
  POPTORCH_I8 = 2,
  POPTORCH_I16 = 3,
  POPTORCH_I32 = 4,
  POPTORCH_I64 = 5,
  POPTORCH_F16 = 6,
  POPTORCH_BF16 = 7,
  POPTORCH_F32 = 8,
  POPTORCH_F64 = 9,
};

enum PoptorchAttributeKind {
  POPTORCH_FLOAT = 0,
  POPTORCH_FLOATS = 1,
  POPTORCH_INT = 2,
  POPTORCH_INTS = 3,
  POPTORCH_STRING = 4,
  POPTORCH_STRINGS = 5,
};

// Of PoptorchOp::gradient_reads.
enum { POPTORCH_READS_INPUTS = 1, POPTORCH_READS_OUTPUTS = 2 };

// A row-major tensor. In ABI 1 this structure never changes.
typedef struct PoptorchTensor {
  int32_t dtype;
  int32_t rank;
  const int64_t* sizes;
  void* data;  // null in a shape or cost function
} PoptorchTensor;

// The value of an attribute, or, in PoptorchOp, its default. In ABI 1 it never changes.
typedef struct PoptorchAttribute {
  const char* name;
  int32_t kind;
  int32_t is_required;  // in PoptorchOp: there is no default
  int64_t count;        // 1 for a float, an int or a string
  const double* floats;
  const int64_t* ints;
  const char* const* strings;
  const int64_t* lengths;  // of the strings, which may contain zeros
} PoptorchAttribute;

// One call, made by poptorch.
typedef struct PoptorchCall {
  uint32_t size;  // bytes of this structure that poptorch fills in
  uint32_t input_count;
  uint32_t output_count;  // 0 in a shape function
  uint32_t attribute_count;
  const PoptorchTensor* inputs;
  const PoptorchTensor* outputs;
  const PoptorchAttribute* attributes;  // all that the op has, defaults included, in its order
  void* host;                           // poptorch's own
  // Says what is wrong; the function returns another number than 0 then. The text is copied.
  void (*fail)(const struct PoptorchCall* call, const char* message);
  // In a shape function: declares the next result.
  void (*add_output)(const struct PoptorchCall* call, int32_t dtype, int32_t rank,
                     const int64_t* sizes);
  // In a kernel: calls body(user, begin, end) on disjoint parts of [0, n), which are multiples of
  // `grain` but for the last one, on several threads. Grain 0: chosen by the op's cost.
  void (*parallel_for)(const struct PoptorchCall* call, int64_t n, int64_t grain,
                       void (*body)(void* user, int64_t begin, int64_t end), void* user);
} PoptorchCall;

// An op. What is 0 or null is not there.
typedef struct PoptorchOp {
  uint32_t abi;   // POPTORCH_CUSTOM_OP_ABI
  uint32_t size;  // bytes of this structure that the library fills in
  const char* domain;
  const char* name;
  int32_t version;
  int32_t fewest_inputs;
  int32_t most_inputs;  // -1: any number
  uint32_t attribute_count;
  const PoptorchAttribute* attributes;
  // 0, or another number after `fail`.
  int32_t (*shape)(const struct PoptorchOp* op, const PoptorchCall* call);
  int32_t (*kernel)(const struct PoptorchOp* op, const PoptorchCall* call);
  // Arithmetic operations of a call, all its outputs together.
  double (*cost)(const struct PoptorchOp* op, const PoptorchCall* call);
  // Name of the op, of the same domain and version, that computes the gradients; what it reads
  // in addition to the gradients of the outputs.
  const char* gradient;
  uint32_t gradient_reads;
  // Whether the kernel takes 16-bit floats. Else it sees float32 in their place.
  uint32_t takes_halves;
  const struct PoptorchOp* next;  // of the same library
} PoptorchOp;

}  // extern "C"

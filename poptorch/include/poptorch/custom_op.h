// Operations of your own for poptorch.custom_op. Needs C++17 and nothing else: not torch, not
// Python, not poptorch's library.
//
//   #include <poptorch/custom_op.h>
//
//   namespace {
//   namespace custom = poptorch::custom;
//
//   void shape(custom::Shape& op) { op.add_output(op.input(0)); }
//
//   void kernel(custom::Call& op) {
//     const float* x = op.in<float>(0);
//     float* out = op.out<float>(0);
//     op.parallel_for(op.output(0).numel(), [&](int64_t begin, int64_t end) {
//       for (int64_t i = begin; i < end; ++i) out[i] = x[i] * x[i] * x[i];
//     });
//   }
//   }  // namespace
//
//   POPTORCH_CUSTOM_OP("com.example", "Cube", 1).inputs(1).shape(shape).kernel(kernel);
//
//   g++ -std=c++17 -O2 -fPIC -shared -I$(python -m poptorch include) cube.cpp -o libcube.so
//
// A library that is built stays usable when poptorch is built again: only the structures of
// custom_op_abi.h pass between the two. The code in this file is compiled into your library.
//
// Functions of an op may be called from several threads at once. What they are given is poptorch's,
// and they must not keep it when they return.
#pragma once

#include "poptorch/custom_op_abi.h"

#include <exception>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// Hidden, so that each library uses its own copy, compiled from the header that it was built with.
#pragma GCC visibility push(hidden)

namespace poptorch::custom {

// What a function of an op throws when something is wrong; any std::exception does.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws an Error of the printed parts unless the condition holds:
// check(x.rank() == 2, "the input has ", x.rank(), " dimensions. Give a matrix.").
template <typename... Parts>
void check(bool condition, const Parts&... parts) {
  if (condition) return;
  std::ostringstream text;
  (text << ... << parts);
  throw Error(text.str());
}

enum class DType : int32_t { boolean, u8, i8, i16, i32, i64, f16, bf16, f32, f64 };

inline const char* name_of(DType dtype) {
  constexpr const char* names[] = {"bool", "u8",  "i8",   "i16", "i32",
                                   "i64",  "f16", "bf16", "f32", "f64"};
  return names[static_cast<int32_t>(dtype)];
}

// Whether elements of a dtype are of the C++ type; those of f16 and bf16 are uint16_t.
template <typename T>
bool holds(DType dtype) {
  switch (dtype) {
    case DType::boolean: return std::is_same_v<T, bool>;
    case DType::u8: return std::is_same_v<T, uint8_t>;
    case DType::i8: return std::is_same_v<T, int8_t>;
    case DType::i16: return std::is_same_v<T, int16_t>;
    case DType::i32: return std::is_same_v<T, int32_t>;
    case DType::i64: return std::is_same_v<T, int64_t>;
    case DType::f16: case DType::bf16: return std::is_same_v<T, uint16_t>;
    case DType::f32: return std::is_same_v<T, float>;
    case DType::f64: return std::is_same_v<T, double>;
  }
  return false;
}

// A row-major tensor; it owns nothing.
class Tensor {
 public:
  explicit Tensor(const PoptorchTensor& tensor) : tensor_(&tensor) {}

  DType dtype() const { return static_cast<DType>(tensor_->dtype); }
  bool is_float() const { return dtype() >= DType::f16; }
  int64_t rank() const { return tensor_->rank; }
  // Negative dimensions count from the end.
  int64_t size(int64_t dim) const {
    const int64_t at = dim < 0 ? dim + rank() : dim;
    check(at >= 0 && at < rank(), "dimension ", dim, " is out of range for ", text(), ".");
    return tensor_->sizes[at];
  }
  std::vector<int64_t> sizes() const { return {tensor_->sizes, tensor_->sizes + tensor_->rank}; }
  int64_t numel() const {
    int64_t count = 1;
    for (int32_t i = 0; i < tensor_->rank; ++i) count *= tensor_->sizes[i];
    return count;
  }
  // The elements; an error when they are of another type.
  template <typename T>
  T* data() const {
    check(holds<T>(dtype()), "the kernel reads elements of another type than ", text(),
          " has. Cast the tensor.");
    return static_cast<T*>(tensor_->data);
  }
  // As in `f32[2,3]`.
  std::string text() const {
    std::ostringstream out;
    out << name_of(dtype()) << '[';
    for (int32_t i = 0; i < tensor_->rank; ++i) out << (i > 0 ? "," : "") << tensor_->sizes[i];
    out << ']';
    return out.str();
  }

 private:
  const PoptorchTensor* tensor_;
};

// What shape, cost function and kernel have in common.
class Arguments {
 public:
  explicit Arguments(const PoptorchCall& call) : call_(call) {}

  int64_t input_count() const { return call_.input_count; }
  Tensor input(int64_t i) const {
    check(i >= 0 && i < input_count(), "there is no input ", i, ": the call has ", input_count(),
          ".");
    return Tensor(call_.inputs[i]);
  }
  // By the kind in which the attribute is declared: float, double, std::vector<double>, int,
  // int64_t, std::vector<int64_t>, std::string, std::vector<std::string>.
  template <typename T>
  T attribute(const std::string& name) const {
    const PoptorchAttribute& found = find(name);
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      return static_cast<T>(of_kind(found, POPTORCH_FLOAT).floats[0]);
    } else if constexpr (std::is_same_v<T, int> || std::is_same_v<T, int64_t>) {
      const int64_t value = of_kind(found, POPTORCH_INT).ints[0];
      check(static_cast<T>(value) == value, "the attribute \"", name, "\" is ", value,
            ", which does not fit into an int. Read it as int64_t.");
      return static_cast<T>(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      return string(of_kind(found, POPTORCH_STRING), 0);
    } else if constexpr (std::is_same_v<T, std::vector<double>>) {
      const double* begin = of_kind(found, POPTORCH_FLOATS).floats;
      return T(begin, begin + found.count);
    } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
      const int64_t* begin = of_kind(found, POPTORCH_INTS).ints;
      return T(begin, begin + found.count);
    } else {
      static_assert(std::is_same_v<T, std::vector<std::string>>, "no attribute has this type");
      T strings;
      of_kind(found, POPTORCH_STRINGS);
      for (int64_t i = 0; i < found.count; ++i) strings.push_back(string(found, i));
      return strings;
    }
  }

 protected:
  const PoptorchCall& call_;

 private:
  const PoptorchAttribute& find(const std::string& name) const {
    for (uint32_t i = 0; i < call_.attribute_count; ++i) {
      if (name == call_.attributes[i].name) return call_.attributes[i];
    }
    throw Error("the op declares no attribute \"" + name + "\".");
  }
  static const PoptorchAttribute& of_kind(const PoptorchAttribute& attribute, int32_t kind) {
    check(attribute.kind == kind, "the code reads attribute \"", attribute.name,
          "\" as another kind than it is declared.");
    return attribute;
  }
  static std::string string(const PoptorchAttribute& attribute, int64_t i) {
    return {attribute.strings[i], static_cast<size_t>(attribute.lengths[i])};
  }
};

// What a shape function sees: types of the inputs and attributes.
class Shape : public Arguments {
 public:
  using Arguments::Arguments;
  void add_output(DType dtype, const std::vector<int64_t>& sizes) {
    call_.add_output(&call_, static_cast<int32_t>(dtype), static_cast<int32_t>(sizes.size()),
                     sizes.data());
  }
  // Of this tensor's type.
  void add_output(const Tensor& like) { add_output(like.dtype(), like.sizes()); }
};

// What a kernel or a cost function sees. A kernel computes each output from the inputs and
// attributes alone, and writes to nothing else.
class Call : public Arguments {
 public:
  using Arguments::Arguments;

  int64_t output_count() const { return call_.output_count; }
  Tensor output(int64_t i) const {
    check(i >= 0 && i < output_count(), "there is no output ", i, ": the call has ",
          output_count(), ".");
    return Tensor(call_.outputs[i]);
  }
  template <typename T>
  const T* in(int64_t i) const { return input(i).data<T>(); }
  template <typename T>
  T* out(int64_t i) const { return output(i).data<T>(); }

  // Calls fn(begin, end) on disjoint parts of [0, n), on several threads: what it writes must
  // depend on the elements and not on the parts. Parts are multiples of `grain`, the last one
  // excepted; 0: by the op's cost. What fn throws is thrown here when all parts have ended.
  template <typename Fn>
  void parallel_for(int64_t n, const Fn& fn, int64_t grain = 0) const {
    struct State {
      const Fn& fn;
      std::mutex mutex;
      std::exception_ptr error;
    } state{fn, {}, nullptr};
    const auto body = [](void* user, int64_t begin, int64_t end) noexcept {
      State& state = *static_cast<State*>(user);
      try {
        state.fn(begin, end);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(state.mutex);
        if (state.error == nullptr) state.error = std::current_exception();
      }
    };
    call_.parallel_for(&call_, n, grain, body, &state);
    if (state.error != nullptr) std::rethrow_exception(state.error);
  }
};

// What a gradient op reads in addition to the gradients of the outputs.
enum class Reads : uint32_t {
  nothing = 0,
  inputs = POPTORCH_READS_INPUTS,
  outputs = POPTORCH_READS_OUTPUTS,
  inputs_and_outputs = POPTORCH_READS_INPUTS | POPTORCH_READS_OUTPUTS,
};

// What POPTORCH_CUSTOM_OP makes. Its functions return it again.
class Definition {
 public:
  Definition(const char* domain, const char* name, int32_t version) {
    op_->abi = POPTORCH_CUSTOM_OP_ABI;
    op_->size = sizeof(PoptorchOp);
    op_->domain = domain;
    op_->name = name;
    op_->version = version;
    op_->most_inputs = -1;
    op_->next = first();
    first() = op_;
  }
  // The ops of this library.
  static const PoptorchOp*& first() {
    static const PoptorchOp* op = nullptr;
    return op;
  }

  // How many inputs the op takes; -1: any number. Any number if this is not called.
  Definition& inputs(int32_t count) { return inputs(count, count); }
  Definition& inputs(int32_t fewest, int32_t most) {
    op_->fewest_inputs = fewest;
    op_->most_inputs = most;
    return *this;
  }
  // An attribute with a default: a number, a string, or a std::vector of double, int64_t or
  // std::string.
  template <typename T>
  Definition& attribute(const char* name, const T& value) {
    if constexpr (std::is_integral_v<T>) {
      return add<int64_t>(name, POPTORCH_INT, false, {value});
    } else if constexpr (std::is_floating_point_v<T>) {
      return add<double>(name, POPTORCH_FLOAT, false, {value});
    } else if constexpr (std::is_convertible_v<T, std::string>) {
      return add<std::string>(name, POPTORCH_STRING, false, {value});
    } else {
      return add<typename T::value_type>(name, kind_of<T>(), false, value);
    }
  }
  // One that must be given, of one of the types that Arguments::attribute lists.
  template <typename T>
  Definition& attribute(const char* name) {
    return add<double>(name, kind_of<T>(), true, {});
  }
  // Declares the outputs; must be there.
  Definition& shape(void (*function)(Shape&)) {
    op_->shape_function = function;
    op_->shape = [](const PoptorchOp* op, const PoptorchCall* call) {
      return guarded(*call, [&] { Shape given(*call); self(op).shape_function(given); });
    };
    return *this;
  }
  // Computes them; must be there. With `takes_halves` it is given float16 and bfloat16 tensors as
  // they are; else poptorch converts them, so that the kernel sees float32.
  Definition& kernel(void (*function)(Call&), bool takes_halves = false) {
    op_->kernel_function = function;
    op_->takes_halves = takes_halves;
    op_->kernel = [](const PoptorchOp* op, const PoptorchCall* call) {
      return guarded(*call, [&] { Call given(*call); self(op).kernel_function(given); });
    };
    return *this;
  }
  // The op of the same domain and version that computes the gradients. Its inputs are the gradients
  // of all outputs, then all inputs, then all outputs, as far as it reads them; its outputs are the
  // gradients of those inputs that are of floating point. It gets the attributes that it declares.
  Definition& gradient(const char* name, Reads reads = Reads::inputs) {
    op_->gradient = name;
    op_->gradient_reads = static_cast<uint32_t>(reads);
    return *this;
  }
  // Arithmetic operations of a call: how small the parts of parallel_for may be. Else the op is
  // taken to do one for each element of its inputs and outputs.
  Definition& cost(double (*function)(const Call&)) {
    op_->cost_function = function;
    op_->cost = [](const PoptorchOp* op, const PoptorchCall* call) {
      double found = -1;
      guarded(*call, [&] { found = self(op).cost_function(Call(*call)); });
      return found;
    };
    return *this;
  }

 private:
  struct Op : PoptorchOp {
    void (*shape_function)(Shape&);
    void (*kernel_function)(Call&);
    double (*cost_function)(const Call&);
  };

  static const Op& self(const PoptorchOp* op) { return *static_cast<const Op*>(op); }
  // No exception leaves the library.
  template <typename Fn>
  static int32_t guarded(const PoptorchCall& call, const Fn& fn) noexcept {
    try {
      fn();
      return 0;
    } catch (const std::exception& error) {
      call.fail(&call, error.what());
    } catch (...) {
      call.fail(&call, "it threw something that is no std::exception.");
    }
    return 1;
  }
  template <typename T>
  static constexpr PoptorchAttributeKind kind_of() {
    if constexpr (std::is_floating_point_v<T>) return POPTORCH_FLOAT;
    else if constexpr (std::is_integral_v<T>) return POPTORCH_INT;
    else if constexpr (std::is_same_v<T, std::string>) return POPTORCH_STRING;
    else if constexpr (std::is_same_v<T, std::vector<double>>) return POPTORCH_FLOATS;
    else if constexpr (std::is_same_v<T, std::vector<int64_t>>) return POPTORCH_INTS;
    else if constexpr (std::is_same_v<T, std::vector<std::string>>) return POPTORCH_STRINGS;
  }
  template <typename T>
  Definition& add(const char* name, int32_t kind, bool is_required, std::vector<T> values) {
    auto& kept = *new std::vector<T>(std::move(values));  // as long as the library
    PoptorchAttribute found{};
    found.name = name;
    found.kind = kind;
    found.is_required = is_required;
    found.count = static_cast<int64_t>(kept.size());
    if constexpr (std::is_same_v<T, double>) found.floats = kept.data();
    else if constexpr (std::is_same_v<T, int64_t>) found.ints = kept.data();
    else {
      auto& strings = *new std::vector<const char*>;
      auto& lengths = *new std::vector<int64_t>;
      for (const std::string& text : kept) {
        strings.push_back(text.data());
        lengths.push_back(static_cast<int64_t>(text.size()));
      }
      found.strings = strings.data();
      found.lengths = lengths.data();
    }
    attributes_->push_back(found);
    op_->attributes = attributes_->data();
    op_->attribute_count = static_cast<uint32_t>(attributes_->size());
    return *this;
  }

  Op* op_ = new Op();
  std::vector<PoptorchAttribute>* attributes_ = new std::vector<PoptorchAttribute>;
};

}  // namespace poptorch::custom

#pragma GCC visibility pop

// How poptorch finds the ops of this library.
extern "C" __attribute__((visibility("default"), used)) inline const PoptorchOp*
poptorch_custom_ops_1() {
  return poptorch::custom::Definition::first();
}

#define POPTORCH_CUSTOM_JOIN_(a, b) a##b
#define POPTORCH_CUSTOM_JOIN(a, b) POPTORCH_CUSTOM_JOIN_(a, b)
// At namespace scope: POPTORCH_CUSTOM_OP("domain", "Name", 1).shape(...).kernel(...);
#define POPTORCH_CUSTOM_OP(domain, name, version) \
  [[maybe_unused]] static const auto& POPTORCH_CUSTOM_JOIN(poptorch_custom_op_, __COUNTER__) = \
      (*new ::poptorch::custom::Definition(domain, name, version))

// What each call of an executor asks of Python objects and of torch, and what it makes of them:
// whether they have changed, in one look, and whether tensors have the same type and sizes. In one
// file, as torch's headers of Python objects take longer to compile than all of it.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>
#include <c10/util/typeid.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <vector>

namespace poptorch::python {

// The type and the sizes of a dense tensor on the CPU.
class TensorKind {
 public:
  TensorKind(const pybind11::object& dtype, std::vector<int64_t> sizes);

  // Whether an object is a tensor of this kind, and of the class torch.Tensor or Parameter.
  bool matches(pybind11::handle object) const;
  // Where a tensor of this kind lies, if a program can read it there: its elements lie one after
  // the other. Null: it is of another kind, it has to be copied, or it has no memory.
  const void* address(pybind11::handle object, bool may_require_grad) const;
  // An uninitialized contiguous one: torch's functions take twice as long, as they read arguments
  // of Python's.
  pybind11::object empty() const;

 private:
  c10::ScalarType dtype_;
  std::vector<int64_t> sizes_;
};

// Tensors as they were when they were last noted: where each lies and how often it was written;
// its type, and whether and how it gets a gradient. The tensors are found by way of their Python
// objects in each look, which may be given others (swap_tensors, `data = ...`).
//
// Storages are kept alive: a new storage could get the address of one that is gone.
class TensorWatch {
 public:
  enum Change : int { written = 1, converted = 2 };

  // `tensors`: objects of torch.Tensor. `has_gradients`: requires_grad and the table of hooks (not
  // what it holds) are part of the type.
  TensorWatch(const pybind11::sequence& tensors, bool has_gradients);

  // The sum of the changes of any tensor since they were noted.
  int look() const;
  // Takes all tensors as they are, as far as these changes go.
  void note(int changes);

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Known {
    pybind11::object tensor, hooks;  // hooks: the dict that torch keeps them in, none at first
    c10::Storage storage;
    uint32_t version = 0;
    int64_t offset = 0;
    std::vector<int64_t> sizes, strides;
    caffe2::TypeMeta dtype;
    bool requires_grad = false;
  };

  int changes(const Known& known) const;
  std::vector<Known> known_;
  bool has_gradients_;
};

// What dicts and lists held when they were last noted: the same objects, in the same order; of
// some dicts only what single keys led to. And the classes of objects.
class ItemWatch {
 public:
  // `containers`: dicts and lists. `places`: pairs (dict, key), where the key may be missing.
  // `typed`: objects that keep their class.
  ItemWatch(const pybind11::sequence& containers, const pybind11::sequence& places,
            const pybind11::sequence& typed);

  // Whether everything is as it was when it was noted.
  bool is_same() const;
  // Takes everything as it is.
  void note();

  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  struct Container {
    pybind11::object object;
    bool is_dict;
    std::vector<pybind11::object> items;  // of a dict keys and values in turn
  };
  struct Place {
    pybind11::object dict, key, value;  // without a value: the key was missing
  };

  struct Typed {
    pybind11::object object, type;
  };

  std::vector<Container> containers_;
  std::vector<Place> places_;
  std::vector<Typed> typed_;
};

}  // namespace poptorch::python

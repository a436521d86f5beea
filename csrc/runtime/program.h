// A compiled model from a file, ready to run without Python. Errors are UserError and what the
// system throws; poptorch/runtime.h is the interface without exceptions.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "compile.h"
#include "runtime/archive.h"
#include "runtime/document.h"
#include "runtime/tensor.h"

namespace poptorch::runtime {

// As many threads as Python uses by default: OMP_NUM_THREADS or MKL_NUM_THREADS if it is set, else
// a thread for each core (not each hyper-thread) that the process may use.
int default_threads();

// The programs in a file; one empty name for a file of one program.
std::vector<std::string> program_names(const std::string& path);

class Program {
 public:
  // `name`: the program of a file of save_bundle(); empty for a file of one program. `threads` 0:
  // default_threads().
  explicit Program(const std::string& path, const std::string& name = "", int threads = 0);

  const Document& document() const { return document_; }
  bool is_training() const { return is_training_; }
  const std::string& torch_version() const { return torch_version_; }  // that wrote the file
  const Compiled& executable() const { return *executable_; }
  int threads() const { return threads_; }

  // Types of the arguments and results of forward. A result has the dtype of its stream.
  const std::vector<Document::Input>& inputs() const { return document_.inputs; }
  View result_type(size_t number) const;
  size_t result_count() const { return results_; }
  // Whether a result is one number for each micro-batch, as a loss is.
  bool is_number(size_t number) const;

  // One call of forward. The tensors are in the order of `inputs` and have the types there, or
  // int64 or float64 where those are narrower. Threads may call at the same time.
  std::vector<Array> run(const std::vector<View>& tensors) {
    run::Deadline deadline = executable_->deadline();
    return run(tensors, deadline);
  }
  // The same for a call that has begun before.
  std::vector<Array> run(const std::vector<View>& tensors, run::Deadline& deadline);
  // See run::Executable.
  void set_timeout(double seconds) { executable_->set_timeout(seconds); }

  // The state_dict of the module, with what runs changed.
  std::map<std::string, Array> weights() const;
  // Their types.
  std::map<std::string, View> weight_types() const;
  // Sets tensors of the state_dict; names that it does not have, and other shapes, are user errors.
  void set_weights(const std::map<std::string, View>& tensors, const std::string& where);
  // What only the device has: the optimizer's states by path, and the random state as "rng".
  std::map<std::string, Array> device_state() const;
  void set_device_state(const std::map<std::string, View>& tensors, const std::string& where);

 private:
  void read_manifest(const std::string& name);
  void check_streams();
  void load_weights();
  void load_device_state();
  void load_random_state();
  void write_weight(const std::string& path, const View& value);
  View as_given(const View& tensor, size_t number, std::vector<Array>& kept) const;

  std::string path_;
  Archive archive_;
  Document document_;
  bool is_training_ = false;
  std::string torch_version_;
  int threads_ = 1;
  std::map<std::string, View> stored_;  // weights.safetensors
  std::map<std::string, Array> given_;  // in place of stored ones, see set_weights
  std::map<std::string, const assemble::State*> states_;
  std::map<std::string, size_t> position_;  // of a stream
  size_t results_ = 0;
  std::unique_ptr<Compiled> executable_;
};

}  // namespace poptorch::runtime

// What a program keeps from run to run: weights by their names in the state_dict, and what only the
// device has.
#include <cstring>

#include "runtime/program.h"
#include "support/error.h"

namespace poptorch::runtime {

std::map<std::string, Array> Program::weights() const {
  std::map<std::string, View> newest(stored_);
  for (const auto& [name, array] : given_) newest[name] = array.view();
  std::map<std::string, Array> changed;
  for (const std::string& path : document_.updated) {
    const auto state = states_.find(path);
    const auto name = document_.weights.find(path);
    if (state == states_.end() || name == document_.weights.end()) continue;
    Array value(state->second->type.dtype, state->second->type.sizes);
    executable_->read_state(path, value.data.data(), value.data.size());
    const View& before = newest.at(name->second);
    changed[name->second] =
        value.dtype == before.dtype ? std::move(value) : widen(value.view(), before);
  }
  std::map<std::string, Array> found;
  for (const auto& [name, member] : document_.state_dict) {
    const auto own = changed.find(member);
    const View view = own != changed.end() ? own->second.view() : newest.at(member);
    Array& copy = found[name] = Array(view.dtype, view.shape);
    std::memcpy(copy.data.data(), view.data, copy.data.size());
  }
  return found;
}

std::map<std::string, View> Program::weight_types() const {
  std::map<std::string, View> found;
  for (const auto& [name, member] : document_.state_dict) {
    const View& weight = stored_.at(member);
    found[name] = {weight.dtype, weight.shape, nullptr};
  }
  return found;
}

void Program::set_weights(const std::map<std::string, View>& tensors, const std::string& where) {
  std::map<std::string, std::string> members(document_.state_dict.begin(),
                                             document_.state_dict.end());
  for (const auto& [name, value] : tensors) {
    const auto member = members.find(name);
    USER_CHECK(member != members.end(), "[load] ", where, " has ", name,
               ", which is not in the state_dict of the model. Give weights of the same model.");
    const View& own = stored_.at(member->second);
    USER_CHECK(value.shape == own.shape && value.dtype == own.dtype, "[load] ", where, ": ", name,
               " is ", value.text(), ", the model has ", own.text(),
               ". Give weights of the same model.");
    Array& copy = given_[member->second] = Array(value.dtype, value.shape);
    std::memcpy(copy.data.data(), value.data, copy.data.size());
    for (const auto& [path, of_path] : document_.weights) {
      if (of_path == member->second) write_weight(path, copy.view());
    }
  }
}

std::map<std::string, Array> Program::device_state() const {
  std::map<std::string, Array> found;
  const int replicas = executable_->replicas();
  for (const auto& [path, state] : states_) {
    const bool is_weight = document_.weights.contains(path);
    if (state->role == "preprocessed" || is_weight) continue;
    ir::Dims shape = state->type.sizes;
    const bool is_same = executable_->is_same_in_replicas(path);
    if (!is_same) shape.insert(shape.begin(), replicas);
    Array& value = found[path] = Array(state->type.dtype, shape);
    const size_t bytes = value.data.size() / (is_same ? 1 : static_cast<size_t>(replicas));
    for (int replica = 0; replica < (is_same ? 1 : replicas); ++replica) {
      executable_->read_state(path, value.data.data() + static_cast<size_t>(replica) * bytes,
                              bytes, replica);
    }
  }
  return found;
}

void Program::set_device_state(const std::map<std::string, View>& tensors,
                               const std::string& where) {
  const auto replicas = static_cast<size_t>(executable_->replicas());
  for (const auto& [path, value] : tensors) {
    const auto state = states_.find(path);
    USER_CHECK(state != states_.end(), "[load] ", where, " has the state ", path,
               ", which the program does not have. Give the state of the same program.");
    const ir::Type& type = state->second->type;
    ir::Dims stacked = type.sizes;
    stacked.insert(stacked.begin(), static_cast<int64_t>(replicas));
    const bool is_same = value.shape == type.sizes;
    USER_CHECK(value.dtype == type.dtype && (is_same || value.shape == stacked), "[load] ", where,
               ": ", path, " is ", value.text(), ", the program has ", type.text(),
               ". Give the state of the same program.");
    const size_t bytes = value.bytes() / (is_same ? 1 : replicas);
    if (is_same) {
      executable_->write_state(path, value.data, bytes);
      continue;
    }
    for (size_t replica = 0; replica < replicas; ++replica) {
      executable_->write_state(path, value.data + replica * bytes, bytes,
                               static_cast<int>(replica));
    }
  }
}

}  // namespace poptorch::runtime

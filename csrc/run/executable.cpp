#include "run/executable.h"

#include <algorithm>
#include <cstring>

#include "support/error.h"

namespace poptorch::run {

namespace {

const assemble::State& find_state(const std::vector<assemble::State>& states,
                                  std::string_view path, size_t bytes) {
  const auto found = std::lower_bound(
      states.begin(), states.end(), path,
      [](const assemble::State& state, std::string_view wanted) { return state.path < wanted; });
  USER_CHECK(found != states.end() && found->path == path, "[run] the program has no state \"",
             path, "\". It has ", states.size(), " states; states() lists them.");
  USER_CHECK(static_cast<int64_t>(bytes) == found->type.bytes(), "[run] state \"", path, "\" is ",
             found->type.text(), " of ", found->type.bytes(), " bytes, ", bytes,
             " were given. Convert the tensor to that dtype and shape.");
  return *found;
}

size_t find_stream(const std::vector<assemble::Stream>& streams, std::string_view name) {
  const auto found = std::find_if(streams.begin(), streams.end(),
                                  [&](const auto& stream) { return stream.name == name; });
  USER_CHECK(found != streams.end(), "[run] the program has no stream \"", name, "\". It has ",
             streams.size(), " streams; streams() lists them.");
  return static_cast<size_t>(found - streams.begin());
}

}  // namespace

Executable::Executable(assemble::Program program, EngineOptions options, Reports reports)
    : engine_(std::move(program), options), reports_(std::move(reports)) {}

const std::string& Executable::ir(std::string_view step) const {
  std::string names;
  for (const auto& [name, text] : reports_.texts) {
    if (name == step) return text;
    names += concat(names.empty() ? "" : ", ", name);
  }
  throw_user_error(concat("[compile] there is no IR text of step \"", step, "\". Steps with text: ",
                          names.empty() ? "none" : names, "."));
}

void Executable::write_state(std::string_view path, const void* data, size_t bytes, int replica) {
  const assemble::State& state = find_state(states(), path, bytes);
  USER_CHECK(replica < replicas(), "[run] replica ", replica, " was asked for, there are ",
             replicas(), ".");
  const std::scoped_lock lock(mutex_);
  for (int r = 0; r < replicas(); ++r) {
    if (replica < 0 || replica == r) std::memcpy(engine_.arena(r) + state.addr, data, bytes);
  }
}

void Executable::read_state(std::string_view path, void* data, size_t bytes, int replica) const {
  const assemble::State& state = find_state(states(), path, bytes);
  USER_CHECK(replica >= 0 && replica < replicas(), "[run] replica ", replica,
             " was asked for, there are ", replicas(), ".");
  const std::scoped_lock lock(mutex_);
  std::memcpy(data, engine_.arena(replica) + state.addr, bytes);
}

void Executable::run(const std::vector<void*>& host, int threads) {
  const std::scoped_lock lock(mutex_);
  engine_.run(host, threads);
}

void Executable::set_output_mode(std::string_view stream, OutputMode mode, int64_t period) {
  const size_t index = find_stream(streams(), stream);
  USER_CHECK(!streams()[index].is_input, "[run] stream \"", stream,
             "\" is an input: it has no output mode.");
  USER_CHECK(period >= 1, "[run] the output period is ", period, ". Give 1 or more.");
  engine_.slices(index).mode = mode;
  engine_.slices(index).period = period;
}

int64_t Executable::host_slices(std::string_view stream) const {
  return engine_.slices(find_stream(streams(), stream)).host_slices();
}

}  // namespace poptorch::run

#include "run/executable.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "run/state_order.h"
#include "support/error.h"
#include "support/memory/align.h"
#include "support/process.h"

namespace poptorch::run {

namespace {

constexpr double most_seconds = 1e9;  // in ns it fits 64 bits

const assemble::State& find_state(const std::vector<assemble::State>& states,
                                  std::string_view path) {
  const auto found = std::lower_bound(
      states.begin(), states.end(), path,
      [](const assemble::State& state, std::string_view wanted) { return state.path < wanted; });
  USER_CHECK(found != states.end() && found->path == path, "[run] the program has no state \"",
             path, "\". It has ", states.size(), " states; states() lists them.");
  return *found;
}

const assemble::State& find_state(const std::vector<assemble::State>& states,
                                  std::string_view path, size_t bytes) {
  const assemble::State& found = find_state(states, path);
  USER_CHECK(static_cast<int64_t>(bytes) == found.type.bytes(), "[run] state \"", path, "\" is ",
             found.type.text(), " of ", found.type.bytes(), " bytes, ", bytes,
             " were given. Convert the tensor to that dtype and shape.");
  return found;
}

size_t find_stream(const std::vector<assemble::Stream>& streams, std::string_view name) {
  const auto found = std::find_if(streams.begin(), streams.end(),
                                  [&](const auto& stream) { return stream.name == name; });
  USER_CHECK(found != streams.end(), "[run] the program has no stream \"", name, "\". It has ",
             streams.size(), " streams; streams() lists them.");
  return static_cast<size_t>(found - streams.begin());
}

// The thread of a run, as long as it lasts.
class Running {
 public:
  explicit Running(std::atomic<std::thread::id>& runner) : runner_(runner) {
    runner_ = std::this_thread::get_id();
  }
  ~Running() { runner_ = std::thread::id(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  std::atomic<std::thread::id>& runner_;
};

}  // namespace

Executable::Executable(assemble::Program program, EngineOptions options)
    : engine_(std::move(program), options),
      is_sharing_(engine_.program().settings.is_on("share_weights")),
      process_(getpid()),
      forks_(fork_count()) {}

void Executable::check_process() const {
  USER_CHECK(fork_count() == forks_, "[run] the model was compiled in process ", process_,
             ", this is process ", getpid(), ", a fork of it. Use the model where it was compiled; "
             "to read trained weights elsewhere, call copyWeightsToHost() before the fork.");
}

void Executable::check_not_here(std::string_view what) const {
  USER_CHECK(!is_running_here(), "[run] ", what, " the model while a call of it runs in the same "
             "thread: the handler of a signal may only read its weights. Do that after the call; "
             "a handler that raises an exception ends it.");
}

Executable::Lock Executable::locked(std::string_view what) const {
  check_not_here(what);
  return Lock(mutex_);
}

void Executable::release(const Engine::Paths& elsewhere) {
  check_process();
  const Lock lock = locked("releasing the memory of");
  engine_.release(elsewhere);
}

void Executable::restore() {
  check_process();
  const Lock lock = locked("restoring the memory of");
  engine_.restore();
}

bool Executable::has_memory() const {
  const Lock lock = is_running_here() ? Lock() : Lock(mutex_);
  return engine_.has_memory();
}

bool Executable::has_state(std::string_view path) const {
  const assemble::State& state = find_state(states(), path);
  const Lock lock = is_running_here() ? Lock() : Lock(mutex_);
  return engine_.has_state(state);
}

bool Executable::is_same_in_replicas(std::string_view path) const {
  const assemble::State& state = find_state(states(), path);
  check_process();
  const Lock lock = is_running_here() ? Lock() : Lock(mutex_);
  return !engine_.has_state(state) || state.shard > 0 || engine_.is_same_in_replicas(state);
}

Part Executable::part_of(const assemble::State& state, int replica) const {
  return {state.type.numel(), replicas(), replica};
}

void Executable::write_state(std::string_view path, const void* data, size_t bytes, int replica) {
  const assemble::State& state = find_state(states(), path, bytes);
  USER_CHECK(replica < replicas(), "[run] replica ", replica, " was asked for, there are ",
             replicas(), ".");
  check_process();
  const Lock lock = locked("writing weights of");
  for (int r = 0; r < replicas(); ++r) {
    if (replica >= 0 && replica != r) continue;
    std::byte* to = engine_.own_state(state, r);
    if (state.shard > 0) {
      part_of(state, r).write(data, to, ir::item_bytes(state.type.dtype));
    } else {
      write_order(state, data, to);
    }
  }
  engine_.state_written(state);
}

bool Executable::can_share(std::string_view path) const {
  const assemble::State& state = find_state(states(), path);
  return is_sharing_ && state.is_shareable && !state.is_channels_last;
}

bool Executable::share_state(std::string_view path, void* data, size_t bytes) {
  return show_state(path, data, bytes, [](Range host) { return SharedPages::share(host); });
}

bool Executable::map_state(std::string_view path, const void* data, size_t bytes) {
  return show_state(path, const_cast<void*>(data), bytes,
                    [](Range host) { return SharedPages::of_file(host); });
}

bool Executable::show_state(std::string_view path, void* data, size_t bytes, const auto& pages_of) {
  const assemble::State& state = find_state(states(), path, bytes);
  const bool is_aligned = reinterpret_cast<uintptr_t>(data) % alignment_bytes == 0;
  if (!can_share(path) || !is_aligned) return false;
  check_process();
  auto* begin = static_cast<std::byte*>(data);
  std::shared_ptr<const SharedPages> pages = pages_of(Range{begin, begin + bytes});
  if (pages == nullptr) return false;
  const Lock lock = locked("writing weights of");
  if (!engine_.has_memory()) return false;
  if (engine_.share_state(state, std::move(pages))) engine_.state_written(state);
  return true;
}

void Executable::clear_state(std::string_view path) {
  const assemble::State& state = find_state(states(), path);
  check_process();
  const Lock lock = locked("writing weights of");
  for (int r = 0; r < replicas(); ++r) {
    std::memset(engine_.own_state(state, r), 0, static_cast<size_t>(state.own_bytes()));
  }
  engine_.state_written(state);
}

void Executable::read_state(std::string_view path, void* data, size_t bytes, int replica) const {
  const assemble::State& state = find_state(states(), path, bytes);
  USER_CHECK(replica >= 0 && replica < replicas(), "[run] replica ", replica,
             " was asked for, there are ", replicas(), ".");
  check_process();
  // Between two parts of a run the states are whole.
  const Lock lock = is_running_here() ? Lock() : Lock(mutex_);
  const std::byte* from = engine_.state_data(state, replica);
  USER_CHECK(from != nullptr, "[run] state \"", path, "\" has no value while the program's memory "
             "is released. Read it from where release() was told that it is.");
  if (state.shard == 0) return read_order(state, from, data);
  for (int r = 0; r < replicas(); ++r) {
    part_of(state, r).read(engine_.state_data(state, r), data, ir::item_bytes(state.type.dtype));
  }
}

void Executable::set_timeout(double seconds) {
  USER_CHECK(seconds > 0, "[timeout] expected a positive number of seconds, got ", seconds,
             ". Leave the timeout out for calls of any length.");
  for (const assemble::State& state : states()) {
    USER_CHECK(!state.is_assigned || state.role == "rng", "[timeout] each call changes ",
               state.path, ", and a call that is stopped after ", seconds, " s would leave it half "
               "written. Use a timeout only for models that do not change their weights and "
               "buffers, as most have it in inference.");
  }
  timeout_ns_ = static_cast<int64_t>(std::min(seconds, most_seconds) * 1e9);
}

void Executable::run(const std::vector<void*>& host, int threads,
                     const std::function<void()>& poll, Deadline& deadline) {
  check_process();
  check_not_here("calling");
  const Lock lock = deadline.lock(mutex_);
  ++runs_begun_;
  bool has_polled = false;
  const Running running(runner_);
  engine_.run(host, threads, [&] {
    has_polled = true;
    if (poll) poll();
  }, deadline);
  is_long_ = has_polled;
}

std::vector<std::array<int64_t, 2>> Executable::timestamps() const {
  const Lock lock = locked("reading times of");
  return engine_.timestamps();
}

std::vector<Spent> Executable::spent() const {
  const Lock lock = locked("reading times of");
  return engine_.spent();
}

std::optional<NonFinite> Executable::first_non_finite() const {
  USER_CHECK(is_recording_floats(), "[nan_report] the program does not record which value first is "
             "not finite. Compile it with record_floats.");
  const Lock lock = locked("asking about");
  return engine_.first_non_finite();
}

void Executable::set_profiling(bool is_on) {
  const Lock lock = locked("profiling");
  engine_.set_profiling(is_on);
}

void Executable::set_delay(int64_t most_us, int seed) {
  const Lock lock = locked("delaying workers of");
  engine_.set_delay(most_us, seed);
}

void Executable::set_output_mode(std::string_view stream, OutputMode mode, int64_t period) {
  const size_t index = find_stream(streams(), stream);
  USER_CHECK(!streams()[index].is_input, "[run] stream \"", stream,
             "\" is an input: it has no output mode.");
  USER_CHECK(period >= 1, "[run] the output period is ", period, ". Give 1 or more.");
  const Lock lock = locked("changing");
  engine_.slices(index).mode = mode;
  engine_.slices(index).period = period;
}

std::vector<std::array<int64_t, 2>> Executable::stream_times(std::string_view stream) const {
  const size_t index = find_stream(streams(), stream);
  const Lock lock = locked("reading times of");
  std::vector<std::array<int64_t, 2>> times = engine_.stream_times()[index];
  if (!times.empty()) times.resize(static_cast<size_t>(engine_.slices(index).host_slices()));
  return times;
}

int64_t Executable::host_slices(std::string_view stream) const {
  const Lock lock = locked("asking about");
  return engine_.slices(find_stream(streams(), stream)).host_slices();
}

}  // namespace poptorch::run

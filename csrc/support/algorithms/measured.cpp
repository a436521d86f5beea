#include "support/algorithms/measured.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>

#include "support/algorithms/measured_file.h"
#include "support/error.h"
#include "support/settings/settings.h"

namespace poptorch {

namespace {

// Time that this thread has had a core: other programs must not decide.
double now_us() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

// The least time of each, in turns, after one run that is not counted: it takes fresh memory.
std::vector<double> times_us(const std::vector<Trial>& trials) {
  constexpr int least_rounds = 3, most_rounds = 40;
  constexpr double enough_us = 4000;
  for (const Trial& trial : trials) trial();
  std::vector<double> least(trials.size(), INFINITY);
  const double begin = now_us();
  for (int round = 0; round < most_rounds; ++round) {
    if (round >= least_rounds && now_us() - begin > enough_us) break;
    for (size_t i = 0; i < trials.size(); ++i) {
      const double start = now_us();
      trials[i]();
      least[i] = std::min(least[i], now_us() - start);
    }
  }
  return least;
}

// What is known in this process. No result: the tables choose, now and later, as what a process
// computes may not change.
class Known {
 public:
  // Whether the problem has been asked for.
  bool find(const std::string& key, const Measured*& found) const {
    const std::shared_lock lock(mutex_);
    const auto at = problems_.find(key);
    if (at == problems_.end()) return false;
    found = at->second.has_value() ? &*at->second : nullptr;
    return true;
  }

  const Measured* keep(const std::string& key, std::optional<Measured> found) {
    const std::unique_lock lock(mutex_);
    const auto& kept = problems_.emplace(key, std::move(found)).first->second;
    return kept.has_value() ? &*kept : nullptr;
  }

  // Held while the process measures, so that trials do not disturb each other. Trials of one
  // problem may have problems of their own.
  std::recursive_mutex measuring;
  int depth = 0;  // of the thread that measures
  bool may_store = false;

 private:
  mutable std::shared_mutex mutex_;
  std::map<std::string, std::optional<Measured>> problems_;
};

Known& known() {
  static Known own;
  return own;
}

bool has_algorithms(const Measured& found, const std::vector<std::string>& algorithms) {
  const auto is_one = [&](const Timing& timing) {
    return std::find(algorithms.begin(), algorithms.end(), timing.algorithm) != algorithms.end();
  };
  return found.timings.size() == algorithms.size() &&
         std::all_of(found.timings.begin(), found.timings.end(), is_one);
}

// The chosen one: the fastest, or the first that was given where the difference may be noise.
void put_first(std::vector<Timing>& timings) {
  constexpr double noise = 0.03;
  const double given = timings[0].us * (1 - noise);
  const auto fastest = std::min_element(timings.begin() + 1, timings.end(),
                                        [](const auto& a, const auto& b) { return a.us < b.us; });
  if (fastest->us < given) std::rotate(timings.begin(), fastest, fastest + 1);
}

std::optional<Measured> measure(const MeasuredFile& file, const std::string& problem,
                                const std::vector<std::string>& algorithms,
                                const std::function<std::vector<Trial>()>& make_trials) {
  const auto stored = file.read();
  const auto at = stored.find(problem);
  if (at != stored.end() && has_algorithms(at->second, algorithms)) return at->second;
  // The file has the problem otherwise only when someone edited it.
  if (!known().may_store || at != stored.end()) return {};
  Settings alone = settings();
  alone.library_threads = 1;
  const SettingsScope scope(&alone);
  try {
    const std::vector<Trial> trials = make_trials();
    if (trials.empty()) return {};
    INTERNAL_CHECK(trials.size() == algorithms.size(), trials.size(), " trials of ",
                   algorithms.size(), " algorithms");
    const std::vector<double> us = times_us(trials);
    Measured found;
    for (size_t i = 0; i < us.size(); ++i) {
      // As the file has them.
      found.timings.push_back({algorithms[i], std::max(std::round(us[i] * 10) / 10, 0.1)});
    }
    put_first(found.timings);
    if (!file.add(problem, found)) return {};
    return found;
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace

std::string Measured::text() const {
  std::string others;
  for (size_t i = 1; i < timings.size(); ++i) {
    others += concat(", ", timings[i].algorithm, " ", std::lround(timings[i].us), " us");
  }
  return concat(timings[0].algorithm, " (measured ", std::lround(timings[0].us), " us", others,
                ")");
}

const Measured* measured(const std::string& problem, const std::vector<std::string>& algorithms,
                         const std::function<std::vector<Trial>()>& make_trials) {
  const Settings& present = settings();
  if (!present.measures || present.cache_folder.empty() || processor_text().empty()) return nullptr;
  std::string line = concat(problem, " ", simd::name_of(present.isa), " of");
  for (const std::string& algorithm : algorithms) line += concat(" ", algorithm);
  const std::string key = concat(present.cache_folder, "\t", line);
  Known& all = known();
  const Measured* found = nullptr;
  if (all.find(key, found)) return found;
  const std::lock_guard measuring(all.measuring);
  if (all.find(key, found)) return found;
  const MeasuredFile file(present.cache_folder);
  std::optional<MeasuredFile::Lock> lock;
  if (all.depth == 0) all.may_store = lock.emplace(file).is_held();
  struct Depth {
    int& depth;
    explicit Depth(int& d) : depth(d) { ++depth; }
    ~Depth() { --depth; }
  } const inner(all.depth);
  return all.keep(key, measure(file, line, algorithms, make_trials));
}

}  // namespace poptorch

#include "kernels/aten/allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_set>

#include "support/error.h"

namespace poptorch::aten {
namespace {

constexpr size_t kAlignment = 64;
// From here on an allocation of a dry run lies in work memory: smaller ones need no fresh pages.
constexpr size_t kLarge = 65536;

thread_local Scope* current_scope = nullptr;
std::atomic<int64_t> original_calls{0};

// Scopes that hand out memory, and memory that outlived its scope: both only matter to frees that
// do not belong to the current scope of the thread.
struct Registry {
  std::mutex mutex;
  std::vector<Scope*> scopes;
  std::unordered_set<void*> kept;

  bool release(void* memory) {
    std::lock_guard lock(mutex);
    for (Scope* scope : scopes) {
      if (scope->release_elsewhere(memory)) return true;
    }
    return kept.erase(memory) > 0;
  }
};

// Never destroyed: tensors of the process may outlive all static objects.
Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

class ScopedAllocator final : public c10::Allocator {
 public:
  explicit ScopedAllocator(c10::Allocator* original) : original_(original) { self = this; }

  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return original_->allocate(0);  // no memory: not counted, not planned
    if (current_scope != nullptr) {
      if (void* memory = current_scope->allocate(bytes)) {
        return {memory, memory, &release, c10::Device(c10::DeviceType::CPU)};
      }
    }
    original_calls.fetch_add(1, std::memory_order_relaxed);
    return original_->allocate(bytes);
  }

  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return original_->is_simple_data_ptr(data);
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return original_->raw_deleter() == nullptr ? nullptr : &release;
  }

  void copy_data(void* to, const void* from, size_t bytes) const override {
    original_->copy_data(to, from, bytes);
  }

  void* allocate_original(size_t bytes) {
    original_calls.fetch_add(1, std::memory_order_relaxed);
    return original_->raw_allocate(bytes);
  }

  static ScopedAllocator* self;

 private:
  static void release(void* memory) {
    if (memory == nullptr) return;
    if (current_scope != nullptr && current_scope->release(memory)) return;
    if (registry().release(memory)) return;
    self->original_->raw_deallocate(memory);
  }

  c10::Allocator* original_;
};

ScopedAllocator* ScopedAllocator::self = nullptr;

}  // namespace

bool install() {
  static const bool usable = [] {
    c10::Allocator* original = c10::GetCPUAllocator();
    if (original->raw_deleter() == nullptr) return false;
    // The lowest priority that is heeded: that of the present allocator. So one that a library sets
    // later takes our place as it would take torch's; then calls find no planned memory.
    c10::Allocator* ours = new ScopedAllocator(original);
    for (int priority = 0; priority <= UINT8_MAX && c10::GetCPUAllocator() != ours; ++priority) {
      c10::SetCPUAllocator(ours, static_cast<uint8_t>(priority));
    }
    return true;
  }();
  return usable;
}

int64_t original_allocations() { return original_calls.load(std::memory_order_relaxed); }

Scope::Scope() : outer_(current_scope) { current_scope = this; }

Scope::~Scope() { current_scope = outer_; }

bool Scope::release_elsewhere(void* memory) {
  const bool ours = owns(memory);
  if (ours) released_elsewhere_.push_back(memory);
  return ours;
}

void Scope::forget_released_elsewhere() {
  for (void* memory : released_elsewhere_) release(memory);
  released_elsewhere_.clear();
}

Recorder::Recorder(WorkMemory& memory) : memory_(memory) {
  std::lock_guard lock(registry().mutex);
  registry().scopes.push_back(this);
}

// What torch keeps stays where it is.
Recorder::~Recorder() {
  std::lock_guard lock(registry().mutex);
  std::erase(registry().scopes, this);
  forget_released_elsewhere();
  for (const Entry& entry : entries_) {
    if (!entry.is_ours || entry.end >= 0) continue;
    memory_.keep(entry.memory);
    registry().kept.insert(entry.memory);
  }
}

void* Recorder::allocate(size_t bytes) {
  if (ScopedAllocator::self == nullptr) return nullptr;
  const bool is_ours = bytes >= kLarge;
  void* memory =
      is_ours ? memory_.take(bytes) : ScopedAllocator::self->allocate_original(bytes);
  std::lock_guard lock(registry().mutex);
  forget_released_elsewhere();
  entries_.push_back({memory, bytes, time_++, -1, -1, is_ours});
  return memory;
}

void Recorder::end(Entry& entry) {
  entry.end = time_++;
  if (entry.is_ours) memory_.give_back(entry.memory);
}

// The original allocator frees what is not ours.
bool Recorder::release(void* memory) {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->memory != memory || entry->end >= 0) continue;
    end(*entry);
    return entry->is_ours;
  }
  return false;
}

bool Recorder::owns(const void* memory) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.is_ours && entry.memory == memory;
  });
}

bool Recorder::set_result(const void* memory, int index) {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->memory != memory || entry->end >= 0) continue;
    if (entry->result >= 0) return false;
    entry->result = index;
    return true;
  }
  return false;
}

Recording Recorder::finish() {
  {
    std::lock_guard lock(registry().mutex);
    forget_released_elsewhere();
  }
  Recording recording;
  for (const Entry& entry : entries_) {
    recording.push_back({entry.bytes, entry.begin, entry.end, entry.result});
  }
  return recording;
}

// First fit: each allocation takes the lowest address that is free during its life.
AllocationPlan place(const Recording& recording) {
  AllocationPlan plan;
  std::vector<size_t> placed;  // of the recording, in scratch
  for (size_t i = 0; i < recording.size(); ++i) {
    const Recorded& entry = recording[i];
    Allocation allocation{entry.bytes, 0, entry.result, entry.end < 0};
    if (allocation.result < 0 && !allocation.escapes) {
      std::vector<std::pair<size_t, size_t>> taken;  // by those alive now
      for (size_t j : placed) {
        const Allocation& other = plan.allocations[j];
        if (recording[j].end > entry.begin) taken.emplace_back(other.offset, other.bytes);
      }
      std::sort(taken.begin(), taken.end());
      for (const auto& [offset, bytes] : taken) {
        if (allocation.offset + entry.bytes <= offset) break;
        const size_t after = (offset + bytes + kAlignment - 1) / kAlignment * kAlignment;
        allocation.offset = std::max(allocation.offset, after);
      }
      plan.scratch_bytes = std::max(plan.scratch_bytes, allocation.offset + entry.bytes);
      placed.push_back(i);
    }
    plan.allocations.push_back(allocation);
  }
  return plan;
}

std::optional<Recording> extrapolate(const Recording& of_few, int64_t few,
                                     const Recording& of_more, int64_t more, int64_t count) {
  if (of_few.size() != of_more.size()) return std::nullopt;
  Recording recording = of_few;
  for (size_t i = 0; i < recording.size(); ++i) {
    Recorded& entry = recording[i];
    const Recorded& other = of_more[i];
    const auto grown = static_cast<int64_t>(other.bytes) - static_cast<int64_t>(entry.bytes);
    const bool is_alike = entry.begin == other.begin && entry.end == other.end &&
                          entry.result == other.result && grown >= 0 && grown % (more - few) == 0;
    if (!is_alike) return std::nullopt;
    entry.bytes += static_cast<size_t>(grown / (more - few) * (count - few));
  }
  return recording;
}

Replay::Replay(const AllocationPlan& plan, void* scratch, void* const* outputs)
    : plan_(plan), scratch_(static_cast<std::byte*>(scratch)), outputs_(outputs) {
  live_.reserve(plan.allocations.size());
  std::lock_guard lock(registry().mutex);
  registry().scopes.push_back(this);
}

Replay::~Replay() {
  std::lock_guard lock(registry().mutex);
  std::erase(registry().scopes, this);
  forget_released_elsewhere();
  for (const Live& live : live_) registry().kept.insert(live.memory);
}

bool Replay::is_free(const Allocation& wanted) const {
  for (const Live& live : live_) {
    const Allocation& other = *live.allocation;
    if (wanted.result >= 0 || other.result >= 0) {
      if (wanted.result == other.result) return false;
    } else if (wanted.offset < other.offset + other.bytes &&
               other.offset < wanted.offset + wanted.bytes) {
      return false;
    }
  }
  return true;
}

void* Replay::allocate(size_t bytes) {
  if (!in_step_ || next_ == plan_.allocations.size()) return nullptr;
  const Allocation& allocation = plan_.allocations[next_++];
  in_step_ = allocation.bytes == bytes && is_free(allocation);
  if (!in_step_ || allocation.escapes) return nullptr;
  void* memory = address_of(allocation);
  if (memory != nullptr) live_.push_back({memory, &allocation});
  return memory;
}

bool Replay::release(void* memory) {
  for (size_t i = live_.size(); i-- > 0;) {
    if (live_[i].memory == memory) {
      live_[i] = live_.back();
      live_.pop_back();
      return true;
    }
  }
  return false;
}

void* Replay::address_of(const Allocation& allocation) const {
  return allocation.result < 0 ? scratch_ + allocation.offset : outputs_[allocation.result];
}

bool Replay::owns(const void* memory) const {
  return std::any_of(plan_.allocations.begin(), plan_.allocations.end(),
                     [&](const Allocation& allocation) {
                       return !allocation.escapes && address_of(allocation) == memory;
                     });
}

void Replay::check(const std::string& what) {
  if (live_.empty()) return;
  {
    std::lock_guard lock(registry().mutex);
    forget_released_elsewhere();
  }
  INTERNAL_CHECK(live_.empty(), "[", what, "] torch kept ", live_.size(),
                 " allocations beyond the call. Its dry run kept none of them.");
}

}  // namespace poptorch::aten

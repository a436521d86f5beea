// An allocator of another extension: it counts what is asked of it, and asks the one before it.
#include <c10/core/CPUAllocator.h>

#include <atomic>

namespace {

std::atomic<long> calls{0};

struct Counting final : c10::Allocator {
  explicit Counting(c10::Allocator* before) : before(before) {}

  c10::DataPtr allocate(size_t bytes) override {
    ++calls;
    return before->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return before->raw_deleter(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    before->copy_data(to, from, bytes);
  }

  c10::Allocator* before;
};

}  // namespace

extern "C" void set_allocator(int priority) {
  c10::SetCPUAllocator(new Counting(c10::GetCPUAllocator()), static_cast<uint8_t>(priority));
}

extern "C" long calls_of_allocator() { return calls.load(); }

// How a thread treats numbers below the smallest normal one. Arithmetic on them takes the processor
// up to a hundred times longer, and a step that trains near its minimum is full of them. The engine
// flushes them to 0 while a program runs, on its own thread; parallel_for carries the mode of the
// thread that calls it to the others, for the time of the region. A thread of the pool that is
// started meanwhile has that mode from its creator: it must not keep it.
#pragma once

#include <cstdint>
#include <utility>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace poptorch {

// The mode of the calling thread: all of the processor's control bits. On processors without such
// bits it is always 0, and setting it does nothing.
inline uint32_t float_mode() {
#if defined(__SSE__)
  return _mm_getcsr();
#else
  return 0;
#endif
}

inline void set_float_mode(uint32_t mode) {
#if defined(__SSE__)
  _mm_setcsr(mode);
#else
  static_cast<void>(mode);
#endif
}

// Bits that make operands and results below the smallest normal number 0.
constexpr uint32_t flush_bits = 0x8040;

inline bool is_flushing() { return (float_mode() & flush_bits) == flush_bits; }

// The calling thread's mode while it exists.
class FloatMode {
 public:
  explicit FloatMode(uint32_t mode) : before_(float_mode()) {
    if (mode != before_) set_float_mode(mode);
  }
  ~FloatMode() {
    if (float_mode() != before_) set_float_mode(before_);
  }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  uint32_t before_;
};

// The flush bits that the calling thread has outside of the program that it runs; all of them where
// it runs none.
inline uint32_t& flush_bits_outside() {
  thread_local uint32_t bits = flush_bits;
  return bits;
}

// The mode of a program on the thread that runs it, while it exists.
class ProgramMode {
 public:
  explicit ProgramMode(bool is_flushing)
      : outside_(std::exchange(flush_bits_outside(), float_mode() & flush_bits)),
        mode_(float_mode() | (is_flushing ? flush_bits : 0)) {}
  ~ProgramMode() { flush_bits_outside() = outside_; }
  ProgramMode(const ProgramMode&) = delete;
  ProgramMode& operator=(const ProgramMode&) = delete;

 private:
  uint32_t outside_;
  FloatMode mode_;
};

}  // namespace poptorch

// The BLAS that torch has loaded into the process. Its functions are looked up and not linked:
// which library it is depends on torch's build.
#pragma once

#include <dlfcn.h>

namespace poptorch::kernels {

// nullptr when no library of the process has it.
template <typename Function>
Function find_symbol(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

// Sets how many threads MKL uses for calls of this thread and returns the number before; nullptr
// without MKL. (The lower-case name is another function, which takes a pointer.)
inline auto set_mkl_threads() -> int (*)(int) {
  static const auto function = find_symbol<int (*)(int)>("MKL_Set_Num_Threads_Local");
  return function;
}

// Keeps MKL on the calling thread while it exists: our kernels cut the work, not MKL, whose
// own cut changes the order of sums with the number of threads.
class SingleThreadedBlas {
 public:
  SingleThreadedBlas() {
    if (set_mkl_threads() != nullptr) before_ = set_mkl_threads()(1);
  }
  ~SingleThreadedBlas() {
    if (set_mkl_threads() != nullptr) set_mkl_threads()(before_);
  }
  SingleThreadedBlas(const SingleThreadedBlas&) = delete;
  SingleThreadedBlas& operator=(const SingleThreadedBlas&) = delete;

 private:
  int before_ = 0;
};

}  // namespace poptorch::kernels

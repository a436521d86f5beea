// The file that keeps what was measured on a machine (support/algorithms/measured.h), one for each
// processor.
//
//   poptorch algorithms 1 <processor>
//   <problem> TAB <algorithm>=<us> TAB <algorithm>=<us> ...      the chosen first
#pragma once

#include <map>
#include <string>

#include "support/algorithms/measured.h"

namespace poptorch {

class MeasuredFile {
 public:
  explicit MeasuredFile(const std::string& folder);

  // What the file holds. Lines that are damaged, and files of another processor, count as empty.
  std::map<std::string, Measured> read() const;
  // Adds a problem, keeping what other processes wrote, and replaces the file in one step. False:
  // the system refuses.
  bool add(const std::string& problem, const Measured& found) const;

  // Waits until no other process measures. Only one exists in a process at a time.
  class Lock {
   public:
    explicit Lock(const MeasuredFile& file);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

    bool is_held() const { return is_held_; }

   private:
    int descriptor_ = -1;
    bool is_held_ = false;
  };

 private:
  std::string folder_, path_;
};

// Name and features of this machine's processor; empty: not known.
const std::string& processor_text();

}  // namespace poptorch

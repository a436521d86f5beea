// The members of a file: a zip archive that nothing in is compressed (docs/internals/
// file_format.md). It is mapped, so members are read where they are used.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace poptorch::runtime {

class Archive {
 public:
  // A user error unless the directory of the archive fits the file.
  explicit Archive(const std::string& path);
  ~Archive();
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  const std::string& path() const { return path_; }
  bool has(const std::string& member) const { return find(member) != members_.end(); }
  // From now on a member of this folder stands for the one of the same name outside.
  void enter(const std::string& folder) { folder_ = folder + "/"; }
  // The bytes of a member, which live as long as this. A user error if it is not there or its
  // checksum differs. It is checked at each call: ask once.
  std::string_view operator[](const std::string& member) const;

 private:
  struct Member {
    std::string_view bytes;
    uint32_t checksum = 0;
  };

  using Members = std::map<std::string, Member>;

  Members::const_iterator find(const std::string& member) const;
  void read_directory();
  void read_entry(size_t& at);
  [[noreturn]] void damaged(const std::string& what) const;
  template <typename T>
  T number(size_t at) const;

  std::string path_;
  std::string_view bytes_;
  std::string folder_;
  Members members_;
};

}  // namespace poptorch::runtime

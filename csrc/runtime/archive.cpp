#include "runtime/archive.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "support/error.h"

namespace poptorch::runtime {

namespace {

// Eight tables: the checksum takes eight bytes at a time.
using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xEDB88320U : 0U);
    tables[0][byte] = value;
  }
  for (size_t i = 1; i < tables.size(); ++i) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[i - 1][byte];
      tables[i][byte] = before >> 8 ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

// Zip's: CRC-32.
uint32_t checksum_of(std::string_view bytes) {
  static constexpr Tables tables = make_tables();
  uint32_t value = ~0U;
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    word ^= value;
    value = 0;
    for (size_t i = 0; i < 8; ++i) value ^= tables[7 - i][word >> (8 * i) & 0xFF];
  }
  for (; at < bytes.size(); ++at) {
    value = value >> 8 ^ tables[0][(value ^ static_cast<uint8_t>(bytes[at])) & 0xFF];
  }
  return ~value;
}

std::string_view map_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  const bool is_file = file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = is_file ? static_cast<size_t>(status.st_size) : 0;
  void* const memory =
      size == 0 ? MAP_FAILED : mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const std::string reason = std::strerror(errno);
  if (file >= 0) close(file);
  USER_CHECK(file >= 0 && (size > 0 || !is_file || memory != MAP_FAILED || status.st_size == 0),
             "[load] cannot read ", path, ": ", reason,
             ". Pass a file that save() or compileAndExport() wrote.");
  USER_CHECK(is_file && memory != MAP_FAILED, "[load] cannot read ", path, ": it is ",
             is_file ? "empty" : "not a file",
             ". Pass a file that save() or compileAndExport() wrote.");
  return {static_cast<const char*>(memory), size};
}

constexpr uint32_t end_sign = 0x06054b50, entry_sign = 0x02014b50, member_sign = 0x04034b50;
constexpr uint32_t big_sign = 0x06064b50, big_end_sign = 0x07064b50;

}  // namespace

Archive::Archive(const std::string& path) : path_(path), bytes_(map_file(path)) {
  try {
    read_directory();
  } catch (...) {
    munmap(const_cast<char*>(bytes_.data()), bytes_.size());
    throw;
  }
}

Archive::~Archive() { munmap(const_cast<char*>(bytes_.data()), bytes_.size()); }

void Archive::damaged(const std::string& what) const {
  throw_user_error(concat("[load] ", path_, " is damaged or not a file of poptorch: ", what,
                          ". Export the model again."));
}

template <typename T>
T Archive::number(size_t at) const {
  if (at > bytes_.size() || bytes_.size() - at < sizeof(T)) damaged("a part of it is missing");
  T value = 0;
  std::memcpy(&value, bytes_.data() + at, sizeof value);
  return value;
}

void Archive::read_directory() {
  constexpr size_t end_bytes = 22, big_end_bytes = 20;
  if (bytes_.size() < end_bytes || number<uint32_t>(bytes_.size() - end_bytes) != end_sign) {
    damaged("it does not end as a zip archive");
  }
  const size_t end = bytes_.size() - end_bytes;
  uint64_t count = number<uint16_t>(end + 10), at = number<uint32_t>(end + 16);
  if (end >= big_end_bytes && number<uint32_t>(end - big_end_bytes) == big_end_sign) {
    const auto big = number<uint64_t>(end - big_end_bytes + 8);
    if (number<uint32_t>(big) != big_sign) damaged("its directory is not where it should be");
    count = number<uint64_t>(big + 32);
    at = number<uint64_t>(big + 48);
  }
  uint64_t total = 0;
  size_t next = at;
  for (uint64_t i = 0; i < count; ++i) read_entry(next);
  for (const auto& [name, member] : members_) total += member.bytes.size();
  if (total > bytes_.size()) damaged("its members overlap");
}

void Archive::read_entry(size_t& at) {
  if (number<uint32_t>(at) != entry_sign) damaged("its directory is not one of a zip archive");
  const uint64_t name_size = number<uint16_t>(at + 28), extra_size = number<uint16_t>(at + 30);
  uint64_t packed = number<uint32_t>(at + 20), size = number<uint32_t>(at + 24);
  uint64_t begin = number<uint32_t>(at + 42);
  const size_t name_at = at + 46;
  if (name_at + name_size + extra_size > bytes_.size()) damaged("a part of it is missing");
  const std::string name(bytes_.substr(name_at, name_size));
  // Sizes of 64 bits stand in the extra field, in this order, for those that are all ones.
  const size_t extra_end = name_at + name_size + extra_size;
  for (size_t extra = name_at + name_size; extra + 4 <= extra_end;
       extra += 4 + number<uint16_t>(extra + 2)) {
    if (number<uint16_t>(extra) != 1) continue;
    size_t field = extra + 4;
    for (uint64_t* value : {&size, &packed, &begin}) {
      if (*value != 0xFFFFFFFF) continue;
      *value = number<uint64_t>(field);
      field += 8;
    }
  }
  if (number<uint16_t>(at + 10) != 0 || packed != size) damaged(concat(name, " is compressed"));
  if (number<uint32_t>(begin) != member_sign) damaged(concat(name, " is not where it should be"));
  const uint64_t data = begin + 30 + number<uint16_t>(begin + 26) + number<uint16_t>(begin + 28);
  if (data > bytes_.size() || size > bytes_.size() - data) damaged(concat(name, " is cut off"));
  const Member member{bytes_.substr(data, size), number<uint32_t>(at + 16)};
  if (!members_.emplace(name, member).second) damaged(concat("it has ", name, " twice"));
  at = extra_end + number<uint16_t>(at + 32);
}

Archive::Members::const_iterator Archive::find(const std::string& name) const {
  const auto own = folder_.empty() ? members_.end() : members_.find(folder_ + name);
  return own != members_.end() ? own : members_.find(name);
}

std::string_view Archive::operator[](const std::string& name) const {
  const auto found = find(name);
  if (found == members_.end()) damaged(concat("it has no ", name));
  if (checksum_of(found->second.bytes) != found->second.checksum) {
    damaged(concat(name, " has another checksum than the archive says"));
  }
  return found->second.bytes;
}

}  // namespace poptorch::runtime

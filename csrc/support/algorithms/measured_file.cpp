#include "support/algorithms/measured_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <system_error>
#include <thread>

#include "support/concat.h"
#include "support/files.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace poptorch {

namespace {

constexpr size_t most_problems = 20000;  // some 2 MB

std::string hexadecimal(uint64_t number) {
  char digits[17];
  return {digits, std::to_chars(digits, digits + sizeof digits, number, 16).ptr};
}

#if defined(__x86_64__)
std::string read_processor() {
  std::string name, features;
  const auto add = [&](unsigned word) {
    features += concat(features.empty() ? "" : ".", hexadecimal(word));
  };
  unsigned words[4] = {};
  for (unsigned leaf = 0x80000002; leaf <= 0x80000004; ++leaf) {
    if (__get_cpuid(leaf, &words[0], &words[1], &words[2], &words[3]) == 0) return "";
    for (const unsigned word : words) {
      for (unsigned shift = 0; shift < 32; shift += 8) {
        const char c = static_cast<char>(word >> shift & 0xff);
        if (c >= ' ') name += c;
      }
    }
  }
  // The word b of leaf 1 holds the number of the core that asks.
  if (__get_cpuid(1, &words[0], &words[1], &words[2], &words[3]) == 0) return "";
  for (const size_t i : {0, 2, 3}) add(words[i]);
  if (__get_cpuid_count(7, 0, &words[0], &words[1], &words[2], &words[3]) != 0) {
    for (const size_t i : {1, 2, 3}) add(words[i]);
  }
  if (__get_cpuid_count(7, 1, &words[0], &words[1], &words[2], &words[3]) != 0) {
    add(words[0]);
  }
  return concat(name, " ", features);
}
#else
std::string read_processor() { return ""; }
#endif

// FNV-1a.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string with_one_decimal(double number) {
  const int64_t tenths = std::llround(number * 10);
  return concat(tenths / 10, ".", tenths % 10);
}

std::string header() { return concat("poptorch algorithms 1 ", processor_text()); }

// No timings: damaged.
Measured parse_timings(const std::vector<std::string>& parts) {
  Measured found;
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::string& part = parts[i];
    const size_t sign = part.find('=');
    if (sign == std::string::npos || sign == 0) return {};
    double us = 0;
    const char* end = part.data() + part.size();
    const auto number = std::from_chars(part.data() + sign + 1, end, us);
    if (number.ec != std::errc() || number.ptr != end || !(us > 0)) return {};
    found.timings.push_back({part.substr(0, sign), us});
  }
  return found;
}

}  // namespace

const std::string& processor_text() {
  static const std::string text = read_processor();
  return text;
}

MeasuredFile::MeasuredFile(const std::string& folder) : folder_(folder) {
  const std::string hash = hexadecimal(hash_of(processor_text()));
  path_ = concat(folder, "/algorithms_", std::string(16 - hash.size(), '0'), hash);
}

std::map<std::string, Measured> MeasuredFile::read() const {
  std::map<std::string, Measured> problems;
  const std::string text = read_whole(path_ + ".txt").value_or("");
  // The last line of a file that was cut has no end.
  const std::vector<std::string> lines =
      split(std::string_view(text).substr(0, text.rfind('\n') + 1), '\n');
  if (lines.empty() || lines[0] != header()) return problems;
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> parts = split(lines[i], '\t');
    Measured found = parse_timings(parts);
    if (!found.timings.empty()) problems.emplace(parts[0], std::move(found));
  }
  return problems;
}

bool MeasuredFile::add(const std::string& problem, const Measured& found) const {
  std::map<std::string, Measured> problems = read();
  if (problems.size() >= most_problems) return false;
  problems.emplace(problem, found);
  const std::string written = concat(path_, ".", getpid());
  std::string text = concat(header(), "\n");
  for (const auto& [name, one] : problems) {
    text += name;
    for (const Timing& timing : one.timings) {
      text += concat("\t", timing.algorithm, "=", with_one_decimal(timing.us));
    }
    text += "\n";
  }
  if (!write_whole(written, text)) {
    std::remove(written.c_str());
    return false;
  }
  return std::rename(written.c_str(), (path_ + ".txt").c_str()) == 0;
}

MeasuredFile::Lock::Lock(const MeasuredFile& file) {
  constexpr auto longest = std::chrono::seconds(5);
  constexpr auto pause = std::chrono::milliseconds(5);
  make_folders(file.folder_);
  descriptor_ = open((file.path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) return;
  // Of the process, not of the open file: a forked child does not hold it.
  struct flock all = {};
  all.l_type = F_WRLCK;
  all.l_whence = SEEK_SET;
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!(is_held_ = fcntl(descriptor_, F_SETLK, &all) == 0)) {
    if ((errno != EAGAIN && errno != EACCES) || std::chrono::steady_clock::now() > end) return;
    std::this_thread::sleep_for(pause);
  }
}

MeasuredFile::Lock::~Lock() {
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace poptorch

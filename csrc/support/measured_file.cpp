#include "support/measured_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <system_error>
#include <thread>

#include "support/error.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace poptorch {

namespace {

constexpr size_t most_problems = 20000;  // some 2 MB

#if defined(__x86_64__)
std::string read_processor() {
  std::string name;
  std::ostringstream features;
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
  features << std::hex;
  // The word b of leaf 1 holds the number of the core that asks.
  if (__get_cpuid(1, &words[0], &words[1], &words[2], &words[3]) == 0) return "";
  features << words[0] << '.' << words[2] << '.' << words[3];
  if (__get_cpuid_count(7, 0, &words[0], &words[1], &words[2], &words[3]) != 0) {
    features << '.' << words[1] << '.' << words[2] << '.' << words[3];
  }
  if (__get_cpuid_count(7, 1, &words[0], &words[1], &words[2], &words[3]) != 0) {
    features << '.' << words[0];
  }
  return concat(name, " ", features.str());
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

std::string header() { return concat("poptorch algorithms 1 ", processor_text()); }

// The parts of a line between tabs.
std::vector<std::string> parts_of(const std::string& line) {
  std::vector<std::string> parts;
  std::istringstream text(line);
  for (std::string part; std::getline(text, part, '\t');) parts.push_back(part);
  return parts;
}

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
  std::ostringstream name;
  name << "algorithms_" << std::hex << std::setw(16) << std::setfill('0')
       << hash_of(processor_text());
  path_ = concat(folder, "/", name.str());
}

std::map<std::string, Measured> MeasuredFile::read() const {
  std::map<std::string, Measured> problems;
  std::ifstream file(path_ + ".txt");
  std::string line;
  if (!std::getline(file, line) || line != header()) return problems;
  // The last line of a file that was cut has no end.
  while (std::getline(file, line) && !file.eof()) {
    const std::vector<std::string> parts = parts_of(line);
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
  {
    std::ofstream file(written);
    file << header() << "\n" << std::fixed << std::setprecision(1);
    for (const auto& [name, one] : problems) {
      file << name;
      for (const Timing& timing : one.timings) file << "\t" << timing.algorithm << "=" << timing.us;
      file << "\n";
    }
    file.close();
    if (file.fail()) {
      std::remove(written.c_str());
      return false;
    }
  }
  return std::rename(written.c_str(), (path_ + ".txt").c_str()) == 0;
}

MeasuredFile::Lock::Lock(const MeasuredFile& file) {
  constexpr auto longest = std::chrono::seconds(5);
  constexpr auto pause = std::chrono::milliseconds(5);
  std::error_code error;
  std::filesystem::create_directories(file.folder_, error);
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

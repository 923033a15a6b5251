#include <sched.h>
#include <stdlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>
#include <sstream>

#include "stage.hpp"

namespace autosplit {
namespace {

// How many processors there are, and how many have each feature; empty where the system lists none.
std::map<std::string, int> processor_features() {
  std::ifstream file("/proc/cpuinfo");
  std::map<std::string, int> counts;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) && line.rfind("Features", 0)) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) ++counts[word];
    ++counts[""];
  }
  return counts;
}

std::pair<int, int> release(const std::string& version) {
  int major = 0, minor = 0;
  std::sscanf(version.c_str(), "%d.%d", &major, &minor);
  return {major, minor};
}

}  // namespace

Tensor allocate(std::size_t bytes) {
  const std::size_t whole = (bytes / ALIGNMENT + 1) * ALIGNMENT;
  void* memory = aligned_alloc(ALIGNMENT, whole);
  if (!memory) throw std::bad_alloc();
  return Tensor(memory, free);
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

std::vector<int> available_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set)) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

void pin(int thread, const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int core : cores) CPU_SET(core, &set);
  // A worker thread may have ended meanwhile.
  if (sched_setaffinity(thread, sizeof set, &set) && errno != ESRCH)
    throw Error(BAD_MACHINE, "a thread cannot be pinned: ", std::strerror(errno));
}

void require_features(const std::vector<std::string>& features) {
  static const std::map<std::string, int> counts = processor_features();
  if (counts.empty()) return;
  std::string missing;
  for (const std::string& feature : features)
    if (!counts.count(feature) || counts.at(feature) < counts.at(""))
      missing += (missing.empty() ? "" : ", ") + feature;
  if (!missing.empty())
    throw Error(BAD_MACHINE, "this processor lacks ", missing,
                "; export it on this machine or for an older processor");
}

void require_version(const std::string& library, const std::string& present,
                     const std::string& required) {
  if (release(present) < release(required))
    throw Error(BAD_MACHINE, library, " ", present, " is older than ", required,
                ", which the export was made with; install that");
}

}  // namespace autosplit

#include "system.hpp"

#include <sched.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>
#include <sstream>

namespace autosplit {
namespace {

// SHA-256 of FIPS 180-4, so that no library of cryptography is needed for it.
class Sha256 {
 public:
  void add(const char* data, std::size_t size) {
    bits_ += std::uint64_t{size} * 8;
    while (size--) {
      block_[filled_++] = static_cast<unsigned char>(*data++);
      if (filled_ == block_.size()) compress();
    }
  }

  std::string digest() {
    const std::uint64_t bits = bits_;
    add("\x80", 1);
    while (filled_ != 56) add("", 1);
    for (int shift = 56; shift >= 0; shift -= 8) block_[filled_++] = bits >> shift & 0xff;
    compress();
    std::string text;
    char word[9];
    for (std::uint32_t h : state_) text.append(word, std::snprintf(word, sizeof word, "%08x", h));
    return text;
  }

 private:
  static std::uint32_t rotate(std::uint32_t x, int by) { return x >> by | x << (32 - by); }

  void compress() {
    static const std::array<std::uint32_t, 64> constants = first_primes();
    std::array<std::uint32_t, 64> w;
    for (int i = 0; i < 16; ++i)
      w[i] = std::uint32_t{block_[4 * i]} << 24 | std::uint32_t{block_[4 * i + 1]} << 16 |
             std::uint32_t{block_[4 * i + 2]} << 8 | block_[4 * i + 3];
    for (int i = 16; i < 64; ++i)
      w[i] = w[i - 16] + w[i - 7] +
             (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) +
             (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
    auto [a, b, c, d, e, f, g, h] = state_;
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t first = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
                                  ((e & f) ^ (~e & g)) + constants[i] + w[i];
      const std::uint32_t second =
          (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
    }
    const std::array<std::uint32_t, 8> change{a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; ++i) state_[i] += change[i];
    filled_ = 0;
  }

  // The first 32 bits of the fractions of the cube roots of the first 64 primes, exactly: the
  // largest integer whose cube is at most p * 2^96.
  static std::array<std::uint32_t, 64> first_primes() {
    std::array<std::uint32_t, 64> constants{};
    std::size_t count = 0;
    for (unsigned p = 2; count < constants.size(); ++p) {
      bool is_prime = true;
      for (unsigned q = 2; q * q <= p; ++q) is_prime = is_prime && p % q;
      if (!is_prime) continue;
      unsigned __int128 root = 0;
      for (unsigned __int128 bit = static_cast<unsigned __int128>(1) << 35; bit; bit >>= 1) {
        const unsigned __int128 next = root + bit;
        if (next * next * next <= static_cast<unsigned __int128>(p) << 96) root = next;
      }
      constants[count++] = static_cast<std::uint32_t>(root);
    }
    return constants;
  }

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<unsigned char, 64> block_{};
  std::size_t filled_ = 0;
  std::uint64_t bits_ = 0;
};

// The features that every processor here has; empty where the system does not list them.
std::vector<std::string> processor_features() {
  std::ifstream file("/proc/cpuinfo");
  std::vector<std::string> common;
  bool is_first = true;
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("flags", 0) && line.rfind("Features", 0)) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::vector<std::string> features, both;
    for (std::string word; words >> word;) features.push_back(word);
    std::sort(features.begin(), features.end());
    std::set_intersection(common.begin(), common.end(), features.begin(), features.end(),
                          std::back_inserter(both));
    common = is_first ? features : both;
    is_first = false;
  }
  return common;
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
    throw Error(BAD_MACHINE, std::string("a thread cannot be pinned: ") + std::strerror(errno));
}

void require_features(const std::vector<std::string>& features) {
  static const std::vector<std::string> available = processor_features();
  if (available.empty()) return;
  std::string missing;
  for (const std::string& feature : features)
    if (!std::binary_search(available.begin(), available.end(), feature))
      missing += (missing.empty() ? "" : ", ") + feature;
  if (!missing.empty())
    throw Error(BAD_MACHINE, "this processor lacks " + missing +
                                 "; export it on this machine or for an older processor");
}

void require_version(const std::string& library, const std::string& present,
                     const std::string& required) {
  if (release(present) < release(required))
    throw Error(BAD_MACHINE, library + " " + present + " is older than " + required +
                                 ", which the export was made with; install that");
}

std::ifstream open_regular(const std::string& file) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return {};
  return std::ifstream(file, std::ios::binary);
}

PrivateFolder::PrivateFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "autosplit-load-XXXXXX").string();
  if (!mkdtemp(name.data()))
    throw Error(BAD_MACHINE, name + " cannot be made; name another folder with TMPDIR");
  path_ = name;
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string PrivateFolder::copy(const std::filesystem::path& folder, const File& file) {
  const std::string source = (folder / file.name).string();
  const auto target = path_ / file.name;
  std::ifstream in = open_regular(source);
  if (!in.is_open()) throw Error(BAD_INPUT, "'" + source + "' is missing; export the split again");
  std::ofstream out(target, std::ios::binary);
  Sha256 hash;
  std::vector<char> chunk(1 << 20);
  while (in.read(chunk.data(), chunk.size()), in.gcount() > 0) {
    hash.add(chunk.data(), in.gcount());
    out.write(chunk.data(), in.gcount());
  }
  if (!out.flush())
    throw Error(BAD_MACHINE, "'" + target.string() + "' cannot be written; name another folder " +
                                 "with TMPDIR");
  const std::string digest = hash.digest();
  if (digest != file.sha256)
    throw Error(BAD_INPUT, "'" + source + "' has sha256 " + digest.substr(0, 12) +
                               "…, recorded is " + file.sha256.substr(0, 12) +
                               "…; it was changed, export it again");
  return target.string();
}

}  // namespace autosplit

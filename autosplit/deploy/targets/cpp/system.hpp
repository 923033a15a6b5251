// The machine: cores, processor features, and files that are checked before they are loaded.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "description.hpp"

namespace autosplit {

// The cores that this process may use.
std::vector<int> available_cores();

// Lets a thread of this process (0: the calling one) run on some cores only.
void pin(int thread, const std::vector<int>& cores);

// Throws where this processor lacks one of some features.
void require_features(const std::vector<std::string>& features);

// A file to read, not open where it is none: opening a named pipe would wait for a writer.
std::ifstream open_regular(const std::string& file);

// A folder of copies that nobody else can change between their check and their use.
class PrivateFolder {
 public:
  PrivateFolder();
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  // Copies a file of `folder` and returns the path of the copy; throws for another content.
  std::string copy(const std::filesystem::path& folder, const File& file);

 private:
  std::filesystem::path path_;
};

}  // namespace autosplit

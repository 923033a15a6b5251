// The machine: cores, processor features and files.
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

// The path of a file of an export; throws where there is none.
std::string existing(const std::filesystem::path& folder, const std::string& name);

}  // namespace autosplit

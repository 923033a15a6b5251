// The interface of a stage, its inputs and outputs, and functions for the machine it runs on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace autosplit {

// An error in one line; the program ends with its code, as `autosplit` does.
class Error : public std::runtime_error {
 public:
  template <typename... Parts>
  explicit Error(int code, const Parts&... parts)
      : std::runtime_error(joined(parts...)), exit_code(code) {}
  int exit_code;

 private:
  template <typename... Parts>
  static std::string joined(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    return text.str();
  }
};
constexpr int STAGE_FAILED = 1, BAD_INPUT = 2, BAD_MACHINE = 3;

// A tensor at the border of a stage. `dtype` is numpy's name, `descr` its code in .npy files.
// `range` is empty, or has the least and the largest legal value of an input of integers.
struct Port {
  std::string name, dtype, descr;
  std::vector<std::int64_t> shape;
  std::size_t bytes;
  std::vector<std::int64_t> range;
};

// The memory of a tensor, which nobody changes once it is sent. Its port has the shape and type.
using Tensor = std::shared_ptr<void>;
using Tensors = std::vector<Tensor>;

// The kernels of all runtimes may load whole vectors.
constexpr std::size_t ALIGNMENT = 64;
Tensor allocate(std::size_t bytes);

class Stage {
 public:
  virtual ~Stage() = default;
  // Prepares the calling thread, which is pinned to the stage's cores and alone calls `run`.
  virtual void open() {}
  virtual Tensors run(const Tensors& inputs) = 0;
};

// Where a tensor comes from: the caller (producer 0), or stage `producer` - 1. A tensor that comes
// from its own stage is a state, which the previous item of the stream left.
struct Source {
  std::size_t producer, index;
};

// A file of an export and its size in bytes there.
struct File {
  std::string name;
  std::uintmax_t bytes;
};

// A copy of a stage and the processor features that its code needs, by their names in Linux. `file`
// is its path once it is placed.
struct Replica {
  std::string file;
  std::vector<int> cores;
  std::vector<std::string> features;
};

// A stage as split.json has it, and the function that loads a replica of it. `version` is that of
// the runtime that it was exported with.
struct StageSpec {
  std::unique_ptr<Stage> (*load)(const StageSpec&, const Replica&);
  std::string runtime, version;
  std::vector<Port> inputs, outputs;
  std::vector<Source> sources;  // of the inputs
  std::vector<Replica> replicas;
  std::vector<File> files;  // of all replicas, and those that they read
};

// A program contains only those of the runtimes that its stages need.
std::unique_ptr<Stage> load_tvm(const StageSpec&, const Replica&);
std::unique_ptr<Stage> load_openvino(const StageSpec&, const Replica&);
std::unique_ptr<Stage> load_onnxruntime(const StageSpec&, const Replica&);

// Whether a path is that of a regular file, not of a pipe for example.
bool is_file(const std::string& path);

// The cores that this process may use.
std::vector<int> available_cores();

// Lets a thread of this process (0: the calling one) run on some cores only.
void pin(int thread, const std::vector<int>& cores);

// These throw where the processor lacks a feature or a library is too old for the export.
void require_features(const std::vector<std::string>& features);
void require_version(const std::string& library, const std::string& present,
                     const std::string& required);

}  // namespace autosplit

// Stages that compute a checksum of their inputs after a pause of random length, in place of those
// of the runtimes. FAIL=FILE:N lets the stage of that file fail at the N-th item of a replica.
// stage1.so fails on an item that ends in a byte 255. With THREADS=N a replica has N cores.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "pipeline.hpp"

namespace autosplit {
namespace {

class FakeStage : public Stage {
 public:
  FakeStage(const StageSpec& spec, const Replica& replica)
      : inputs_(spec.inputs),
        outputs_(spec.outputs),
        is_second_(replica.file.find("stage1.so") != std::string::npos) {
    const char* fail = std::getenv("FAIL");
    const std::string name = replica.file.substr(replica.file.rfind('/') + 1) + ":";
    if (fail && !std::strncmp(fail, name.c_str(), name.size()))
      fails_at_ = std::atoi(fail + name.size());
  }

  Tensors run(const Tensors& inputs) override {
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
    if (++count_ == fails_at_) throw std::runtime_error("out of luck\nand more");
    Tensors outputs;
    for (const Port& port : outputs_) outputs.push_back(allocate(port.bytes));
    for (std::size_t n = 0; n < description.batch; ++n) compute(inputs, outputs, n);
    return outputs;
  }

 private:
  // Item `n` of a batch.
  void compute(const Tensors& inputs, const Tensors& outputs, std::size_t n) const {
    std::uint64_t sum = 0, weight = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::size_t bytes = inputs_[i].bytes / description.batch;
      const unsigned char* item = static_cast<unsigned char*>(inputs[i].get()) + n * bytes;
      for (std::size_t b = 0; b < bytes; ++b) sum += ++weight * item[b];
      if (is_second_ && item[bytes - 1] == 255)
        throw std::runtime_error("bad item\nand more");
    }
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const std::size_t bytes = outputs_[i].bytes / description.batch;
      std::memset(static_cast<char*>(outputs[i].get()) + n * bytes,
                  static_cast<int>((sum + i + 1) % 251), bytes);
    }
  }

  const std::vector<Port>&inputs_, &outputs_;
  const bool is_second_;
  int count_ = 0, fails_at_ = 0;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace

std::unique_ptr<Stage> load_tvm(const StageSpec& spec, const Replica& replica) {
  require_version("fake runtime", "0.27", spec.version);
  const char* threads = std::getenv("THREADS");
  if (threads && replica.cores.size() != std::stoul(threads))
    throw Error(BAD_MACHINE, "a replica has ", replica.cores.size(), " cores");
  return std::make_unique<FakeStage>(spec, replica);
}

}  // namespace autosplit

// libstdc++ is not built for the sanitizer, which misses how it counts the users of an exception.
extern "C" const char* __tsan_default_suppressions() { return "race:exception_ptr::_M_release"; }

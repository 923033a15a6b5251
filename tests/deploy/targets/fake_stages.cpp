// Stages that compute a checksum of their inputs after a pause of random length, in place of those
// of the runtimes. FAIL=FILE:N lets the stage of that file fail at the N-th item of a replica.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "stage.hpp"

namespace autosplit {
namespace {

class FakeStage : public Stage {
 public:
  FakeStage(const StageSpec& spec, const Replica& replica)
      : inputs_(spec.inputs), outputs_(spec.outputs) {
    const char* fail = std::getenv("FAIL");
    const std::string name = replica.file.substr(replica.file.rfind('/') + 1) + ":";
    if (fail && !std::strncmp(fail, name.c_str(), name.size()))
      fails_at_ = std::atoi(fail + name.size());
  }

  Tensors run(const Tensors& inputs) override {
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 300));
    if (++count_ == fails_at_) throw std::runtime_error("out of luck\nand more");
    std::uint64_t sum = 0, weight = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      for (std::size_t b = 0; b < inputs_[i].bytes; ++b)
        sum += ++weight * static_cast<unsigned char*>(inputs[i].get())[b];
    Tensors outputs;
    for (const Port& port : outputs_) {
      outputs.push_back(allocate(port.bytes));
      std::memset(outputs.back().get(), static_cast<int>((sum + outputs.size()) % 251), port.bytes);
    }
    return outputs;
  }

 private:
  const std::vector<Port>&inputs_, &outputs_;
  int count_ = 0, fails_at_ = 0;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace

std::unique_ptr<Stage> load_tvm(const StageSpec& spec, const Replica& replica) {
  require_version("fake runtime", "0.27", spec.version);
  return std::make_unique<FakeStage>(spec, replica);
}

}  // namespace autosplit

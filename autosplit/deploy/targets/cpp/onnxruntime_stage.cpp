// Stages in onnxruntime.
#include <onnxruntime_cxx_api.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <string>

#include "stage.hpp"

namespace autosplit {
namespace {

using Session = std::shared_ptr<Ort::Session>;

// Whether the processor adds products of 8-bit numbers exactly.
bool has_vnni() {
  std::ifstream features("/proc/cpuinfo");
  for (std::string word; features >> word;)
    if (word.find("vnni") != std::string::npos) return true;
  return false;
}

Session new_session(const Replica& replica) {
  static Ort::Env environment(ORT_LOGGING_LEVEL_FATAL);
  Ort::SessionOptions options;
  options.SetIntraOpNumThreads(static_cast<int>(replica.cores.size()));
  options.SetInterOpNumThreads(1);
  // A thread that waits must not take a core from another stage.
  options.AddConfigEntry("session.intra_op.allow_spinning", "0");
  // Otherwise sums of products of 8-bit numbers would saturate.
  static const bool is_exact = has_vnni();
  if (!is_exact) options.AddConfigEntry("session.x64quantprecision", "1");
  // A new thread inherits the affinity of the one that starts it.
  const auto load = [&] {
    pin(0, replica.cores);
    return std::make_shared<Ort::Session>(environment, replica.file.c_str(), options);
  };
  return std::async(std::launch::async, load).get();
}

// The memory (NUMA node) next to a core; empty where there is one for all.
std::string memory_node(int core) {
  const std::filesystem::path folder = "/sys/devices/system/cpu/cpu" + std::to_string(core);
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    const std::string name = entry.path().filename();
    if (name.rfind("node", 0) == 0) return name;
  }
  return "";
}

// Replicas with one thread share a session where their cores share memory.
Session session_of(const Replica& replica) {
  static std::map<std::string, std::weak_ptr<Ort::Session>> shared;
  if (replica.cores.size() != 1) return new_session(replica);
  std::weak_ptr<Ort::Session>& known = shared[memory_node(replica.cores[0]) + replica.file];
  Session session = known.lock();
  if (!session) known = session = new_session(replica);
  return session;
}

class SessionStage : public Stage {
 public:
  SessionStage(const StageSpec& spec, const Replica& replica)
      : inputs_(spec.inputs), session_(session_of(replica)) {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      types_.push_back(session_->GetInputTypeInfo(i).GetTensorTypeAndShapeInfo().GetElementType());
    for (const Port& port : inputs_) input_names_.push_back(port.name.c_str());
    for (const Port& port : spec.outputs) output_names_.push_back(port.name.c_str());
  }

  Tensors run(const Tensors& inputs) override {
    static const Ort::MemoryInfo memory =
        Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
    std::vector<Ort::Value> values;
    for (std::size_t i = 0; i < inputs.size(); ++i)
      values.push_back(Ort::Value::CreateTensor(memory, inputs[i].get(), inputs_[i].bytes,
                                                inputs_[i].shape.data(), inputs_[i].shape.size(),
                                                types_[i]));
    auto results = session_->Run(Ort::RunOptions{nullptr}, input_names_.data(), values.data(),
                                 values.size(), output_names_.data(), output_names_.size());
    Tensors outputs;
    for (Ort::Value& value : results) {
      const auto owner = std::make_shared<Ort::Value>(std::move(value));
      outputs.emplace_back(owner, owner->GetTensorMutableRawData());
    }
    return outputs;
  }

 private:
  const std::vector<Port>& inputs_;
  const Session session_;
  std::vector<ONNXTensorElementDataType> types_;
  std::vector<const char*> input_names_, output_names_;
};

}  // namespace

std::unique_ptr<Stage> load_onnxruntime(const StageSpec& spec, const Replica& replica) {
  const std::string version = OrtGetApiBase()->GetVersionString();
  // GetApi returns null where the library is older than the headers.
  if (!OrtGetApiBase()->GetApi(ORT_API_VERSION))
    throw Error(BAD_MACHINE, "onnxruntime ", version, " is older than its headers; install the ",
                "version that the program was built with");
  require_version("onnxruntime", version, spec.version);
  return std::make_unique<SessionStage>(spec, replica);
}

}  // namespace autosplit

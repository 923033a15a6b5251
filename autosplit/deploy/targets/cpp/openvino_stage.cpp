// Stages in OpenVINO. It takes a number of threads, not cores: a model with one thread runs in the
// calling one; one with more also uses workers of a pool that all models of the process share. They
// are pinned to the cores of all stages with several threads.
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <openvino/openvino.hpp>
#include <set>

#include "system.hpp"

namespace autosplit {
namespace {

const char* const THREADS = "/proc/self/task";
const char* const NAME = "openvino";  // threads inherit the name of the one that starts them
std::mutex workers_lock;
std::set<int> stage_threads, worker_cores;

// A folder has a link from each of its subfolders, one a thread here.
nlink_t thread_count() {
  struct stat status {};
  stat(THREADS, &status);
  return status.st_nlink;
}

void pin_workers() {
  const std::lock_guard<std::mutex> lock(workers_lock);
  for (const auto& task : std::filesystem::directory_iterator(THREADS)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    const int thread = std::stoi(task.path().filename());
    if (name == NAME && !stage_threads.count(thread))
      pin(thread, {worker_cores.begin(), worker_cores.end()});
  }
}

class OpenvinoStage : public Stage {
 public:
  OpenvinoStage(const StageSetting& setting, ov::element::Type precision)
      : outputs_(setting.outputs), cores_(setting.cores) {
    // In every inference OpenVINO would bind the calling thread to all cores of the process. It
    // does so by hwloc, which does not bind if it takes the topology for another machine's.
    setenv("HWLOC_THISSYSTEM", "0", 0);
    const auto compile = [&] {
      prctl(PR_SET_NAME, NAME);
      return ov::Core().compile_model(
          setting.file, "CPU", ov::num_streams(1),
          ov::inference_num_threads(static_cast<int>(cores_.size())),
          // OpenVINO would choose the cores by itself, and bfloat16 where the processor has it.
          ov::hint::enable_cpu_pinning(false), ov::hint::inference_precision(precision));
    };
    // The threads that compiling starts get the name of this one.
    ov::CompiledModel model = std::async(std::launch::async, compile).get();
    require_bytes(model.inputs(), setting.inputs);
    require_bytes(model.outputs(), setting.outputs);
    request_ = model.create_infer_request();
    for (const auto& input : model.inputs())
      input_types_.emplace_back(input.get_element_type(), input.get_shape());
  }

  void open() override {
    if (cores_.size() == 1) return;
    prctl(PR_SET_NAME, NAME);
    {
      const std::lock_guard<std::mutex> lock(workers_lock);
      stage_threads.insert(gettid());
      worker_cores.insert(cores_.begin(), cores_.end());
    }
    // The first inference starts the workers. Zeros are legal indices too.
    for (std::size_t i = 0; i < input_types_.size(); ++i) {
      ov::Tensor tensor = request_.get_input_tensor(i);
      std::memset(tensor.data(), 0, tensor.get_byte_size());
    }
    request_.infer();
    pin_workers();
    threads_ = thread_count();
  }

  Tensors run(const Tensors& inputs) override {
    for (std::size_t i = 0; i < inputs.size(); ++i)
      request_.set_input_tensor(
          i, ov::Tensor(input_types_[i].first, input_types_[i].second, inputs[i].get()));
    request_.infer();
    // OpenVINO starts some workers only when there is more work.
    if (cores_.size() > 1 && thread_count() != threads_) {
      pin_workers();
      threads_ = thread_count();
    }
    Tensors results;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      results.push_back(allocate(outputs_[i].bytes));
      // The next run writes to the same memory.
      std::memcpy(results[i].get(), request_.get_output_tensor(i).data(), outputs_[i].bytes);
    }
    return results;
  }

 private:
  template <typename Nodes>
  static void require_bytes(const Nodes& nodes, const std::vector<Port>& ports) {
    bool is_equal = nodes.size() == ports.size();
    for (std::size_t i = 0; is_equal && i < ports.size(); ++i)
      is_equal = ov::shape_size(nodes[i].get_shape()) * nodes[i].get_element_type().size() ==
                 ports[i].bytes;
    if (!is_equal)
      throw Error(BAD_INPUT, "the ONNX model has other ports than split.json says; export it again");
  }

  const std::vector<Port>& outputs_;
  const std::vector<int> cores_;
  std::vector<std::pair<ov::element::Type, ov::Shape>> input_types_;
  ov::InferRequest request_;
  nlink_t threads_ = 0;
};

std::unique_ptr<Stage> load(const StageSetting& setting, ov::element::Type precision) {
  require_version("OpenVINO", ov::get_openvino_version().buildNumber, setting.version);
  return std::make_unique<OpenvinoStage>(setting, precision);
}

}  // namespace

std::unique_ptr<Stage> load_openvino(const StageSetting& setting) {
  return load(setting, ov::element::f32);
}

std::unique_ptr<Stage> load_openvino_bfloat16(const StageSetting& setting) {
  return load(setting, ov::element::bf16);
}

}  // namespace autosplit

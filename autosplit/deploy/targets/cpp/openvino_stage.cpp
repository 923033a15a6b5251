// Stages in OpenVINO. It takes a number of threads, not cores: a model with one thread runs in the
// calling thread; one with more also uses workers of a pool that all models of the process share.
// Workers are pinned to the cores of the stages with several threads, the same for all of these.
#include <sys/prctl.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <openvino/core/graph_util.hpp>
#include <openvino/op/topk.hpp>
#include <openvino/openvino.hpp>

#include "stage.hpp"

namespace autosplit {
namespace {

const char* const THREADS = "/proc/self/task";
const char* const NAME = "openvino";  // threads inherit the name of the one that starts them

// The link count of this folder grows with its subfolders, of which each thread has one.
nlink_t thread_count() {
  struct stat status {};
  stat(THREADS, &status);
  return status.st_nlink;
}

void pin_workers(const std::vector<int>& cores) {
  for (const auto& task : std::filesystem::directory_iterator(THREADS)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == NAME) pin(std::stoi(task.path().filename()), cores);
  }
}

// Of equal values ONNX takes those with the lowest indices first.
void keep_ties_in_order(const std::shared_ptr<ov::Model>& model) {
  for (const auto& node : model->get_ordered_ops()) {
    const auto topk = std::dynamic_pointer_cast<ov::op::v11::TopK>(node);
    if (!topk) continue;
    const auto stable = std::make_shared<ov::op::v11::TopK>(
        topk->input_value(0), topk->input_value(1), topk->get_provided_axis(), topk->get_mode(),
        ov::op::TopKSortType::SORT_VALUES, topk->get_index_element_type(), true);
    ov::replace_node(topk, stable);
  }
}

class OpenvinoStage : public Stage {
 public:
  OpenvinoStage(const StageSpec& spec, const Replica& replica)
      : inputs_(spec.inputs), outputs_(spec.outputs), cores_(replica.cores) {
    require_version("OpenVINO", ov::get_openvino_version().buildNumber, spec.version);
    // By default every inference binds the calling thread to all cores of the process. OpenVINO
    // uses hwloc for it, which binds nothing if told that the topology is another machine's.
    setenv("HWLOC_THISSYSTEM", "0", 0);
    const bool is_rounding = spec.runtime == "openvino-bfloat16";
    const auto compile = [&] {
      prctl(PR_SET_NAME, NAME);
      ov::Core core;
      const auto model = core.read_model(replica.file);
      keep_ties_in_order(model);
      return core.compile_model(
          model, "CPU", ov::num_streams(1),
          ov::inference_num_threads(static_cast<int>(cores_.size())),
          // By default OpenVINO chooses the cores by itself, and bfloat16 if the processor has it.
          ov::hint::enable_cpu_pinning(false),
          ov::hint::inference_precision(is_rounding ? ov::element::bf16 : ov::element::f32));
    };
    // The threads that compiling starts get the name of this one.
    request_ = std::async(std::launch::async, compile).get().create_infer_request();
  }

  void open() override {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      require_bytes(request_.get_input_tensor(i), inputs_[i]);
    if (cores_.size() == 1) return;
    prctl(PR_SET_NAME, NAME);
    // The first inference starts the workers. Zeros are legal indices too.
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      std::memset(request_.get_input_tensor(i).data(), 0, inputs_[i].bytes);
    request_.infer();
    pin_workers(cores_);
    threads_ = thread_count();
  }

  Tensors run(const Tensors& inputs) override {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ov::Tensor present = request_.get_input_tensor(i);
      request_.set_input_tensor(
          i, ov::Tensor(present.get_element_type(), present.get_shape(), inputs[i].get()));
    }
    request_.infer();
    // OpenVINO starts some workers only when there is more work.
    if (cores_.size() > 1 && thread_count() != threads_) {
      pin_workers(cores_);
      threads_ = thread_count();
    }
    Tensors results;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const ov::Tensor output = request_.get_output_tensor(i);
      require_bytes(output, outputs_[i]);
      results.push_back(allocate(outputs_[i].bytes));
      // The next run writes to the same memory.
      std::memcpy(results[i].get(), output.data(), outputs_[i].bytes);
    }
    return results;
  }

 private:
  static void require_bytes(const ov::Tensor& tensor, const Port& port) {
    if (tensor.get_byte_size() != port.bytes)
      throw Error(BAD_INPUT, "'", port.name, "' has another size than split.json says");
  }

  const std::vector<Port>&inputs_, &outputs_;
  const std::vector<int> cores_;
  ov::InferRequest request_;
  nlink_t threads_ = 0;
};

}  // namespace

std::unique_ptr<Stage> load_openvino(const StageSpec& spec, const Replica& replica) {
  return std::make_unique<OpenvinoStage>(spec, replica);
}

}  // namespace autosplit

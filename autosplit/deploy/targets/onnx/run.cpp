// Run the stages of a folder in OpenVINO: run FOLDER < ITEMS > OUTPUTS. Both are raw arrays: of each
// item its inputs, or outputs, in the order of pipeline.json.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <oneapi/tbb/parallel_pipeline.h>
#include <openvino/openvino.hpp>

using Tensors = std::map<std::string, ov::Tensor>;
using Item = std::shared_ptr<Tensors>;
constexpr auto IN_ORDER = tbb::filter_mode::serial_in_order;

int main(int, char** words) {
  const std::string folder = std::string(words[1]) + "/";
  const auto wiring = nlohmann::json::parse(std::ifstream(folder + "pipeline.json"));
  Tensors states;
  for (const auto& state : wiring["states"]) states.emplace(state["input"], ov::Tensor());
  tbb::filter<void, Item> stages = tbb::make_filter<void, Item>(IN_ORDER, [&](auto& control) {
    const auto item = std::make_shared<Tensors>();
    for (const auto& input : wiring["inputs"]) {
      ov::Tensor bytes(ov::element::u8, {input["bytes"].get<std::size_t>()});
      if (!std::cin.read(bytes.data<char>(), bytes.get_byte_size())) control.stop();
      item->emplace(input["name"], bytes);
    }
    return item;
  });
  for (const auto& entry : wiring["pipeline"]) {
    const auto& stage = *entry.begin();
    auto model = ov::Core().compile_model(folder + std::string(stage["filename"]), "CPU",
        ov::num_streams(1), ov::hint::inference_precision(ov::element::f32),
        ov::inference_num_threads(stage["session_options"]["intra_op_num_threads"].get<int>()));
    const auto request = std::make_shared<ov::InferRequest>(model.create_infer_request());
    stages = stages & tbb::make_filter<Item, Item>(IN_ORDER, [&, request](Item item) {
      for (std::size_t i = 0; i < stage["inputs"].size(); ++i) {
        const std::string name = stage["inputs"][i];
        const ov::Tensor value = states.count(name) ? states.at(name) : item->at(name);
        ov::Tensor input = request->get_input_tensor(i);
        std::memset(input.data(), 0, input.get_byte_size());  // what a state begins with
        if (value) std::memcpy(input.data(), value.data(), input.get_byte_size());
      }
      request->infer();
      for (std::size_t i = 0; i < stage["outputs"].size(); ++i) {
        const ov::Tensor output = request->get_output_tensor(i);
        ov::Tensor copy(output.get_element_type(), output.get_shape());
        output.copy_to(copy);  // the next item is written to the same memory
        item->emplace(stage["outputs"][i], copy);
        for (const auto& state : wiring["states"])
          if (state["output"] == stage["outputs"][i]) states.at(state["input"]) = copy;
      }
      return item;
    });
  }
  const auto write = [&](const Item& item) {
    for (const auto& output : wiring["outputs"]) {
      const ov::Tensor& tensor = item->at(output["tensor"]);
      std::cout.write(static_cast<const char*>(tensor.data()), tensor.get_byte_size());
    }
  };
  tbb::parallel_pipeline(2 * wiring["pipeline"].size(),
                         stages & tbb::make_filter<Item, void>(IN_ORDER, write));
}

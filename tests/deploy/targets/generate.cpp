// The most likely tokens that follow prompts: generate DIR COUNT 5,9,2 7,7
#include <algorithm>
#include <cstring>
#include <iostream>
#include <sstream>

#include "pipeline.hpp"

using namespace autosplit;

namespace {

// The item of a token at its position, whose mask shows it what is before.
Tensors item_of(std::int64_t token, std::int64_t position) {
  Tensors item;
  for (const Port& port : description.inputs) {
    item.push_back(allocate(port.bytes));
    if (port.name.find("mask") == std::string::npos) {
      const bool is_position = port.name.find("position") != std::string::npos;
      std::memcpy(item.back().get(), is_position ? &position : &token, sizeof token);
      continue;
    }
    bool* mask = static_cast<bool*>(item.back().get());
    for (std::int64_t i = 0; i < port.shape.back(); ++i) mask[i] = i <= position;
  }
  return item;
}

}  // namespace

int main(int words_count, char** words) {
  std::vector<std::vector<std::int64_t>> texts;
  std::vector<std::size_t> lengths;
  std::vector<Tensors> first;
  for (int i = 3; i < words_count; ++i) {
    texts.emplace_back();
    std::istringstream numbers(words[i]);
    for (std::string number; std::getline(numbers, number, ',');)
      texts.back().push_back(std::stoll(number));
    lengths.push_back(texts.back().size() + std::stoul(words[2]));
    first.push_back(item_of(texts.back()[0], 0));
  }
  const auto following = [&](const Tensors& outputs, Stream stream,
                             std::size_t step) -> std::optional<Tensors> {
    std::vector<std::int64_t>& text = texts[stream];
    if (step + 1 == text.size()) {
      const float* scores = static_cast<float*>(outputs[0].get());
      text.push_back(std::max_element(scores, scores + description.outputs[0].shape.back()) - scores);
    }
    if (text.size() == lengths[stream]) return std::nullopt;
    return item_of(text[step + 1], step + 1);
  };
  try {
    Pipeline pipeline(description, words[1]);
    pipeline.loop(first, following, first.size());
    for (const auto& text : texts) {
      for (std::int64_t token : text) std::cout << token << " ";
      std::cout << std::endl;
    }
  } catch (const Error& error) {
    std::cerr << error.what() << std::endl;
    return error.exit_code;
  }
}

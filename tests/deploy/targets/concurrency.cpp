// Many threads use one pipeline of fake stages: each has a stream, resets it, and asks for states.
#include <cstring>
#include <iostream>

#include "pipeline.hpp"

using namespace autosplit;

namespace {

constexpr int THREADS = 4, ROUNDS = 10;

Tensors item(int seed) {
  Tensors inputs;
  for (const Port& port : description.inputs) {
    inputs.push_back(allocate(port.bytes));
    std::memset(inputs.back().get(), seed, port.bytes);
  }
  return inputs;
}

unsigned char first_byte(const Tensor& tensor) { return *static_cast<unsigned char*>(tensor.get()); }

// The same items after a reset, or after the states are set back, give the same outputs.
bool follow(Pipeline& pipeline, Stream stream) {
  bool is_same = true;
  for (int round = 0; round < ROUNDS; ++round) {
    pipeline.reset(stream);
    const auto first = first_byte(pipeline.submit(item(1), stream).get()[0]);
    const States after = pipeline.state(stream);
    const auto second = first_byte(pipeline.submit(item(2), stream).get()[0]);
    pipeline.reset(stream, after);
    is_same &= first_byte(pipeline.submit(item(2), stream).get()[0]) == second;
    pipeline.reset(stream);
    is_same &= first_byte(pipeline.submit(item(1), stream).get()[0]) == first && first != second;
    auto inside = pipeline.submit(item(2), stream);
    pipeline.reset(stream);
    inside.get();
    is_same &= first_byte(pipeline.submit(item(1), stream).get()[0]) == first;
  }
  return is_same;
}

}  // namespace

int main(int, char** words) {
  std::vector<std::future<bool>> threads;
  std::future<Tensors> unread;
  bool is_same = true;
  {
    Pipeline pipeline(description, words[1]);
    for (int thread = 0; thread < THREADS; ++thread)
      threads.push_back(std::async(std::launch::async, follow, std::ref(pipeline), thread));
    for (auto& thread : threads) is_same = thread.get() && is_same;
    for (int i = 0; i < 5; ++i) unread = pipeline.submit(item(i), 9);
  }
  try {
    unread.get();
    std::cout << (is_same ? "same" : "different") << ", finished" << std::endl;
  } catch (const Error& error) {
    std::cout << (is_same ? "same" : "different") << ", " << error.what() << std::endl;
  }
}

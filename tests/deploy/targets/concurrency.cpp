// Many threads use one pipeline of fake stages: each has a stream and asks for its states. Then a
// callback fails in a loop, after which its streams begin anew.
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

char first_byte(const Tensor& tensor) { return *static_cast<char*>(tensor.get()); }

// What the first bytes of outputs and states are, one item of a stream after the other.
std::string follow(Pipeline& pipeline, Stream stream) {
  std::string bytes;
  for (int round = 0; round < ROUNDS; ++round) {
    bytes += first_byte(pipeline.submit(item(round), stream).get()[0]);
    for (const auto& [name, state] : pipeline.state(stream)) bytes += first_byte(state);
  }
  return bytes;
}

// The first bytes of an output that depends on the states, in a loop of two streams, which fails at
// a step. Another loop runs at the same time.
std::string looped(Pipeline& pipeline, std::size_t fails_at) {
  std::map<Stream, std::string> bytes;
  const auto following = [&](const Tensors& outputs, Stream stream,
                             std::size_t step) -> std::optional<Tensors> {
    if (step == fails_at) throw std::runtime_error("no luck");
    bytes[stream] += first_byte(outputs[1]);
    return step == 4 ? std::nullopt : std::optional(Tensors{outputs[1]});
  };
  try {
    pipeline.loop({item(1), item(2)}, following, 2);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return bytes[0] + bytes[1];
}

}  // namespace

int main(int, char** words) {
  std::vector<std::future<std::string>> threads;
  std::future<Tensors> unread;
  bool is_same = true;
  {
    Pipeline pipeline(description, words[1]);
    for (int thread = 0; thread < THREADS; ++thread)
      threads.push_back(std::async(std::launch::async, follow, std::ref(pipeline), thread));
    const std::string alone = follow(pipeline, THREADS);
    for (auto& thread : threads) is_same = thread.get() == alone && is_same;
    const std::string whole = looped(pipeline, 9);
    auto other = std::async(std::launch::async, looped, std::ref(pipeline), 9);
    is_same = looped(pipeline, 9) == whole && other.get() == whole && is_same;
    is_same = is_same && looped(pipeline, 3) == "no luck" && looped(pipeline, 9) == whole;
    for (int i = 0; i < 5; ++i) unread = pipeline.submit(item(i), 9);
  }
  try {
    unread.get();
    std::cout << (is_same ? "same" : "different") << ", finished" << std::endl;
  } catch (const Error& error) {
    std::cout << (is_same ? "same" : "different") << ", " << error.what() << std::endl;
  }
}

// Items go through stages that work at the same time; see docs/how-to/deploy-cpp.md.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "stage.hpp"

namespace autosplit {

// What an export says about itself; wiring.cpp, which autosplit writes from split.json, defines it.
struct Description {
  std::string name;
  std::vector<Port> inputs, outputs;
  std::vector<Source> sources;  // of the outputs
  std::vector<StageSpec> stages;
  std::size_t batch;  // items that stages take at once; `inputs` and `outputs` are those of one
  double delay_ms;    // that a batch waits to be full
};

extern const Description description;

using Stream = std::int64_t;
using States = std::map<std::string, Tensor>;

// One thread for each replica of a stage. A free replica takes the oldest item that has all inputs of
// its stage, states among them. A stage that fails on an item closes the pipeline; on a batch it fails
// that alone. All functions may be called from any thread.
class Pipeline {
 public:
  // Loads the stages of the export in `folder`. Throws Error.
  Pipeline(const Description& description, const std::filesystem::path& folder);
  // Stops after the items that the replicas compute now; the futures of all others throw.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;

  // How many items are inside at once.
  std::size_t capacity() const { return 2 * (threads_.size() + 1); }

  // Hands in an item, its tensors in the order of the model's inputs, and waits while as many items
  // as the `capacity` are inside. The future has the outputs, or throws Error.
  // A stream begins with its first item, its states at zero, and is kept as long as the pipeline.
  std::future<Tensors> submit(Tensors inputs, Stream stream = 0);

  // As `submit`, but a thread of the pipeline hands the outputs to `done`, or a failure.
  using Done = std::function<void(Tensors, std::exception_ptr)>;
  void submit(Tensors inputs, Stream stream, Done done);

  // The states of a stream by name, once no item of it is inside.
  States state(Stream stream);

 private:
  struct Item;
  using Ticket = std::shared_ptr<Item>;

  // The items that have all inputs of a stage, by their numbers.
  struct Ready {
    std::map<std::size_t, Ticket> items;
    std::condition_variable changed;
  };

  void load(std::size_t stage);
  void work(std::size_t stage, std::size_t replica);
  std::string name(std::size_t stage, std::size_t replica) const;
  Ticket take(std::size_t stage, Tensors& inputs, std::exception_ptr& failure);
  void finish(std::size_t stage, const Ticket& item, Tensors results, std::exception_ptr failure);
  void arrive(std::size_t stage, const Ticket& item);
  Tensor state(std::size_t stage, std::size_t input, const Ticket& before) const;
  bool has_states(std::size_t stage) const { return producers_[stage].count(stage + 1); }
  void stop(const std::string& reason);

  const Description& description_;
  const std::vector<StageSpec> stages_;  // as they are placed here
  std::vector<std::vector<std::unique_ptr<Stage>>> loaded_;  // the replicas of each
  std::vector<std::set<std::size_t>> producers_;  // that each stage reads from, itself for states
  bool has_any_state_ = false;
  std::mutex lock_;  // guards everything below
  std::condition_variable has_room_;
  std::deque<Ready> ready_;
  std::set<Ticket> inside_;
  std::map<Stream, Ticket> last_;  // item of each stream, with the states that it left
  std::size_t entered_ = 0;
  bool is_stopped_ = false;
  std::string failure_;
  std::vector<std::thread> threads_;
};

}  // namespace autosplit

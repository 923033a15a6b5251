// Items go through stages that work at the same time; see docs/how-to/deploy-cpp.md.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "stage.hpp"

namespace autosplit {

// The description of an export; wiring.cpp, which autosplit writes from split.json, defines it.
struct Description {
  std::string name;
  std::vector<Port> inputs, outputs;
  std::vector<Source> sources;  // of the outputs
  std::vector<StageSpec> stages;
  std::size_t batch;  // items that stages take at once; `inputs` and `outputs` are those of one
  double delay_ms;    // how long a batch waits to be full
  std::size_t steps;  // items of a stream that its states have room for; 0: any number
};

extern const Description description;

using Stream = std::int64_t;
using States = std::map<std::string, Tensor>;

// One thread for each replica of a stage. A free replica takes the oldest item that has all inputs
// of its stage, states among them. Where a stage fails on an item, only that item's future throws;
// with states the pipeline is closed.
// Where stages take several items at once, the items of a batch enter together: once it is full, or
// once the first has waited for the delay and a replica of the first stage is free; copies of the
// last item then fill it up. Where a stage fails on a batch, each of its items runs again alone.
// All functions may be called from any thread.
class Pipeline {
 public:
  // Loads the stages of the export in `folder`. Throws Error.
  Pipeline(const Description& description, const std::filesystem::path& folder);
  // Stops after the items that the replicas compute now; the futures of all others throw.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;

  // How many items are inside at once.
  std::size_t capacity() const { return 2 * (threads_.size() + 1) * description_.batch; }

  // Hands in an item, its tensors in the order of the model's inputs, and waits while `capacity`
  // items are inside. The future has the outputs, or throws Error.
  // A stream begins with its first item, its states at zero, and is kept until it is reset.
  std::future<Tensors> submit(Tensors inputs, Stream stream = 0);

  // Makes the next item of a stream from the outputs of its last one, the number of the stream and
  // that of the step, from 0. Returning std::nullopt ends the stream.
  using Following = std::function<std::optional<Tensors>(const Tensors& outputs, Stream stream,
                                                         std::size_t step)>;

  // Runs streams, `streams` of them at once, in which outputs make the next item. `first` has the
  // first item of each stream; they are numbered from 0. The calling thread calls `following`.
  // Throws what `following` and `submit` throw. Each call has streams of its own, below 0.
  void loop(const std::vector<Tensors>& first, const Following& following, std::size_t streams = 1);

  // The states of a stream by name, once no item of it is inside.
  States state(Stream stream);

  // Ends a stream: its next item begins with states at zero.
  void reset(Stream stream);

 private:
  struct Item;
  using Ticket = std::shared_ptr<Item>;

  void load(std::size_t stage);
  void work(std::size_t stage, std::size_t replica);
  std::string name(std::size_t stage, std::size_t replica) const;
  Ticket new_item(Stream stream);
  bool is_ready(std::size_t stage, const Item& item) const;
  Ticket take(std::size_t stage, Tensors& inputs);
  void deliver(std::size_t producer, const Ticket& item, Tensors values);
  void finish(std::size_t stage, const Ticket& item, Tensors results);
  void fail(const Ticket& batch, const std::string& reason);
  void remove(const Ticket& item);
  Tensors together(const Item& batch) const;
  Tensor state(std::size_t stage, std::size_t input, const Ticket& before) const;
  bool has_states(std::size_t stage) const;
  void stop(const std::string& reason);

  const Description& description_;
  const std::vector<StageSpec> stages_;  // as they are placed here
  std::vector<std::vector<std::unique_ptr<Stage>>> loaded_;  // the replicas of each
  bool has_any_state_ = false;
  std::atomic<Stream> next_loop_ = -1;  // the first stream of the next call of `loop`
  std::mutex lock_;  // guards everything below
  std::condition_variable has_room_;
  std::deque<std::condition_variable> changed_;  // what each stage waits for
  std::deque<Ticket> inside_;                    // from the oldest on
  std::map<Stream, Ticket> last_;  // item of each stream, with the states that it left
  bool is_stopped_ = false;
  std::string failure_;
  std::vector<std::thread> threads_;
};

}  // namespace autosplit

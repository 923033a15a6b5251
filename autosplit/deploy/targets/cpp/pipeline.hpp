// Items go through stages that work at the same time; see docs/how-to/deploy-cpp.md.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>
#include <queue>
#include <set>
#include <string>
#include <thread>

#include "description.hpp"

namespace autosplit {

using Stream = std::int64_t;
using States = std::map<std::string, Tensor>;

// One thread for each replica of a stage. A free replica takes the oldest item that waits for its
// stage. Where a stage has states, a replica holds whole streams. All functions may be called from
// any thread.
class Pipeline {
 public:
  // Loads the stages of the export in `folder`. Throws Error.
  Pipeline(const Description& description, const std::filesystem::path& folder);
  // Stops after the items that the replicas compute now; the futures of all others throw.
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;

  // Hands in an item, its tensors in the order of the model's inputs, and waits while as many items
  // as the description's `capacity` are inside. The future has the outputs, or throws Error.
  // A stream begins with its first item, its states at zero, and is kept as long as the pipeline.
  std::future<Tensors> submit(Tensors inputs, Stream stream = 0);

  // The states of a stream by name, once no item of it is inside.
  States state(Stream stream);

 private:
  struct Item;
  using Ticket = std::shared_ptr<Item>;
  struct Older {
    bool operator()(const Ticket& a, const Ticket& b) const;
  };
  using Waiting = std::priority_queue<Ticket, std::vector<Ticket>, Older>;

  // The items that have all inputs of a stage. Without states all wait in one line, with states
  // each replica has its own and takes its items in the order in which they entered.
  struct Queue {
    std::condition_variable changed;
    std::vector<Waiting> lines;
    std::vector<std::deque<std::size_t>> expected;  // of each line, the numbers of its items
    std::map<Stream, std::size_t> line_of;
    std::map<Stream, Tensors> left;  // the states that the last item of each stream left
    std::size_t first = 0;           // the first item that no replica took
    std::set<std::size_t> taken;     // those after it
    bool is_held_back = false;       // a replica waits for a reader
  };

  void work(std::size_t stage, std::size_t replica);
  Ticket take(std::size_t stage, std::size_t replica, Tensors& inputs);
  bool may_take(std::size_t stage, std::size_t line);
  void finish(std::size_t stage, const Ticket& item, const Tensors& results);
  void deliver(const std::vector<Edge>& edges, const Ticket& item, const Tensors& values);
  std::size_t queue_line(std::size_t stage, Stream stream);
  void restore(std::size_t stage, const Item& item, Tensors& inputs);
  void stop(const std::string& reason);
  [[noreturn]] void raise() const;
  std::string replica_name(std::size_t stage, std::size_t replica) const;

  const Description& description_;
  std::vector<std::vector<std::unique_ptr<Stage>>> replicas_;
  std::vector<std::vector<std::vector<int>>> cores_;
  bool has_states_ = false;
  std::mutex lock_;  // guards everything below
  std::condition_variable has_room_;
  std::deque<Queue> queues_;
  std::set<Ticket> inside_;
  std::map<Stream, std::size_t> items_of_;  // of each stream, how many are inside
  std::set<Stream> lost_;
  std::size_t entered_ = 0;
  bool is_stopped_ = false;
  std::string failure_;
  std::vector<std::thread> threads_;
};

}  // namespace autosplit

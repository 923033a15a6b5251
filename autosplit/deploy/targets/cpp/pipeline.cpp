#include "pipeline.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "system.hpp"

namespace autosplit {
namespace {

struct Closed {};

// The text of an error in one line: its first one, or where a runtime lists what led to it, the last.
std::string line_of(std::string text, bool last = false) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return last ? text.substr(text.rfind('\n') + 1) : text.substr(0, text.find('\n'));
}

void require_architecture(const std::string& architecture) {
  utsname here;
  uname(&here);
  if (architecture != here.machine)
    throw Error(BAD_MACHINE, "the split was exported for " + architecture + ", this machine is " +
                                 here.machine + "; export it there");
}

// The cores of every replica: those it was exported for, or those that there are.
std::vector<std::vector<std::vector<int>>> place(const Description& description) {
  const std::vector<int> here = available_cores();
  std::vector<std::vector<std::vector<int>>> recorded, other;
  bool are_all_here = true;
  std::size_t next = 0;
  for (const StageDescription& stage : description.stages) {
    recorded.emplace_back(), other.emplace_back();
    for (const Replica& replica : stage.replicas) {
      for (int core : replica.cores)
        are_all_here = are_all_here && std::binary_search(here.begin(), here.end(), core);
      recorded.back().push_back(replica.cores);
      other.back().push_back({here[next++ % here.size()]});
    }
  }
  return are_all_here ? recorded : other;
}

// The state that a stream begins with.
Tensor zeros(const Port& port) {
  Tensor tensor = allocate(port.bytes);
  std::memset(tensor.get(), 0, port.bytes);
  return tensor;
}

}  // namespace

// `missing` counts the edges to each stage that have not delivered yet.
struct Pipeline::Item {
  std::size_t number;
  Stream stream;
  bool begins = false;  // whether it is the first of its stream
  std::vector<Tensors> inputs;
  std::vector<std::size_t> missing;
  Tensors outputs;
  std::size_t unfinished;
  std::promise<Tensors> result;
};

bool Pipeline::Older::operator()(const Ticket& a, const Ticket& b) const {
  return a->number > b->number;  // the queue has the largest in front
}

Pipeline::Pipeline(const Description& description, const std::filesystem::path& folder)
    : description_(description), cores_(place(description)) {
  require_architecture(description.architecture);
  for (std::size_t s = 0; s < description.stages.size(); ++s) {
    const StageDescription& stage = description.stages[s];
    replicas_.emplace_back();
    has_states_ = has_states_ || !stage.states.empty();
    Queue& queue = queues_.emplace_back();
    queue.lines.resize(stage.states.empty() ? 1 : stage.replicas.size());
    queue.expected.resize(queue.lines.size());
    for (const std::string& name : stage.beside) existing(folder, name);
    for (std::size_t r = 0; r < stage.replicas.size(); ++r) {
      const Replica& replica = stage.replicas[r];
      require_features(replica.features);
      const std::string file = existing(folder, replica.file);
      try {
        replicas_[s].push_back(
            stage.load({file, stage.inputs, stage.outputs, cores_[s][r], stage.version}));
      } catch (const Error&) {
        throw;
      } catch (const std::exception& error) {
        throw Error(BAD_MACHINE, "'" + replica.file + "' does not load with this " +
                                     stage.runtime + ": " + line_of(error.what(), true));
      }
    }
  }
  for (std::size_t s = 0; s < replicas_.size(); ++s)
    for (std::size_t r = 0; r < replicas_[s].size(); ++r)
      threads_.emplace_back(&Pipeline::work, this, s, r);
}

Pipeline::~Pipeline() {
  stop("");
  for (std::thread& thread : threads_) thread.join();
}

std::future<Tensors> Pipeline::submit(Tensors inputs, Stream stream) {
  if (inputs.size() != description_.inputs.size())
    throw Error(BAD_INPUT, "an item has " + std::to_string(inputs.size()) + " tensors; give " +
                               std::to_string(description_.inputs.size()));
  std::unique_lock<std::mutex> lock(lock_);
  has_room_.wait(lock, [&] { return is_stopped_ || inside_.size() < description_.capacity; });
  if (is_stopped_) raise();
  auto item = std::make_shared<Item>();
  item->number = entered_++;
  item->stream = stream;
  item->outputs.resize(description_.outputs.size());
  item->unfinished = description_.stages.size();
  for (const StageDescription& stage : description_.stages) {
    item->inputs.emplace_back(stage.inputs.size());
    item->missing.push_back(stage.incoming);
  }
  for (auto [from, to] : description_.forwarded) item->outputs[to] = inputs[from];
  if (has_states_) {
    auto [count, is_new] = items_of_.try_emplace(stream);
    ++count->second;
    item->begins = is_new;
    for (std::size_t s = 0; s < queues_.size(); ++s)
      if (!description_.stages[s].states.empty())
        queues_[s].expected[queue_line(s, stream)].push_back(item->number);
  }
  inside_.insert(item);
  deliver(description_.edges, item, inputs);
  return item->result.get_future();
}

States Pipeline::state(Stream stream) {
  std::unique_lock<std::mutex> lock(lock_);
  const auto is_idle = [&] { return !items_of_.count(stream) || !items_of_[stream]; };
  has_room_.wait(lock, [&] { return is_stopped_ || is_idle(); });
  if (lost_.count(stream))
    throw Error(STAGE_FAILED, "stream " + std::to_string(stream) +
                                  " is lost: it had items inside; begin it in a new pipeline");
  const bool begins = !items_of_.count(stream);
  States values;
  for (std::size_t s = 0; s < queues_.size(); ++s) {
    const StageDescription& stage = description_.stages[s];
    for (std::size_t i = 0; i < stage.states.size(); ++i) {
      const Port& port = stage.inputs[stage.states[i].input];
      values[port.name] = begins ? zeros(port) : queues_[s].left[stream][i];
    }
  }
  return values;
}

void Pipeline::work(std::size_t stage, std::size_t replica) {
  try {
    pin(0, cores_[stage][replica]);
    replicas_[stage][replica]->open();
    while (true) {
      Tensors inputs;
      const Ticket item = take(stage, replica, inputs);
      finish(stage, item, replicas_[stage][replica]->run(inputs));
    }
  } catch (const Closed&) {
  } catch (const std::exception& error) {
    stop(replica_name(stage, replica) + " failed: " + line_of(error.what()));
  }
}

// The next item of a stage with its inputs; waits for one that the replica may begin.
Pipeline::Ticket Pipeline::take(std::size_t stage, std::size_t replica, Tensors& inputs) {
  Queue& queue = queues_[stage];
  const std::size_t line = queue.lines.size() > 1 ? replica : 0;
  std::unique_lock<std::mutex> lock(lock_);
  queue.changed.wait(lock, [&] { return is_stopped_ || may_take(stage, line); });
  if (is_stopped_) throw Closed();
  const Ticket item = queue.lines[line].top();
  queue.lines[line].pop();
  if (!description_.stages[stage].states.empty()) queue.expected[line].pop_front();
  queue.taken.insert(item->number);
  while (queue.taken.erase(queue.first)) ++queue.first;
  for (std::size_t sender : description_.stages[stage].senders)
    if (queues_[sender].is_held_back) {
      queues_[sender].is_held_back = false;
      queues_[sender].changed.notify_all();
    }
  inputs = std::move(item->inputs[stage]);
  restore(stage, *item, inputs);
  return item;
}

// A replica begins no item whose results would have no room, so none ever waits with a result: the
// oldest item inside always has room, and nothing can block it.
bool Pipeline::may_take(std::size_t stage, std::size_t line) {
  Queue& queue = queues_[stage];
  if (queue.lines[line].empty()) return false;
  const std::size_t oldest = queue.lines[line].top()->number;
  if (!description_.stages[stage].states.empty() && oldest != queue.expected[line].front())
    return false;
  for (const Edge& edge : description_.stages[stage].edges)
    if (oldest >= queues_[edge.reader].first + edge.reach) {
      queue.is_held_back = true;
      return false;
    }
  return true;
}

void Pipeline::finish(std::size_t stage, const Ticket& item, const Tensors& results) {
  const StageDescription& described = description_.stages[stage];
  {
    const std::lock_guard<std::mutex> lock(lock_);
    if (is_stopped_) throw Closed();
    if (!described.states.empty()) {
      Tensors& left = queues_[stage].left[item->stream];
      left.clear();
      for (const State& state : described.states) left.push_back(results[state.output]);
    }
    deliver(described.edges, item, results);
    for (auto [from, to] : described.model_outputs) item->outputs[to] = results[from];
    if (--item->unfinished) return;
    inside_.erase(item);
    if (has_states_) --items_of_[item->stream];
    has_room_.notify_all();
  }
  item->result.set_value(std::move(item->outputs));
}

void Pipeline::deliver(const std::vector<Edge>& edges, const Ticket& item, const Tensors& values) {
  for (const Edge& edge : edges) {
    for (auto [from, to] : edge.routes) item->inputs[edge.reader][to] = values[from];
    if (--item->missing[edge.reader]) continue;
    Queue& queue = queues_[edge.reader];
    if (description_.stages[edge.reader].states.empty()) {
      queue.lines[0].push(item);
      queue.changed.notify_one();
    } else {
      // Only one replica may take it, and it may not be the first to wake.
      queue.lines[queue_line(edge.reader, item->stream)].push(item);
      queue.changed.notify_all();
    }
  }
}

// Streams are dealt out to the replicas in turn.
std::size_t Pipeline::queue_line(std::size_t stage, Stream stream) {
  Queue& queue = queues_[stage];
  return queue.line_of.try_emplace(stream, queue.line_of.size() % queue.lines.size()).first->second;
}

// Adds its states to the inputs of a stage.
void Pipeline::restore(std::size_t stage, const Item& item, Tensors& inputs) {
  const StageDescription& described = description_.stages[stage];
  for (std::size_t i = 0; i < described.states.size(); ++i) {
    const std::size_t at = described.states[i].input;
    inputs[at] = item.begins ? zeros(described.inputs[at]) : queues_[stage].left[item.stream][i];
  }
}

void Pipeline::stop(const std::string& reason) {
  std::set<Ticket> discarded;
  {
    const std::lock_guard<std::mutex> lock(lock_);
    if (!is_stopped_) failure_ = reason;
    is_stopped_ = true;
    discarded.swap(inside_);
    if (has_states_)
      for (const Ticket& item : discarded) lost_.insert(item->stream);
    for (Queue& queue : queues_) {
      for (Waiting& line : queue.lines) line = {};
      queue.changed.notify_all();
    }
    has_room_.notify_all();
  }
  for (const Ticket& item : discarded) try {
      raise();
    } catch (...) {
      item->result.set_exception(std::current_exception());
    }
}

// The reason why the pipeline is stopped, which does not change any more.
void Pipeline::raise() const {
  if (failure_.empty()) throw Error(STAGE_FAILED, "the pipeline is closed; make a new one");
  std::string streams;
  for (Stream stream : lost_)
    streams += (streams.empty() ? "; lost streams: " : ", ") + std::to_string(stream);
  throw Error(STAGE_FAILED, failure_ + "; the pipeline is closed" + streams);
}

std::string Pipeline::replica_name(std::size_t stage, std::size_t replica) const {
  const std::string name = "stage " + std::to_string(stage);
  return replicas_[stage].size() == 1 ? name : "replica " + std::to_string(replica) + " of " + name;
}

}  // namespace autosplit

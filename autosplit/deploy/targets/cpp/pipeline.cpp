#include "pipeline.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

namespace autosplit {
namespace {

using Clock = std::chrono::steady_clock;

struct Closed {};

// An error in one line: its first line, or the last one where the first ones only trace the error.
std::string line_of(std::string text, bool last = false) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return last ? text.substr(text.rfind('\n') + 1) : text.substr(0, text.find('\n'));
}

// Throws where a file of an export is missing or truncated: loading it could crash the program.
void require_whole(const std::filesystem::path& path, const File& file) {
  if (!is_file(path))
    throw Error(BAD_INPUT, "'", path.string(), "' is missing; export the split again");
  const std::uintmax_t bytes = std::filesystem::file_size(path);
  if (bytes != file.bytes)
    throw Error(BAD_INPUT, "'", path.string(), "' has ", bytes, " bytes, exported were ",
                file.bytes, "; it was changed, export the split again");
}

// The stages with the paths of their files and their cores: those of the export or, where one of
// these is not here, available cores in their place. Neighbours share one if there are fewer.
std::vector<StageSpec> place(std::vector<StageSpec> stages, const std::filesystem::path& folder) {
  const std::vector<int> here = available_cores();
  std::set<int> there;
  for (StageSpec& stage : stages) {
    for (const File& file : stage.files) require_whole(absolute(folder / file.name), file);
    for (Replica& replica : stage.replicas) {
      replica.file = absolute(folder / replica.file).string();
      there.insert(replica.cores.begin(), replica.cores.end());
    }
  }
  if (std::includes(here.begin(), here.end(), there.begin(), there.end())) return stages;
  const std::size_t count = std::min(here.size(), there.size());
  for (StageSpec& stage : stages)
    for (Replica& replica : stage.replicas) {
      std::set<int> cores;
      for (int core : replica.cores)
        cores.insert(here[std::distance(there.begin(), there.find(core)) * count / there.size()]);
      replica.cores.assign(cores.begin(), cores.end());
    }
  return stages;
}

// The rows of an item in a tensor of a batch.
char* rows(const Tensor& whole, const Port& port, std::size_t number) {
  return static_cast<char*>(whole.get()) + number * port.bytes;
}

// Throws for an index out of its axis: some runtimes raise an error, others read any memory. Also
// throws for an integer that a runtime may have rounded.
template <typename Integer>
void require_range(const Port& port, const Tensor& tensor) {
  const auto* values = static_cast<const Integer*>(tensor.get());
  for (std::size_t n = 0; n < port.bytes / sizeof(Integer); ++n) {
    const std::int64_t value = values[n];
    // An unsigned value may need all 64 bits.
    const bool fits = value >= 0 || values[n] < 1;
    if (fits && port.range[0] <= value && value <= port.range[1]) continue;
    throw Error(BAD_INPUT, "'", port.name, "' holds ", +values[n], "; its values are ",
                port.range[0], " to ", port.range[1]);
  }
}

const std::map<std::string, void (*)(const Port&, const Tensor&)> REQUIRE_RANGE{
    {"int8", require_range<std::int8_t>},   {"uint8", require_range<std::uint8_t>},
    {"int16", require_range<std::int16_t>}, {"uint16", require_range<std::uint16_t>},
    {"int32", require_range<std::int32_t>}, {"uint32", require_range<std::uint32_t>},
    {"int64", require_range<std::int64_t>}, {"uint64", require_range<std::uint64_t>}};

void require_legal(const Tensors& item, const std::vector<Port>& ports) {
  if (item.size() != ports.size())
    throw Error(BAD_INPUT, "an item has ", item.size(), " tensors; give ", ports.size());
  for (std::size_t i = 0; i < ports.size(); ++i)
    if (!ports[i].range.empty()) REQUIRE_RANGE.at(ports[i].dtype)(ports[i], item[i]);
}

}  // namespace

// What goes through the stages at once: an item, or a batch, which further items join while it is
// open. `step` counts the items of its stream, with this one; `before` is the previous item.
struct Pipeline::Item {
  enum Phase { OPEN, COMPLETE, ENTERED };
  struct Place {
    Tensors inputs;
    std::promise<Tensors> outputs;
  };

  explicit Item(std::size_t stages) : unfinished(stages), begun(stages), values(stages + 1) {}

  Phase phase = OPEN;
  std::vector<Place> places;
  Clock::time_point due;
  std::size_t unfinished;
  std::vector<bool> begun;      // by each stage
  std::vector<Tensors> values;  // of each producer, once they are there
  bool has_failed = false;
  Stream stream = 0;
  std::size_t step = 1;
  Ticket before;
};

Pipeline::Pipeline(const Description& description, const std::filesystem::path& folder)
    : description_(description), stages_(place(description.stages, folder)) {
  for (std::size_t s = 0; s < stages_.size(); ++s) load(s);
  for (std::size_t s = 0; s < stages_.size(); ++s)
    for (std::size_t r = 0; r < stages_[s].replicas.size(); ++r)
      threads_.emplace_back(&Pipeline::work, this, s, r);
}

void Pipeline::load(std::size_t s) {
  const StageSpec& stage = stages_[s];
  loaded_.emplace_back();
  changed_.emplace_back();
  has_any_state_ = has_any_state_ || has_states(s);
  for (const Replica& replica : stage.replicas) {
    require_features(replica.features);
    try {
      loaded_[s].push_back(stage.load(stage, replica));
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string name = std::filesystem::path(replica.file).filename();
      throw Error(BAD_MACHINE, "'", name, "' does not load with this ", stage.runtime, ": ",
                  line_of(error.what(), true));
    }
  }
}

Pipeline::~Pipeline() {
  stop("");
  for (std::thread& thread : threads_) thread.join();
}

std::future<Tensors> Pipeline::submit(Tensors inputs, Stream stream) {
  require_legal(inputs, description_.inputs);
  std::unique_lock<std::mutex> lock(lock_);
  const auto is_open = [&] { return !inside_.empty() && inside_.back()->phase == Item::OPEN; };
  has_room_.wait(lock, [&] {
    return is_stopped_ || is_open() || inside_.size() * description_.batch < capacity();
  });
  if (is_stopped_) throw Error(STAGE_FAILED, failure_);
  if (!is_open()) inside_.push_back(new_item(stream));
  const Ticket item = inside_.back();
  item->places.push_back({std::move(inputs), {}});
  std::future<Tensors> outputs = item->places.back().outputs.get_future();
  if (description_.batch == 1) {
    item->phase = Item::ENTERED;
    deliver(0, item, std::move(item->places[0].inputs));
    return outputs;
  }
  if (item->places.size() == description_.batch) item->phase = Item::COMPLETE;
  // Every idle replica looks again how long the batch may wait.
  changed_[0].notify_all();
  return outputs;
}

// The next item of a stream. Throws Error where its states have no room for one.
Pipeline::Ticket Pipeline::new_item(Stream stream) {
  const auto item = std::make_shared<Item>(stages_.size());
  item->stream = stream;
  item->due = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double, std::milli>(description_.delay_ms));
  if (!has_any_state_) return item;
  Ticket& last = last_[stream];
  if (last) item->step += last->step;
  if (description_.steps && item->step > description_.steps)
    throw Error(BAD_INPUT, "stream ", stream, " has had ", last->step, " items and its states are ",
                "full; reset it, or export the model with a longer cache");
  item->before = std::exchange(last, item);
  return item;
}

void Pipeline::loop(const std::vector<Tensors>& first, const Following& following,
                    std::size_t streams) {
  if (!streams) throw Error(BAD_INPUT, "streams is 0; let at least 1 run at once");
  struct Running {
    std::size_t number, step;
    std::future<Tensors> outputs;
  };
  std::deque<Running> running;
  const Stream begin = next_loop_.fetch_sub(first.size());  // number n is the stream begin - n
  std::size_t begun = 0;
  try {
    while (true) {
      for (; begun < first.size() && running.size() < streams; ++begun)
        running.push_back({begun, 0, submit(first[begun], begin - begun)});
      if (running.empty()) break;
      const auto done = std::find_if(running.begin(), running.end(), [](const Running& each) {
        return each.outputs.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      });
      if (done != running.end()) std::rotate(running.begin(), done, running.end());
      auto [number, step, outputs] = std::move(running.front());
      running.pop_front();
      std::optional<Tensors> next = following(outputs.get(), number, step);
      if (next)
        running.push_back({number, step + 1, submit(std::move(*next), begin - number)});
      else
        reset(begin - number);
    }
  } catch (...) {
    for (std::size_t number = 0; number < begun; ++number) reset(begin - number);
    throw;
  }
}

States Pipeline::state(Stream stream) {
  std::unique_lock<std::mutex> lock(lock_);
  has_room_.wait(lock, [&] {
    return is_stopped_ || !last_.count(stream) || !last_.at(stream)->unfinished;
  });
  const Ticket last = last_.count(stream) ? last_.at(stream) : nullptr;
  if (last && last->unfinished)
    throw Error(STAGE_FAILED, "stream ", stream,
                " is lost: it had items inside; begin it in a new pipeline");
  States values;
  for (std::size_t s = 0; s < stages_.size(); ++s)
    for (std::size_t i = 0; i < stages_[s].sources.size(); ++i)
      if (stages_[s].sources[i].producer == s + 1)
        values[stages_[s].inputs[i].name] = state(s, i, last);
  return values;
}

// A state of a stage as the previous item left it; a stream begins at zero.
Tensor Pipeline::state(std::size_t stage, std::size_t input, const Ticket& before) const {
  const StageSpec& described = stages_[stage];
  if (before) return before->values[stage + 1][described.sources[input].index];
  Tensor tensor = allocate(described.inputs[input].bytes);
  std::memset(tensor.get(), 0, described.inputs[input].bytes);
  return tensor;
}

void Pipeline::reset(Stream stream) {
  const std::lock_guard<std::mutex> lock(lock_);
  last_.erase(stream);
}

bool Pipeline::has_states(std::size_t stage) const {
  const std::vector<Source>& sources = stages_[stage].sources;
  return std::any_of(sources.begin(), sources.end(),
                     [&](const Source& source) { return source.producer == stage + 1; });
}

void Pipeline::work(std::size_t stage, std::size_t replica) {
  try {
    Stage& loaded = *loaded_[stage][replica];
    pin(0, stages_[stage].replicas[replica].cores);
    loaded.open();
    while (true) {
      Tensors inputs, outputs;
      const Ticket item = take(stage, inputs);
      try {
        require_legal(inputs, stages_[stage].inputs);
        outputs = loaded.run(inputs);
        require_legal(outputs, stages_[stage].outputs);
      } catch (const std::exception& error) {
        if (has_any_state_) throw;  // later items of the stream would have other states
        fail(item, name(stage, replica) + " failed on this item: " + line_of(error.what()));
        continue;
      }
      finish(stage, item, std::move(outputs));
    }
  } catch (const Closed&) {
  } catch (const std::exception& error) {
    stop(name(stage, replica) + " failed: " + line_of(error.what()));
  }
}

std::string Pipeline::name(std::size_t stage, std::size_t replica) const {
  const std::string name = "stage " + std::to_string(stage);
  if (loaded_[stage].size() == 1) return name;
  return "replica " + std::to_string(replica) + " of " + name;
}

// Waits for the oldest item that a stage can begin. In the first stage it also lets batches enter.
Pipeline::Ticket Pipeline::take(std::size_t stage, Tensors& inputs) {
  std::unique_lock<std::mutex> lock(lock_);
  while (!is_stopped_) {
    for (const Ticket& item : inside_) {
      if (!is_ready(stage, *item)) continue;
      item->begun[stage] = true;
      const std::vector<Source>& sources = stages_[stage].sources;
      for (std::size_t i = 0; i < sources.size(); ++i)
        inputs.push_back(sources[i].producer == stage + 1
                             ? state(stage, i, item->before)
                             : item->values[sources[i].producer][sources[i].index]);
      return item;
    }
    const auto next = std::find_if(inside_.begin(), inside_.end(),
                                   [](const Ticket& item) { return item->phase < Item::ENTERED; });
    if (stage || next == inside_.end()) {
      changed_[stage].wait(lock);
    } else if (const Clock::time_point due = (*next)->due;
               (*next)->phase == Item::OPEN && Clock::now() < due) {
      changed_[stage].wait_until(lock, due);
    } else {
      const Ticket batch = *next;
      batch->phase = Item::ENTERED;
      lock.unlock();
      Tensors whole = together(*batch);
      lock.lock();
      deliver(0, batch, std::move(whole));
    }
  }
  throw Closed();
}

// Whether a stage has all that it needs to begin an item.
bool Pipeline::is_ready(std::size_t stage, const Item& item) const {
  const std::vector<Source>& sources = stages_[stage].sources;
  return !item.begun[stage] &&
         std::all_of(sources.begin(), sources.end(), [&](const Source& source) {
           if (source.producer != stage + 1) return !item.values[source.producer].empty();
           return !item.before || !item.before->values[source.producer].empty();
         });
}

// The inputs of a batch, one after the other; copies of the last item fill it up.
Tensors Pipeline::together(const Item& batch) const {
  Tensors whole;
  for (std::size_t i = 0; i < description_.inputs.size(); ++i) {
    const Port& port = description_.inputs[i];
    whole.push_back(allocate(description_.batch * port.bytes));
    for (std::size_t n = 0; n < description_.batch; ++n) {
      const Item::Place& place = batch.places[std::min(n, batch.places.size() - 1)];
      std::memcpy(rows(whole.back(), port, n), place.inputs[i].get(), port.bytes);
    }
  }
  return whole;
}

// Stores the outputs of a producer, and wakes the stages that can begin the item with them.
void Pipeline::deliver(std::size_t producer, const Ticket& item, Tensors values) {
  item->values[producer] = std::move(values);
  for (std::size_t stage = 0; stage < stages_.size(); ++stage)
    if (is_ready(stage, *item)) changed_[stage].notify_one();
}

void Pipeline::finish(std::size_t stage, const Ticket& item, Tensors results) {
  Tensors outputs;
  {
    const std::lock_guard<std::mutex> lock(lock_);
    if (is_stopped_) throw Closed();
    if (item->has_failed) return;
    deliver(stage + 1, item, std::move(results));
    if (has_states(stage)) changed_[stage].notify_one();  // for the next item of the stream
    if (--item->unfinished) return;
    for (const Source& source : description_.sources)
      outputs.push_back(item->values[source.producer][source.index]);
    // The last item of a stream only keeps the outputs of stages with states.
    item->before.reset();
    item->values[0].clear();
    for (std::size_t s = 0; s < stages_.size(); ++s)
      if (!has_states(s)) item->values[s + 1].clear();
    remove(item);
  }
  for (std::size_t n = 0; n < item->places.size(); ++n) {
    Tensors parts;
    for (std::size_t i = 0; i < outputs.size(); ++i)
      parts.emplace_back(outputs[i], rows(outputs[i], description_.outputs[i], n));
    item->places[n].outputs.set_value(std::move(parts));
  }
}

// Lets the items of a batch that failed run again, each alone. An item that was alone fails with
// the reason.
void Pipeline::fail(const Ticket& batch, const std::string& reason) {
  const std::lock_guard<std::mutex> lock(lock_);
  if (is_stopped_ || batch->has_failed) return;
  batch->has_failed = true;
  remove(batch);
  if (batch->places.size() == 1)
    return batch->places[0].outputs.set_exception(
        std::make_exception_ptr(Error(STAGE_FAILED, reason)));
  for (Item::Place& place : batch->places) {
    inside_.push_front(new_item(batch->stream));
    inside_.front()->phase = Item::COMPLETE;
    inside_.front()->places.push_back(std::move(place));
  }
  changed_[0].notify_all();
}

void Pipeline::remove(const Ticket& item) {
  inside_.erase(std::find(inside_.begin(), inside_.end(), item));
  has_room_.notify_all();
}

void Pipeline::stop(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(lock_);
  if (is_stopped_) return;
  is_stopped_ = true;
  failure_ = reason.empty() ? "the pipeline is closed; make a new one"
                            : reason + "; the pipeline is closed";
  std::set<Stream> lost;
  for (const Ticket& item : inside_)
    if (!reason.empty() && has_any_state_) lost.insert(item->stream);
  for (Stream stream : lost)
    failure_ += (stream == *lost.begin() ? "; lost streams: " : ", ") + std::to_string(stream);
  const auto failure = std::make_exception_ptr(Error(STAGE_FAILED, failure_));
  for (const Ticket& item : inside_)
    for (Item::Place& place : item->places) place.outputs.set_exception(failure);
  inside_.clear();
  for (std::condition_variable& changed : changed_) changed.notify_all();
  has_room_.notify_all();
}

}  // namespace autosplit

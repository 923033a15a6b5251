#include "pipeline.hpp"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

namespace autosplit {
namespace {

struct Closed {};

// The text of an error in one line: its first one, or where a runtime lists what led to it, the last.
std::string line_of(std::string text, bool last = false) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  return last ? text.substr(text.rfind('\n') + 1) : text.substr(0, text.find('\n'));
}

// Throws where a file of an export is missing, or is cut off: its library would end the program.
void require_whole(const std::filesystem::path& path, const File& file) {
  if (!is_file(path))
    throw Error(BAD_INPUT, "'" + path.string() + "' is missing; export the split again");
  const std::uintmax_t bytes = std::filesystem::file_size(path);
  if (bytes != file.bytes)
    throw Error(BAD_INPUT, "'" + path.string() + "' has " + std::to_string(bytes) +
                               " bytes, exported were " + std::to_string(file.bytes) +
                               "; it was changed, export the split again");
}

// The stages with the paths of their files, on the cores they were exported for, or, where one of
// those is not here, on the cores that there are in turn.
std::vector<StageSpec> place(std::vector<StageSpec> stages, const std::filesystem::path& folder) {
  const std::vector<int> here = available_cores();
  bool are_all_here = true;
  for (StageSpec& stage : stages) {
    for (const File& file : stage.files) require_whole(absolute(folder / file.name), file);
    for (Replica& replica : stage.replicas) {
      replica.file = absolute(folder / replica.file).string();
      for (int core : replica.cores)
        are_all_here = are_all_here && std::binary_search(here.begin(), here.end(), core);
    }
  }
  std::size_t next = 0;
  for (StageSpec& stage : stages)
    for (Replica& replica : stage.replicas)
      if (!are_all_here) replica.cores = {here[next++ % here.size()]};
  return stages;
}

}  // namespace

// `values` are the tensors of each producer. `missing` counts for each stage the producers that have
// not delivered yet, with the caller. `before` and `next` are of the same stream.
struct Pipeline::Item {
  std::size_t number, unfinished;
  Stream stream;
  std::vector<Tensors> values;
  std::vector<std::size_t> missing;
  Ticket before;
  std::weak_ptr<Item> next;
  Done done;
  std::exception_ptr failure;  // after which no stage computes it
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
  ready_.emplace_back();
  producers_.emplace_back();
  for (const Source& source : stage.sources) producers_[s].insert(source.producer);
  has_any_state_ = has_any_state_ || has_states(s);
  for (const Replica& replica : stage.replicas) {
    require_features(replica.features);
    try {
      loaded_[s].push_back(stage.load(stage, replica));
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      const std::string name = std::filesystem::path(replica.file).filename();
      throw Error(BAD_MACHINE, "'" + name + "' does not load with this " + stage.runtime + ": " +
                                   line_of(error.what(), true));
    }
  }
}

Pipeline::~Pipeline() {
  stop("");
  for (std::thread& thread : threads_) thread.join();
}

std::future<Tensors> Pipeline::submit(Tensors inputs, Stream stream) {
  const auto result = std::make_shared<std::promise<Tensors>>();
  submit(std::move(inputs), stream, [result](Tensors outputs, std::exception_ptr failure) {
    if (failure)
      result->set_exception(failure);
    else
      result->set_value(std::move(outputs));
  });
  return result->get_future();
}

void Pipeline::submit(Tensors inputs, Stream stream, Done done) {
  if (inputs.size() != description_.inputs.size())
    throw Error(BAD_INPUT, "an item has " + std::to_string(inputs.size()) + " tensors; give " +
                               std::to_string(description_.inputs.size()));
  std::unique_lock<std::mutex> lock(lock_);
  has_room_.wait(lock, [&] { return is_stopped_ || inside_.size() < capacity(); });
  if (is_stopped_) throw Error(STAGE_FAILED, failure_);
  const std::size_t stages = stages_.size();
  const auto item = std::make_shared<Item>();
  item->number = entered_++;
  item->unfinished = stages;
  item->stream = stream;
  item->done = std::move(done);
  item->values.resize(stages + 1);
  item->values[0] = std::move(inputs);
  if (has_any_state_) item->before = std::exchange(last_[stream], item);
  if (item->before) item->before->next = item;
  for (std::size_t s = 0; s < stages; ++s) {
    std::size_t count = 1;
    for (std::size_t producer : producers_[s])
      count += producer == s + 1 ? item->before && item->before->values[s + 1].empty() : producer > 0;
    item->missing.push_back(count);
  }
  inside_.insert(item);
  for (std::size_t s = 0; s < stages; ++s) arrive(s, item);
}

States Pipeline::state(Stream stream) {
  std::unique_lock<std::mutex> lock(lock_);
  has_room_.wait(lock, [&] {
    return is_stopped_ || !last_.count(stream) || !last_.at(stream)->unfinished;
  });
  const Ticket last = last_.count(stream) ? last_.at(stream) : nullptr;
  if (last && last->unfinished)
    throw Error(STAGE_FAILED, "stream " + std::to_string(stream) +
                                  " is lost: it had items inside; begin it in a new pipeline");
  States values;
  for (std::size_t s = 0; s < stages_.size(); ++s)
    for (std::size_t i = 0; i < stages_[s].sources.size(); ++i)
      if (stages_[s].sources[i].producer == s + 1)
        values[stages_[s].inputs[i].name] = state(s, i, last);
  return values;
}

// A state of a stage as the item before left it; a stream begins at zero.
Tensor Pipeline::state(std::size_t stage, std::size_t input, const Ticket& before) const {
  const StageSpec& described = stages_[stage];
  if (before) return before->values[stage + 1][described.sources[input].index];
  Tensor tensor = allocate(described.inputs[input].bytes);
  std::memset(tensor.get(), 0, described.inputs[input].bytes);
  return tensor;
}

void Pipeline::work(std::size_t stage, std::size_t replica) {
  try {
    Stage& loaded = *loaded_[stage][replica];
    pin(0, stages_[stage].replicas[replica].cores);
    loaded.open();
    while (true) {
      Tensors inputs, outputs(stages_[stage].outputs.size());
      std::exception_ptr failure;
      const Ticket item = take(stage, inputs, failure);
      try {
        if (!failure) outputs = loaded.run(inputs);
      } catch (const std::exception& error) {
        if (description_.batch == 1) throw;
        failure = std::make_exception_ptr(
            Error(STAGE_FAILED,
                  name(stage, replica) + " failed on this item: " + line_of(error.what())));
      }
      finish(stage, item, std::move(outputs), failure);
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

// The oldest item that a stage can begin, with its inputs and the failure of a stage before.
Pipeline::Ticket Pipeline::take(std::size_t stage, Tensors& inputs, std::exception_ptr& failure) {
  Ready& ready = ready_[stage];
  std::unique_lock<std::mutex> lock(lock_);
  ready.changed.wait(lock, [&] { return is_stopped_ || !ready.items.empty(); });
  if (is_stopped_) throw Closed();
  const Ticket item = ready.items.extract(ready.items.begin()).mapped();
  failure = item->failure;
  const std::vector<Source>& sources = stages_[stage].sources;
  for (std::size_t i = 0; i < sources.size(); ++i)
    inputs.push_back(sources[i].producer == stage + 1
                         ? state(stage, i, item->before)
                         : item->values[sources[i].producer][sources[i].index]);
  return item;
}

void Pipeline::finish(std::size_t stage, const Ticket& item, Tensors results,
                      std::exception_ptr failure) {
  Tensors outputs;
  {
    const std::lock_guard<std::mutex> lock(lock_);
    if (is_stopped_) throw Closed();
    item->values[stage + 1] = std::move(results);
    if (failure) item->failure = failure;
    const Ticket next = item->next.lock();
    if (next && has_states(stage)) arrive(stage, next);
    for (std::size_t reader = stage + 1; reader < ready_.size(); ++reader)
      if (producers_[reader].count(stage + 1)) arrive(reader, item);
    if (--item->unfinished) return;
    for (const Source& source : description_.sources)
      outputs.push_back(item->values[source.producer][source.index]);
    // What stays of the last item of a stream is what its stages with states returned.
    item->before.reset();
    item->values[0].clear();
    for (std::size_t s = 0; s < ready_.size(); ++s)
      if (!has_states(s)) item->values[s + 1].clear();
    inside_.erase(item);
    has_room_.notify_all();
    failure = item->failure;
  }
  item->done(std::move(outputs), failure);
}

// Counts that a stage has got one more of what it needs for an item.
void Pipeline::arrive(std::size_t stage, const Ticket& item) {
  if (--item->missing[stage]) return;
  ready_[stage].items.emplace(item->number, item);
  ready_[stage].changed.notify_one();
}

void Pipeline::stop(const std::string& reason) {
  std::set<Ticket> discarded;
  {
    const std::lock_guard<std::mutex> lock(lock_);
    if (is_stopped_) return;
    is_stopped_ = true;
    discarded.swap(inside_);
    failure_ = reason.empty() ? "the pipeline is closed; make a new one"
                              : reason + "; the pipeline is closed";
    std::set<Stream> lost;
    for (const Ticket& item : discarded)
      if (!reason.empty() && has_any_state_) lost.insert(item->stream);
    for (Stream stream : lost)
      failure_ += (stream == *lost.begin() ? "; lost streams: " : ", ") + std::to_string(stream);
    for (Ready& ready : ready_) {
      ready.items.clear();
      ready.changed.notify_all();
    }
    has_room_.notify_all();
  }
  for (const Ticket& item : discarded)
    item->done({}, std::make_exception_ptr(Error(STAGE_FAILED, failure_)));
}

}  // namespace autosplit

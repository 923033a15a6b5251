#include "batches.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace autosplit {
namespace {

// The rows of an item in a tensor of a batch.
char* rows(const Tensor& whole, const Port& port, std::size_t number) {
  return static_cast<char*>(whole.get()) + number * port.bytes;
}

}  // namespace

Batches::Batches(const Description& description, const std::filesystem::path& folder,
                 double delay_ms)
    : description_(description),
      pipeline_(description, folder),
      delay_(std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double, std::milli>(delay_ms))) {
  for (const StageSpec& stage : description.stages) replicas_ += stage.replicas.size();
  if (description.batch == 1) return;
  threads_.emplace_back(&Batches::collect, this);
  threads_.emplace_back(&Batches::hand_out, this);
}

Batches::~Batches() {
  {
    const std::lock_guard<std::mutex> lock(lock_);
    is_closed_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

std::future<Tensors> Batches::submit(Tensors inputs, Stream stream) {
  if (description_.batch == 1) return pipeline_.submit(std::move(inputs), stream);
  if (inputs.size() != description_.inputs.size())
    throw Error(BAD_INPUT, "an item has " + std::to_string(inputs.size()) + " tensors; give " +
                               std::to_string(description_.inputs.size()));
  std::unique_lock<std::mutex> lock(lock_);
  changed_.wait(lock, [&] { return waiting_.size() < description_.batch; });
  waiting_.push_back({std::move(inputs), Clock::now() + delay_, {}});
  changed_.notify_all();
  return waiting_.back().result.get_future();
}

// Lets batches enter, until the end.
void Batches::collect() {
  while (true) {
    std::deque<Item> items = next();
    if (items.empty()) break;
    std::future<Tensors> outputs;
    try {
      outputs = pipeline_.submit(together(items));
    } catch (const Error&) {
      for (Item& item : items) item.result.set_exception(std::current_exception());
      continue;
    }
    const std::lock_guard<std::mutex> lock(lock_);
    inside_.push_back({std::move(items), std::move(outputs)});
    changed_.notify_all();
  }
  const std::lock_guard<std::mutex> lock(lock_);
  for (Item& item : waiting_)
    item.result.set_exception(std::make_exception_ptr(
        Error(STAGE_FAILED, "the pipeline is closed; make a new one")));
  waiting_.clear();
  is_collected_ = true;
  changed_.notify_all();
}

// The items that enter next, once they are full or due; none at the end.
std::deque<Batches::Item> Batches::next() {
  std::unique_lock<std::mutex> lock(lock_);
  const auto is_full = [&] { return is_closed_ || waiting_.size() == description_.batch; };
  while (!is_full()) {
    if (waiting_.empty() || inside_.size() >= replicas_) {
      changed_.wait(lock);
    } else if (Clock::now() < waiting_.front().due) {
      const Clock::time_point due = waiting_.front().due;
      changed_.wait_until(lock, due);
    } else {
      break;
    }
  }
  if (is_closed_) return {};
  changed_.notify_all();
  return std::exchange(waiting_, {});
}

// Hands out the outputs of batches in the order in which they entered.
void Batches::hand_out() {
  std::unique_lock<std::mutex> lock(lock_);
  while (true) {
    changed_.wait(lock, [&] { return is_collected_ || !inside_.empty(); });
    if (inside_.empty()) return;
    Batch& batch = inside_.front();
    lock.unlock();
    try {
      const Tensors whole = batch.outputs.get();
      for (std::size_t i = 0; i < batch.items.size(); ++i)
        batch.items[i].result.set_value(outputs_of(whole, i));
    } catch (const Error&) {
      for (Item& item : batch.items) item.result.set_exception(std::current_exception());
    }
    lock.lock();
    inside_.pop_front();
    changed_.notify_all();
  }
}

// The inputs of a batch; the last item fills it up.
Tensors Batches::together(const std::deque<Item>& items) const {
  Tensors whole;
  for (std::size_t i = 0; i < description_.inputs.size(); ++i) {
    const Port& port = description_.inputs[i];
    whole.push_back(allocate(description_.batch * port.bytes));
    for (std::size_t n = 0; n < description_.batch; ++n) {
      const Item& item = items[std::min(n, items.size() - 1)];
      std::memcpy(rows(whole.back(), port, n), item.inputs[i].get(), port.bytes);
    }
  }
  return whole;
}

// The outputs of an item: parts of those of its batch.
Tensors Batches::outputs_of(const Tensors& whole, std::size_t number) const {
  Tensors outputs;
  for (std::size_t i = 0; i < whole.size(); ++i)
    outputs.emplace_back(whole[i], rows(whole[i], description_.outputs[i], number));
  return outputs;
}

}  // namespace autosplit

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
  if (description.batch > 1) collector_ = std::thread(&Batches::collect, this);
}

Batches::~Batches() {
  std::unique_lock<std::mutex> lock(lock_);
  is_closed_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return !inside_ && failed_.empty(); });
  lock.unlock();
  if (collector_.joinable()) collector_.join();
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
    const auto batch = std::make_shared<Items>(next());
    if (batch->empty()) break;
    const auto done = [this, batch](const Tensors& whole, std::exception_ptr failure) {
      hand_out(*batch, whole, failure);
    };
    try {
      pipeline_.submit(together(*batch), 0, done);
    } catch (const Error&) {
      done({}, std::current_exception());
    }
  }
  const std::lock_guard<std::mutex> lock(lock_);
  for (Item& item : waiting_)
    item.result.set_exception(std::make_exception_ptr(
        Error(STAGE_FAILED, "the pipeline is closed; make a new one")));
  waiting_.clear();
}

// The items that enter next, once they are full or due, or one that failed; none at the end.
Batches::Items Batches::next() {
  std::unique_lock<std::mutex> lock(lock_);
  const auto is_ready = [&] {
    return is_closed_ || !failed_.empty() || waiting_.size() == description_.batch;
  };
  while (!is_ready()) {
    if (waiting_.empty() || inside_ >= replicas_) {
      changed_.wait(lock);
    } else if (Clock::now() < waiting_.front().due) {
      const Clock::time_point due = waiting_.front().due;
      changed_.wait_until(lock, due);
    } else {
      break;
    }
  }
  Items items;
  if (!failed_.empty()) {
    items.push_back(std::move(failed_.front()));
    failed_.pop_front();
  } else if (!is_closed_) {
    items.swap(waiting_);
  }
  if (!items.empty()) ++inside_;
  changed_.notify_all();
  return items;
}

// Hands out the outputs of a batch. One that failed runs again item by item.
void Batches::hand_out(Items& batch, const Tensors& whole, std::exception_ptr failure) {
  const std::lock_guard<std::mutex> lock(lock_);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (!failure)
      batch[i].result.set_value(outputs_of(whole, i));
    else if (batch.size() == 1)
      batch[i].result.set_exception(failure);
    else
      failed_.push_back(std::move(batch[i]));
  }
  --inside_;
  changed_.notify_all();
}

// The inputs of a batch; the last item fills it up.
Tensors Batches::together(const Items& items) const {
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

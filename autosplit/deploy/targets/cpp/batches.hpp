// Items that are computed together, for exports whose stages take several at once.
#pragma once

#include <chrono>

#include "pipeline.hpp"

namespace autosplit {

// Collects items into batches. A batch enters the pipeline once it is full, or once its first item
// has waited for the delay and some replica is free; it is then filled up with its last item, whose
// further outputs nobody reads. Where a stage fails on a batch, each of its items runs again alone.
// With batch 1 items go straight to the pipeline.
class Batches {
 public:
  // Loads the stages of the export in `folder`. Throws Error.
  Batches(const Description& description, const std::filesystem::path& folder, double delay_ms);
  // Computes what has entered; the futures of items that are still collected throw.
  ~Batches();
  Batches(const Batches&) = delete;

  // How many items are inside at once.
  std::size_t capacity() const { return description_.batch * pipeline_.capacity(); }

  // As `Pipeline::submit`.
  std::future<Tensors> submit(Tensors inputs, Stream stream = 0);

 private:
  using Clock = std::chrono::steady_clock;

  struct Item {
    Tensors inputs;
    Clock::time_point due;
    std::promise<Tensors> result;
  };
  using Items = std::deque<Item>;

  void collect();
  Items next();
  void hand_out(Items& batch, const Tensors& whole, std::exception_ptr failure);
  Tensors together(const Items& items) const;
  Tensors outputs_of(const Tensors& whole, std::size_t number) const;

  const Description& description_;
  Pipeline pipeline_;
  const Clock::duration delay_;
  std::size_t replicas_ = 0;
  std::mutex lock_;  // guards everything below
  std::condition_variable changed_;
  Items waiting_, failed_;  // those that failed wait to run again
  std::size_t inside_ = 0;
  bool is_closed_ = false;
  std::thread collector_;
};

}  // namespace autosplit

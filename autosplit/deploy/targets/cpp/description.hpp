// What an export says about itself; wiring.cpp, which autosplit writes from split.json, defines it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "stage.hpp"

namespace autosplit {

// A copy of a stage and the processor features that its code needs, by their names in Linux.
struct Replica {
  std::string file;
  std::vector<int> cores;
  std::vector<std::string> features;
};

// The positions of a state among a stage's inputs, and of its successor among the outputs.
struct State {
  std::size_t input, output;
};

// A tensor's position where it comes from and where it goes to.
using Route = std::pair<std::size_t, std::size_t>;

// The tensors that `reader` takes from one sender. The sender may begin an item while fewer than
// `reach` items lie between it and the first one that the reader has not begun.
struct Edge {
  std::size_t reader;
  std::vector<Route> routes;
  std::size_t reach;
};

struct StageDescription {
  Loader load;
  std::string runtime, version;
  std::vector<std::string> beside;  // files that the stage file reads
  std::vector<Port> inputs, outputs;
  std::vector<Replica> replicas;
  std::vector<State> states;
  std::vector<Edge> edges;
  std::vector<std::size_t> senders;  // the stages that it reads from
  std::size_t incoming;              // edges that lead here, with that of the caller
  std::vector<Route> model_outputs;
};

struct Description {
  std::string name, architecture;
  std::vector<Port> inputs, outputs;
  std::vector<StageDescription> stages;
  std::vector<Edge> edges;       // out of the caller
  std::vector<Route> forwarded;  // inputs of the model that are outputs too
  std::size_t capacity;          // items that are inside at once
};

extern const Description description;

}  // namespace autosplit

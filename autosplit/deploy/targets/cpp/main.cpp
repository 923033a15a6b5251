// Runs the items of .npy files through an export; USAGE has the arguments.
//
// Item i belongs to stream i mod N. All items run N times, and outputs are of the first time.
#include <charconv>
#include <chrono>
#include <deque>
#include <iostream>

#include "npy.hpp"
#include "pipeline.hpp"

namespace autosplit {
namespace {

const char* const USAGE =
    "net DIR --input NAME=FILE.npy … [--output NAME=FILE.npy …] [--streams N] [--repeat N]";

const std::size_t MOST = 1000000000;  // so that products of two numbers do not overflow

struct Arguments {
  std::string folder;
  std::map<std::string, std::string> inputs, outputs;
  std::size_t streams = 1, repeat = 1;
};

std::size_t number(const std::string& option, const std::string& text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || *end || !value || value > MOST)
    throw Error(BAD_INPUT, option + " " + text + " is invalid; give 1 to " + std::to_string(MOST));
  return value;
}

Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& option = words[i];
    if (option.rfind("--", 0)) {
      arguments.folder = option;
      continue;
    }
    if (option == "--help") {
      std::cout << USAGE << std::endl;
      std::exit(0);
    }
    if (++i == words.size()) throw Error(BAD_INPUT, option + " needs a value");
    const std::size_t equals = words[i].find('=');
    if (option == "--streams") arguments.streams = number(option, words[i]);
    else if (option == "--repeat") arguments.repeat = number(option, words[i]);
    else if (option != "--input" && option != "--output")
      throw Error(BAD_INPUT, "unknown option " + option +
                                 "; the options are --input, --output, --streams and --repeat");
    else if (equals == std::string::npos)
      throw Error(BAD_INPUT, option + " " + words[i] + " is invalid; write NAME=FILE");
    else
      (option == "--input" ? arguments.inputs
                           : arguments.outputs)[words[i].substr(0, equals)] =
          words[i].substr(equals + 1);
  }
  if (arguments.folder.empty())
    throw Error(BAD_INPUT, "the folder of the export is missing; write net DIR --input NAME=FILE");
  return arguments;
}

void require_known(const std::map<std::string, std::string>& files, const std::vector<Port>& ports,
                   const std::string& kind) {
  for (const auto& [name, file] : files) {
    std::string names;
    bool is_known = false;
    for (const Port& port : ports) {
      is_known = is_known || port.name == name;
      names += (names.empty() ? "" : ", ") + port.name;
    }
    if (!is_known)
      throw Error(BAD_INPUT, "unknown " + kind + " '" + name + "'; the model's " + kind + "s are " +
                                 names);
  }
}

// The items of all input files, each with its tensors in the order of the model's inputs.
std::vector<Tensors> read_items(const Arguments& arguments) {
  require_known(arguments.inputs, description.inputs, "input");
  // A model without inputs has items too.
  std::vector<Tensors> items(description.inputs.empty() ? 1 : 0);
  for (const Port& port : description.inputs) {
    const auto file = arguments.inputs.find(port.name);
    if (file == arguments.inputs.end())
      throw Error(BAD_INPUT, "input '" + port.name + "' is missing; write --input " + port.name +
                                 "=FILE");
    const Tensors tensors = read_npy(file->second, port);
    if (&port == &description.inputs.front()) items.resize(tensors.size());
    if (tensors.size() != items.size() || items.empty())
      throw Error(BAD_INPUT, "'" + file->second + "' has " + std::to_string(tensors.size()) +
                                 " items; give 1 or more, and as many for each input");
    for (std::size_t i = 0; i < items.size(); ++i) items[i].push_back(tensors[i]);
  }
  return items;
}

void run(const Arguments& arguments) {
  using Clock = std::chrono::steady_clock;
  require_known(arguments.outputs, description.outputs, "output");
  const std::vector<Tensors> items = read_items(arguments);
  Pipeline pipeline(description, arguments.folder);
  std::vector<Tensors> results(description.outputs.size());
  std::deque<std::future<Tensors>> waiting;
  std::vector<Clock::time_point> ends;
  const auto collect = [&] {
    const Tensors outputs = waiting.front().get();
    waiting.pop_front();
    ends.push_back(Clock::now());
    for (std::size_t i = 0; i < outputs.size() && ends.size() <= items.size(); ++i)
      results[i].push_back(outputs[i]);
  };
  const std::size_t count = items.size() * arguments.repeat;
  for (std::size_t i = 0; i < count; ++i) {
    if (waiting.size() == description.capacity) collect();
    const std::size_t item = i % items.size();
    waiting.push_back(pipeline.submit(items[item], item % arguments.streams));
  }
  while (!waiting.empty()) collect();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto file = arguments.outputs.find(description.outputs[i].name);
    if (file != arguments.outputs.end()) write_npy(file->second, description.outputs[i], results[i]);
  }
  // The first items fill the pipeline.
  const std::size_t filled = std::min(description.capacity, count - 1);
  const std::chrono::duration<double, std::milli> time = ends.back() - ends[filled ? filled - 1 : 0];
  std::cout << count << " items";
  if (count > filled && filled) std::cout << ", " << time.count() / (count - filled) << " ms each";
  std::cout << std::endl;
}

}  // namespace
}  // namespace autosplit

int main(int count, char** words) {
  try {
    autosplit::run(autosplit::parse({words + 1, words + count}));
    return 0;
  } catch (const autosplit::Error& error) {
    std::cerr << autosplit::description.name << ": " << error.what() << std::endl;
    return error.exit_code;
  } catch (const std::exception& error) {
    std::cerr << autosplit::description.name << ": " << error.what() << std::endl;
    return autosplit::BAD_MACHINE;
  }
}

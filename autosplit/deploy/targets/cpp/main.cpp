// Runs the items of .npy files through an export; USAGE has the arguments.
//
// Item i belongs to stream i mod N. All items run N times, and outputs are of the first time.
#include <charconv>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "batches.hpp"

namespace autosplit {
namespace {

const char* const USAGE =
    "net DIR --input NAME=FILE.npy … [--output NAME=FILE.npy …] [--streams N] [--repeat N]";

const std::size_t MOST = 1000000000;  // so that products of two numbers do not overflow

const std::string MAGIC("\x93NUMPY\x01\x00", 8);  // version 1 of the format

// The shape of a file as numpy writes it, without the brackets: "5, 1, 3".
std::string shape_text(const std::string& items, const Port& port) {
  std::string text = items + (port.shape.empty() ? "," : "");
  for (std::int64_t size : port.shape) text += ", " + std::to_string(size);
  return text;
}

std::string header_text(std::size_t items, const Port& port) {
  return "{'descr': '" + port.descr + "', 'fortran_order': False, 'shape': (" +
         shape_text(std::to_string(items), port) + "), }";
}

// Some runtimes raise for an index out of its axis, others compute with any memory.
template <typename Integer>
void require_in_range(const Tensor& tensor, const Port& port) {
  const Integer* values = static_cast<const Integer*>(tensor.get());
  for (std::size_t i = 0; i < port.bytes / sizeof(Integer); ++i)
    if (values[i] < port.range[0] || values[i] > port.range[1])
      throw Error(BAD_INPUT, "input '" + port.name + "' holds " + std::to_string(values[i]) +
                                 "; its values are " + std::to_string(port.range[0]) + " to " +
                                 std::to_string(port.range[1]));
}

Tensors read_npy(const std::string& file, const Port& port) {
  std::ifstream in;
  // Opening a named pipe would wait for a writer.
  if (is_file(file)) in.open(file, std::ios::binary);
  if (!in.is_open()) throw Error(BAD_INPUT, "'" + file + "' cannot be read; give a .npy file");
  char start[10];
  if (!in.read(start, sizeof start) || MAGIC.compare(0, MAGIC.size(), start, MAGIC.size()))
    throw Error(BAD_INPUT, "'" + file + "' is not a .npy file of version 1.0; write it with " +
                               "numpy.save");
  const std::size_t size = static_cast<unsigned char>(start[8]) |
                           static_cast<unsigned char>(start[9]) << 8;
  std::string header(size, ' ');
  in.read(header.data(), size);
  const std::size_t shape = header.find("'shape': (");
  const std::size_t items =
      shape == std::string::npos ? 0 : std::strtoull(&header[shape] + 10, nullptr, 10);
  if (!in || header.rfind(header_text(items, port), 0))
    throw Error(BAD_INPUT, "'" + file + "' does not hold items of '" + port.name + "'; save a C-" +
                               "ordered array of " + port.dtype + " with the shape (" +
                               shape_text("ITEMS", port) + ")");
  Tensors tensors;
  for (std::size_t i = 0; i < items; ++i) {
    tensors.push_back(allocate(port.bytes));
    if (!in.read(static_cast<char*>(tensors.back().get()), port.bytes))
      throw Error(BAD_INPUT, "'" + file + "' ends in item " + std::to_string(i) + "; save it again");
    if (port.range.empty()) continue;
    if (port.dtype == "int32")
      require_in_range<std::int32_t>(tensors.back(), port);
    else
      require_in_range<std::int64_t>(tensors.back(), port);
  }
  return tensors;
}

void write_npy(const std::string& file, const Port& port, const Tensors& tensors) {
  std::string header = header_text(tensors.size(), port);
  // The data begin at a multiple of 64 bytes.
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::ofstream out(file, std::ios::binary);
  out << MAGIC << static_cast<char>(header.size() & 0xff) << static_cast<char>(header.size() >> 8)
      << header;
  for (const Tensor& tensor : tensors) out.write(static_cast<char*>(tensor.get()), port.bytes);
  if (!out.flush()) throw Error(BAD_MACHINE, "'" + file + "' cannot be written");
}

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

void require_known(std::map<std::string, std::string> files, const std::vector<Port>& ports,
                   const std::string& kind) {
  std::string names;
  for (const Port& port : ports) {
    files.erase(port.name);
    names += (names.empty() ? "" : ", ") + port.name;
  }
  if (!files.empty())
    throw Error(BAD_INPUT, "unknown " + kind + " '" + files.begin()->first + "'; the model's " +
                               kind + "s are " + names);
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
  Batches pipeline(description, arguments.folder, description.delay_ms);
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
    if (waiting.size() == pipeline.capacity()) collect();
    const std::size_t item = i % items.size();
    waiting.push_back(pipeline.submit(items[item], item % arguments.streams));
  }
  while (!waiting.empty()) collect();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const auto file = arguments.outputs.find(description.outputs[i].name);
    if (file != arguments.outputs.end()) write_npy(file->second, description.outputs[i], results[i]);
  }
  // The first items fill the pipeline.
  const std::size_t filled = std::min(pipeline.capacity(), count - 1);
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

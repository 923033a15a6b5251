// Runs the items of .npy files through an export; USAGE has the arguments.
//
// With --streams N item i belongs to stream i mod N. With --repeat N all items run N times, and the
// outputs of the first run are written. With --feed each item begins a stream of its own, of which
// N run at once; each run takes outputs of the run before, and the last run's outputs are written.
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "pipeline.hpp"

namespace autosplit {
namespace {

using Clock = std::chrono::steady_clock;

const char* const USAGE =
    "net DIR --input NAME=FILE.npy … [--output NAME=FILE.npy …] [--feed INPUT=OUTPUT …] "
    "[--streams N] [--repeat N]";

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

Tensors read_npy(const std::string& file, const Port& port) {
  std::ifstream in;
  // Opening a named pipe would wait for a writer.
  if (is_file(file)) in.open(file, std::ios::binary);
  if (!in.is_open()) throw Error(BAD_INPUT, "'", file, "' cannot be read; give a .npy file");
  char start[10];
  if (!in.read(start, sizeof start) || MAGIC.compare(0, MAGIC.size(), start, MAGIC.size()))
    throw Error(BAD_INPUT, "'", file, "' is not a .npy file of version 1.0; write it with ",
                "numpy.save");
  const std::size_t size = static_cast<unsigned char>(start[8]) |
                           static_cast<unsigned char>(start[9]) << 8;
  std::string header(size, ' ');
  in.read(header.data(), size);
  const std::size_t shape = header.find("'shape': (");
  const std::size_t items =
      shape == std::string::npos ? 0 : std::strtoull(&header[shape] + 10, nullptr, 10);
  if (!in || header.rfind(header_text(items, port), 0))
    throw Error(BAD_INPUT, "'", file, "' does not hold items of '", port.name,
                "'; save a C-ordered array of ", port.dtype, " with the shape (",
                shape_text("ITEMS", port), ")");
  Tensors tensors;
  for (std::size_t i = 0; i < items; ++i) {
    tensors.push_back(allocate(port.bytes));
    if (!in.read(static_cast<char*>(tensors.back().get()), port.bytes))
      throw Error(BAD_INPUT, "'", file, "' ends in item ", i, "; save it again");
  }
  return tensors;
}

// Writes one of the outputs of each item.
void write_npy(const std::string& file, std::size_t output, const std::vector<Tensors>& items) {
  const Port& port = description.outputs[output];
  std::string header = header_text(items.size(), port);
  // The data begin at a multiple of 64 bytes.
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
  header += '\n';
  std::ofstream out(file, std::ios::binary);
  out << MAGIC << static_cast<char>(header.size() & 0xff) << static_cast<char>(header.size() >> 8)
      << header;
  for (const Tensors& item : items) out.write(static_cast<char*>(item[output].get()), port.bytes);
  if (!out.flush()) throw Error(BAD_MACHINE, "'", file, "' cannot be written");
}

using Pairs = std::map<std::string, std::string>;

struct Arguments {
  std::string folder;
  Pairs inputs, outputs, feed;
  std::size_t streams = 1, repeat = 1;
};

std::size_t number(const std::string& option, const std::string& text) {
  std::size_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || *end || !value || value > MOST)
    throw Error(BAD_INPUT, option, " ", text, " is invalid; give 1 to ", MOST);
  return value;
}

Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  const std::map<std::string, Pairs*> pairs{{"--input", &arguments.inputs},
                                            {"--output", &arguments.outputs},
                                            {"--feed", &arguments.feed}};
  const std::map<std::string, std::size_t*> numbers{{"--streams", &arguments.streams},
                                                    {"--repeat", &arguments.repeat}};
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
    if (!pairs.count(option) && !numbers.count(option))
      throw Error(BAD_INPUT, "unknown option ", option, "; write ", USAGE);
    if (++i == words.size()) throw Error(BAD_INPUT, option, " needs a value");
    if (numbers.count(option)) {
      *numbers.at(option) = number(option, words[i]);
      continue;
    }
    const std::size_t equals = words[i].find('=');
    if (equals == std::string::npos)
      throw Error(BAD_INPUT, option, " ", words[i], " is invalid; write NAME=",
                  option == "--feed" ? "NAME" : "FILE");
    (*pairs.at(option))[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  if (arguments.folder.empty())
    throw Error(BAD_INPUT, "the folder of the export is missing; write net DIR --input NAME=FILE");
  return arguments;
}

// The position of a port among those of the model. Throws Error for an unknown name.
std::size_t place(const std::string& name, const std::vector<Port>& ports, const char* kind) {
  std::string names;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return i;
    names += (i ? ", " : "") + ports[i].name;
  }
  throw Error(BAD_INPUT, "unknown ", kind, " '", name, "'; the model's ", kind, "s are ", names);
}

// Pairs of the position of an input and that of the output that is fed to it.
std::vector<std::pair<std::size_t, std::size_t>> fed(const Pairs& feed) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (const auto& [input, output] : feed) {
    places.emplace_back(place(input, description.inputs, "input"),
                        place(output, description.outputs, "output"));
    const Port& to = description.inputs[places.back().first];
    const Port& from = description.outputs[places.back().second];
    if (from.dtype != to.dtype || from.shape != to.shape)
      throw Error(BAD_INPUT, "output '", output, "' has another type or shape than input '", input,
                  "'; feed it to another one");
  }
  return places;
}

// The items of all input files, each with its tensors in the order of the model's inputs.
std::vector<Tensors> read_items(const Arguments& arguments) {
  for (const auto& [name, file] : arguments.inputs) place(name, description.inputs, "input");
  // A model without inputs has items too.
  std::vector<Tensors> items(description.inputs.empty() ? 1 : 0);
  for (const Port& port : description.inputs) {
    const auto file = arguments.inputs.find(port.name);
    if (file == arguments.inputs.end())
      throw Error(BAD_INPUT, "input '", port.name, "' is missing; write --input ", port.name,
                  "=FILE");
    const Tensors tensors = read_npy(file->second, port);
    if (&port == &description.inputs.front()) items.resize(tensors.size());
    if (tensors.size() != items.size() || items.empty())
      throw Error(BAD_INPUT, "'", file->second, "' has ", tensors.size(),
                  " items; give 1 or more, and as many for each input");
    for (std::size_t i = 0; i < items.size(); ++i) items[i].push_back(tensors[i]);
  }
  return items;
}

// Runs all items; returns their outputs, and adds to `ends` the time when each was complete.
std::vector<Tensors> compute(Pipeline& pipeline, const std::vector<Tensors>& items,
                             const Arguments& arguments, std::vector<Clock::time_point>& ends) {
  std::vector<Tensors> results(items.size());
  const auto places = fed(arguments.feed);
  if (!places.empty()) {
    const auto following = [&](const Tensors& outputs, Stream stream,
                               std::size_t step) -> std::optional<Tensors> {
      ends.push_back(Clock::now());
      results[stream] = outputs;
      if (step + 1 == arguments.repeat) return std::nullopt;
      Tensors next = items[stream];
      for (const auto& [input, output] : places) next[input] = outputs[output];
      return next;
    };
    pipeline.loop(items, following, arguments.streams);
    return results;
  }
  std::deque<std::future<Tensors>> waiting;
  const auto collect = [&] {
    Tensors outputs = waiting.front().get();
    waiting.pop_front();
    if (ends.size() < items.size()) results[ends.size()] = std::move(outputs);
    ends.push_back(Clock::now());
  };
  for (std::size_t i = 0; i < items.size() * arguments.repeat; ++i) {
    if (waiting.size() == pipeline.capacity()) collect();
    const std::size_t item = i % items.size();
    waiting.push_back(pipeline.submit(items[item], item % arguments.streams));
  }
  while (!waiting.empty()) collect();
  return results;
}

void run(const Arguments& arguments) {
  for (const auto& [name, file] : arguments.outputs) place(name, description.outputs, "output");
  const std::vector<Tensors> items = read_items(arguments);
  Pipeline pipeline(description, arguments.folder);
  std::vector<Clock::time_point> ends;
  const std::vector<Tensors> results = compute(pipeline, items, arguments, ends);
  for (const auto& [name, file] : arguments.outputs)
    write_npy(file, place(name, description.outputs, "output"), results);
  // The first items, which fill the pipeline, are not timed.
  const std::size_t count = ends.size(), filled = std::min(pipeline.capacity(), count - 1);
  std::cout << count << " items";
  if (filled) {
    const std::chrono::duration<double, std::milli> time = ends.back() - ends[filled - 1];
    std::cout << ", " << time.count() / (count - filled) << " ms each";
  }
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

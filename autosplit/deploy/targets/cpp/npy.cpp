#include "npy.hpp"

#include <cstring>
#include <fstream>

#include "system.hpp"

namespace autosplit {
namespace {

const std::string MAGIC("\x93NUMPY\x01\x00", 8);  // version 1 of the format

// The shape of a file as numpy writes it, without the brackets: "5, 1, 3".
std::string shape_text(std::size_t items, const Port& port) {
  std::string text = std::to_string(items) + (port.shape.empty() ? "," : "");
  for (std::int64_t size : port.shape) text += ", " + std::to_string(size);
  return text;
}

std::string header_text(std::size_t items, const Port& port) {
  return "{'descr': '" + port.descr + "', 'fortran_order': False, 'shape': (" +
         shape_text(items, port) + "), }";
}

std::size_t stored_items(const std::string& header) {
  const std::size_t shape = header.find("'shape': (");
  return shape == std::string::npos ? 0 : std::strtoull(&header[shape] + 10, nullptr, 10);
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

}  // namespace

Tensors read_npy(const std::string& file, const Port& port) {
  std::ifstream in = open_regular(file);
  if (!in.is_open()) throw Error(BAD_INPUT, "'" + file + "' cannot be read; give a .npy file");
  char start[10];
  if (!in.read(start, sizeof start) || MAGIC.compare(0, MAGIC.size(), start, MAGIC.size()))
    throw Error(BAD_INPUT, "'" + file + "' is not a .npy file of version 1.0; write it with " +
                               "numpy.save");
  const std::size_t size = static_cast<unsigned char>(start[8]) |
                           static_cast<unsigned char>(start[9]) << 8;
  std::string header(size, ' ');
  in.read(header.data(), size);
  const std::size_t items = stored_items(header);
  if (!in || header.rfind(header_text(items, port), 0))
    throw Error(BAD_INPUT, "'" + file + "' does not hold items of '" + port.name + "'; save a C-" +
                               "ordered array of " + port.dtype + " with the shape (" +
                               "ITEMS" + shape_text(0, port).substr(1) + ")");
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

}  // namespace autosplit

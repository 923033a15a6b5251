// Items in numpy's .npy files: along the first axis of an array lie the items.
#pragma once

#include <string>
#include <vector>

#include "stage.hpp"

namespace autosplit {

// The tensors of a file for one port. Throws for another type or shape.
Tensors read_npy(const std::string& file, const Port& port);

void write_npy(const std::string& file, const Port& port, const Tensors& tensors);

}  // namespace autosplit

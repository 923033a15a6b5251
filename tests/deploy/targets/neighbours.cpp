// Items; the one whose number is given holds what stage 1 fails on. Prints what comes out.
#include <cstring>
#include <iostream>

#include "pipeline.hpp"

using namespace autosplit;

int main(int count, char** words) {
  Description described = description;
  described.delay_ms = 1;
  Pipeline pipeline(described, words[1]);
  std::vector<std::future<Tensors>> results;
  for (int number = 0; number < 7; ++number) {
    Tensors item{allocate(description.inputs[0].bytes)};
    const bool is_bad = count > 2 && number == std::atoi(words[2]);
    std::memset(item[0].get(), is_bad ? 255 : number, description.inputs[0].bytes);
    results.push_back(pipeline.submit(item));
  }
  for (auto& result : results) {
    try {
      for (const Tensor& tensor : result.get())
        std::cout << static_cast<int>(*static_cast<unsigned char*>(tensor.get())) << " ";
      std::cout << std::endl;
    } catch (const Error& error) {
      std::cout << error.what() << std::endl;
    }
  }
}

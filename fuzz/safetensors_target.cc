#include "formats/safetensors.h"

#include "check_tensors.h"
#include "input.h"
#include "targets.h"

namespace minisgl::fuzz {

void safetensors(std::span<const std::byte> input) {
  const MemoryFile memory(as_text(input));
  accepted([&] {
    const SafetensorsFile file(memory.path());
    check_tensors(file.tensors(), input.size());
    for (const auto& [name, why] : file.unsupported()) check_message(Error(why));
  });
}

}  // namespace minisgl::fuzz

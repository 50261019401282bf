#include <map>
#include <memory>

#include "formats/gguf.h"
#include "input.h"
#include "models/gguf_config.h"
#include "models/weight_source.h"
#include "targets.h"
#include "tokenize.h"
#include "tokenizer/tokenizer.h"

namespace minisgl::fuzz {

void gguf(std::span<const std::byte> input) {
  const MemoryFile memory(as_text(input));
  accepted([&] {
    const GgufFile file(memory.path());
    std::map<const std::byte*, std::int64_t> parts;
    unsigned int sum = 0;
    for (const auto& [name, tensor] : file.tensors()) {
      parts.emplace(tensor.data, tensor.bytes());
      // A mapping ends with its file's last page: what lies beyond is a bus error.
      sum += std::to_integer<unsigned int>(tensor.data[0]) +
             std::to_integer<unsigned int>(tensor.data[tensor.bytes() - 1]);
      (void)models::canonical_name(name);
    }
    require(sum <= 510 * parts.size(), "bytes have no such sum");
    const std::byte* end = nullptr;
    std::int64_t total = 0;
    for (const auto& [data, bytes] : parts) {
      require(data >= end, "tensors overlap");
      end = data + bytes;
      total += bytes;
    }
    require(total <= static_cast<std::int64_t>(input.size()), "tensors are larger than the file");

    accepted([&] { (void)models::read_gguf_config(file); });
    accepted([&] {
      use_tokenizer(*load_gguf_tokenizer(file), "A h\u00e9llo, 123 <|im_end|>  w\xF0\x9F");
    });
  });
}

}  // namespace minisgl::fuzz

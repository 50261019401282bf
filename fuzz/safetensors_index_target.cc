#include <cstdint>
#include <cstring>
#include <string>

#include "check_tensors.h"
#include "formats/safetensors.h"
#include "input.h"
#include "targets.h"

namespace minisgl::fuzz {
namespace {

/// A valid file: a f32 [2] and b u8 [3].
std::string shard() {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  const std::uint64_t length = header.size();
  std::string file(sizeof(length), '\0');
  std::memcpy(file.data(), &length, sizeof(length));
  return file + header + std::string(11, '\x01');
}

}  // namespace

void safetensors_index(std::span<const std::byte> input) {
  static const Folder folder;
  static const std::string valid = shard();
  static const bool written = (folder.write("model-1.safetensors", valid), true);
  require(written, "the shard is there");
  folder.write("model.safetensors.index.json", as_text(input));
  accepted([&] {
    const SafetensorsFolder files(folder.path());
    check_tensors(files.tensors(), valid.size());
  });
}

}  // namespace minisgl::fuzz

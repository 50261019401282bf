#include "tokenizer/tokenizer.h"

#include "formats/gguf.h"
#include "minisgl/error.h"

namespace minisgl {

std::string_view Tokenizer::chat_template() const {
  const ChatTemplates& all = chat_templates();
  if (const auto found = all.find("default"); found != all.end()) return found->second;
  return all.size() == 1 ? std::string_view(all.begin()->second) : std::string_view();
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return load_huggingface_tokenizer(path);
  if (is_gguf(path)) return load_gguf_tokenizer(GgufFile(path));
  throw Error(path.string() + " is neither a folder with a tokenizer.json nor a GGUF file");
}

}  // namespace minisgl

// Speed of Tokenizer::encode() on a corpus, driven by compare_tokenizers.py over standard input.
//
//   tokenizer_bench MODEL CORPUS     MODEL: a folder with a tokenizer.json, or a GGUF file
//                                    CORPUS: documents, a zero byte after each
//
// Commands, one a line: "pass" encodes all documents and prints the processor seconds that it took;
// "ids FILE" writes the ids of all documents, each list preceded by its length, as int32.

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/error.h"
#include "tokenizer/tokenizer.h"

namespace minisgl {
namespace {

/// Processor time of the process, which other programs disturb less than the wall clock.
double now() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::vector<std::string_view> documents_of(std::string_view corpus) {
  std::vector<std::string_view> documents;
  while (!corpus.empty()) {
    const std::size_t end = corpus.find('\0');
    documents.push_back(corpus.substr(0, end));
    corpus.remove_prefix(end == std::string_view::npos ? corpus.size() : end + 1);
  }
  return documents;
}

void write_ids(const Tokenizer& tokenizer, const std::vector<std::string_view>& documents,
               const std::string& path) {
  std::ofstream out(path, std::ios::binary);
  for (const std::string_view document : documents) {
    const std::vector<TokenId> ids = tokenizer.encode(document);
    const auto count = static_cast<std::int32_t>(ids.size());
    out.write(reinterpret_cast<const char*>(&count), sizeof count);
    out.write(reinterpret_cast<const char*>(ids.data()),
              static_cast<std::streamsize>(ids.size() * sizeof(TokenId)));
  }
  if (!out.flush()) throw Error("cannot write " + path);
}

int run(const char* model, const char* corpus_path) {
  const auto tokenizer = load_tokenizer(model);
  std::ifstream file(corpus_path, std::ios::binary);
  if (!file) throw Error(std::string("cannot read ") + corpus_path);
  const std::string corpus{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::vector<std::string_view> documents = documents_of(corpus);
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string command; std::getline(std::cin, command);) {
    if (command == "pass") {
      std::size_t tokens = 0;
      const double start = now();
      for (const std::string_view document : documents)
        tokens += tokenizer->encode(document).size();
      std::printf("%.6f %zu\n", now() - start, tokens);
    } else if (command.starts_with("ids ")) {
      write_ids(*tokenizer, documents, command.substr(4));
      std::printf("written\n");
    } else {
      throw Error("unknown command " + command);
    }
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace minisgl

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: tokenizer_bench MODEL CORPUS\n");
    return 2;
  }
  try {
    return minisgl::run(argv[1], argv[2]);
  } catch (const minisgl::Error& e) {
    std::fprintf(stderr, "tokenizer_bench: %s\n", e.what());
    return 1;
  }
}

// Time and memory of loading a checkpoint that is in the page cache, beside `cat FILES >
// /dev/null`.
//
//   load_bench [--gigabytes G] [--folder DIR] [--threads N] [--repeat N] [--simd NAME]...
//
// Writes a folder of bfloat16 safetensors shards with a model of G GB (default 4), loads it for
// each instruction set (default: auto, whose tiles are repacked, and plain, whose rows are copied
// as they lie), and deletes it. Prints the best of N runs (default 3), each in a process of its
// own.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/simd.h"
#include "models/model.h"
#include "testing/random.h"

namespace minisgl {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

struct Options {
  double gigabytes = 4;
  fs::path folder = fs::temp_directory_path() / "minisgl_load_bench";
  int threads = available_processors();
  int repeat = 3;
  std::vector<std::string> simd;
};

constexpr std::int64_t kHidden = 4096;
constexpr std::int64_t kIntermediate = 14336;
constexpr std::int64_t kKvRows = 1024;
constexpr std::int64_t kVocab = 32000;

struct Matrix {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t bytes() const {
    std::int64_t elements = 1;
    for (const std::int64_t size : shape) elements *= size;
    return 2 * elements;
  }
};

std::vector<Matrix> layer_tensors(int layer) {
  const std::string at = "model.layers." + std::to_string(layer) + ".";
  return {{at + "input_layernorm.weight", {kHidden}},
          {at + "mlp.down_proj.weight", {kHidden, kIntermediate}},
          {at + "mlp.gate_proj.weight", {kIntermediate, kHidden}},
          {at + "mlp.up_proj.weight", {kIntermediate, kHidden}},
          {at + "post_attention_layernorm.weight", {kHidden}},
          {at + "self_attn.k_proj.weight", {kKvRows, kHidden}},
          {at + "self_attn.o_proj.weight", {kHidden, kHidden}},
          {at + "self_attn.q_proj.weight", {kHidden, kHidden}},
          {at + "self_attn.v_proj.weight", {kKvRows, kHidden}}};
}

void write_shard(const fs::path& path, const std::vector<Matrix>& tensors,
                 const std::string& pattern) {
  json header;
  std::int64_t end = 0;
  for (const Matrix& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", "BF16"}, {"shape", tensor.shape}, {"data_offsets", {end, end + tensor.bytes()}}};
    end += tensor.bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 63) / 64 * 64, ' ');
  const std::uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text;
  while (end > 0) {
    const auto part = std::min<std::int64_t>(end, static_cast<std::int64_t>(pattern.size()));
    file.write(pattern.data(), part);
    end -= part;
  }
  if (!file) throw Error("cannot write " + path.string());
}

/// Returns the bytes of all shards.
std::int64_t write_model(const Options& options) {
  std::string pattern;
  testing_util::Random random(1);
  while (pattern.size() < (16 << 20)) {  // numbers around 0.01, of both signs
    const auto bits = static_cast<std::uint16_t>((random.next() & 0x80FFU) | 0x3C00U);
    pattern.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  fs::remove_all(options.folder);
  fs::create_directories(options.folder);
  const Matrix embedding{"model.embed_tokens.weight", {kVocab, kHidden}};
  const Matrix norm{"model.norm.weight", {kHidden}};
  std::int64_t layer_bytes = 0;
  for (const Matrix& tensor : layer_tensors(0)) layer_bytes += tensor.bytes();
  const int layers = std::max(
      1, static_cast<int>((options.gigabytes * 1e9 - static_cast<double>(embedding.bytes())) /
                          static_cast<double>(layer_bytes)));
  json index;
  std::int64_t total = 0;
  for (int i = 0; i < layers; ++i) {
    std::vector<Matrix> tensors = layer_tensors(i);
    if (i == 0) tensors.insert(tensors.end(), {embedding, norm});
    const std::string file = "model-" + std::to_string(i) + ".safetensors";
    write_shard(options.folder / file, tensors, pattern);
    for (const Matrix& tensor : tensors) {
      index["weight_map"][tensor.name] = file;
      total += tensor.bytes();
    }
  }
  std::ofstream(options.folder / "model.safetensors.index.json") << index;
  std::ofstream(options.folder / "config.json") << json{{"architectures", {"LlamaForCausalLM"}},
                                                        {"hidden_size", kHidden},
                                                        {"intermediate_size", kIntermediate},
                                                        {"num_hidden_layers", layers},
                                                        {"num_attention_heads", kHidden / 128},
                                                        {"num_key_value_heads", kKvRows / 128},
                                                        {"vocab_size", kVocab},
                                                        {"max_position_embeddings", 2048},
                                                        {"tie_word_embeddings", true},
                                                        {"torch_dtype", "bfloat16"}};
  return total;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double cat(const Options& options) {
  const std::string command = "cat " + options.folder.string() + "/*.safetensors > /dev/null";
  const auto start = std::chrono::steady_clock::now();
  if (std::system(command.c_str()) != 0) throw Error("failed: " + command);
  return seconds_since(start);
}

/// Largest resident size of this process, bytes.
std::int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    std::int64_t kilobytes = 0;
    if (key == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

struct Load {
  double seconds = 0;
  std::int64_t peak = 0;
};

/// In a process of its own: what one run leaves in memory does not help the next.
Load load(const Options& options, const std::string& simd) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) throw Error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    Load result;
    try {
      kernels::set_simd(simd);
      const auto start = std::chrono::steady_clock::now();
      const auto model = load_model(options.folder, {.num_threads = options.threads});
      result = {seconds_since(start), peak_bytes()};
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
    }
    const bool written = write(pipe_ends[1], &result, sizeof(result)) == sizeof(result);
    _exit(written ? 0 : 1);
  }
  Load result;
  close(pipe_ends[1]);
  const bool complete = read(pipe_ends[0], &result, sizeof(result)) == sizeof(result);
  close(pipe_ends[0]);
  waitpid(child, nullptr, 0);
  if (!complete || result.seconds == 0) throw Error("loading failed");
  return result;
}

void bench(const Options& options) {
  const std::int64_t bytes = write_model(options);
  cat(options);  // into the page cache
  std::printf("%.2f GB of bfloat16, %d threads\n", static_cast<double>(bytes) * 1e-9,
              options.threads);
  for (const std::string& simd : options.simd) {
    double cat_time = 1e9;
    Load best{1e9, 0};
    for (int i = 0; i < options.repeat; ++i) {
      cat_time = std::min(cat_time, cat(options));
      const Load now = load(options, simd);
      best = {std::min(best.seconds, now.seconds), std::max(best.peak, now.peak)};
    }
    std::printf(
        "simd %-7s cat %6.2f s  load %6.2f s = %.2f x cat (%.2f GB/s)  peak %.0f MB = file + %.0f "
        "MB\n",
        simd.c_str(), cat_time, best.seconds, best.seconds / cat_time,
        static_cast<double>(bytes) * 1e-9 / best.seconds, static_cast<double>(best.peak) * 1e-6,
        static_cast<double>(best.peak - bytes) * 1e-6);
  }
  fs::remove_all(options.folder);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--gigabytes") options.gigabytes = std::atof(argv[i + 1]);
    if (flag == "--folder") options.folder = argv[i + 1];
    if (flag == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (flag == "--repeat") options.repeat = std::atoi(argv[i + 1]);
    if (flag == "--simd") options.simd.emplace_back(argv[i + 1]);
  }
  if (options.simd.empty()) options.simd = {"auto", "plain"};
  return options;
}

}  // namespace
}  // namespace minisgl

int main(int argc, char** argv) {
  try {
    minisgl::bench(minisgl::parse(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

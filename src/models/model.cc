#include "models/model.h"

#include "formats/gguf.h"
#include "models/architectures.h"
#include "models/config.h"
#include "models/dense_decoder.h"
#include "models/gguf_config.h"
#include "models/weight_source.h"

namespace minisgl {
namespace {

std::int64_t total_bytes(const WeightSource& source) {
  std::int64_t bytes = 0;
  for (const std::string& name : source.names()) bytes += source.find(name).bytes();
  return bytes;
}

std::unique_ptr<Model> build(const WeightSource& source, const ModelConfig& config,
                             const LoadOptions& options) {
  ThreadPool pool(options.num_threads);
  layers::WeightLoad load{.source = source, .pool = pool, .shard = options.shard};
  if (options.on_progress)
    load.on_progress = [&options, total = total_bytes(source)](std::int64_t done) {
      options.on_progress(done, total);
    };
  const std::int64_t positions =
      options.max_seq_len > 0 ? options.max_seq_len : config.max_position_embeddings;
  std::unique_ptr<Model> model =
      models::make_dense_decoder(layers::Weights(load), config, positions);
  models::check_all_used(source, load.used);
  return model;
}

}  // namespace

std::unique_ptr<Model> load_model(const std::filesystem::path& path, const LoadOptions& options) {
  if (std::filesystem::is_directory(path)) {
    const ModelConfig config = models::read_huggingface_config(path);
    return build(*models::open_weights(path), config, options);
  }
  GgufFile file(path);  // read once: its metadata holds the vocabulary too
  const ModelConfig config = models::read_gguf_config(file);
  return build(*models::gguf_weights(std::move(file)), config, options);
}

ModelConfig read_model_config(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return models::read_huggingface_config(path);
  return models::read_gguf_config(GgufFile(path));
}

}  // namespace minisgl

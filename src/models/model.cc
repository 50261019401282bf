#include "models/model.h"

#include "formats/gguf.h"
#include "models/adapted_weights.h"
#include "models/architectures.h"
#include "models/config.h"
#include "models/dense_decoder.h"
#include "models/divide.h"
#include "models/dummy_weights.h"
#include "models/gguf_config.h"
#include "models/weight_source.h"

namespace minisgl {
namespace {

/// What the model would take of `source`, without taking it.
layers::WantedWeights find_wanted(const WeightSource& source, const ModelConfig& config,
                                  const LoadOptions& options, ThreadPool& pool,
                                  layers::WeightFaults& faults) {
  layers::WeightLoad load{
      .source = source, .pool = pool, .shard = options.shard, .faults = &faults};
  models::make_dense_decoder(layers::Weights(load), config, /*num_positions=*/1);
  return std::move(load.wanted);
}

std::unique_ptr<Model> build(const WeightSource& source, std::int64_t total_bytes,
                             const ModelConfig& config, const LoadOptions& options,
                             ThreadPool& pool) {
  layers::WeightLoad load{.source = source,
                          .pool = pool,
                          .shard = options.shard,
                          .device = options.device,
                          .gpu_dtype = config.gpu_dtype,
                          .dtype = options.dtype};
  if (options.on_progress)
    load.on_progress = [&options, total_bytes](std::int64_t done) {
      options.on_progress(done, total_bytes);
    };
  const std::int64_t positions =
      options.max_seq_len > 0 ? options.max_seq_len : config.max_position_embeddings;
  return models::make_dense_decoder(layers::Weights(load), config, positions);
}

std::unique_ptr<Model> load(const WeightSource& source, const ModelConfig& config,
                            const LoadOptions& options) {
  models::check_divides(config, options.shard.world);
  ThreadPool pool(options.num_threads);
  layers::WeightFaults faults;
  const layers::WantedWeights wanted = find_wanted(source, config, options, pool, faults);
  models::check_weights(source, faults, wanted);
  std::int64_t bytes = 0;
  for (const auto& [name, shape] : wanted) bytes += source.find(name).bytes();
  return build(source, bytes, config, options, pool);
}

std::unique_ptr<Model> load_dummy(const ModelConfig& config, const LoadOptions& options) {
  models::check_divides(config, options.shard.world);
  ThreadPool pool(options.num_threads);
  layers::WeightFaults faults;  // everything is missing
  const auto none = models::dummy_weights({}, DType::kF32);
  const layers::WantedWeights wanted = find_wanted(*none, config, options, pool, faults);
  const DType dtype =
      options.dtype.value_or(is_block_type(config.dtype) ? DType::kBF16 : config.dtype);
  std::int64_t bytes = 0;
  for (const auto& [name, shape] : wanted) bytes += bytes_of(dtype, shape.numel());
  // A GPU takes matrices of one type; others are made here and converted on their way.
  const Device device = dtype == config.gpu_dtype ? options.device : kCpu;
  return build(*models::dummy_weights(wanted, dtype, device), bytes, config, options, pool);
}

}  // namespace

std::unique_ptr<Model> load_model(const std::filesystem::path& path, const LoadOptions& options) {
  if (options.dummy_weights) return load_dummy(read_model_config(path), options);
  if (std::filesystem::is_directory(path)) {
    ModelConfig config = models::read_huggingface_config(path);
    const auto source = models::adapted_weights(models::open_weights(path), config);
    if (models::find_huggingface(config.architecture, path.string()).text_part)
      config.tie_word_embeddings = source->find("lm_head.weight").empty();
    return load(*source, config, options);
  }
  GgufFile file(path);  // read once: its metadata holds the vocabulary too
  const ModelConfig config = models::read_gguf_config(file);
  return load(*models::adapted_weights(models::gguf_weights(std::move(file)), config), config,
              options);
}

ModelConfig read_model_config(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return models::read_huggingface_config(path);
  return models::read_gguf_config(GgufFile(path));
}

}  // namespace minisgl

#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "base/math.h"
#include "engine/cuda/cuda_graph.h"
#include "engine/forward_scope.h"
#include "engine/graph_sizes.h"
#include "engine/memory_plan.h"
#include "engine/step_arrays.h"
#include "kernels/gather.h"
#include "kernels/sampling.h"
#include "tensor/cuda/device.h"
#include "tensor/cuda/range.h"

namespace minisgl {
namespace {

std::unique_ptr<Stream> make_stream(const EngineConfig& config) {
  if constexpr (cuda::kBuilt)
    if (!config.device.is_cpu()) return cuda::make_stream(config.device, config.deterministic);
  check(config.device.is_cpu(), "this build has no code for ", to_string(config.device));
  return std::make_unique<CpuStream>(config.num_threads);
}

std::unique_ptr<Stream> make_dry_stream(const EngineConfig& config) {
  if constexpr (cuda::kBuilt)
    if (!config.device.is_cpu()) return cuda::make_dry_stream(config.device);
  return CpuStream::make_dry(config.num_threads);
}

DType activation_type(const EngineConfig& config, const ModelConfig& model) {
  return config.device.is_cpu() ? DType::kF32 : model.gpu_dtype;
}

/// Of keys and values.
DType kv_type(const EngineConfig& config, const ModelConfig& model) {
  if (config.kv_cache_dtype) {
    if (config.device.is_cpu())
      throw Error("a KV cache of " + std::string(name(*config.kv_cache_dtype)) +
                  " needs a GPU; on a CPU keys and values are f32, or bf16 with --compute bf16");
    return *config.kv_cache_dtype;
  }
  if (config.device.is_cpu() && config.compute == Compute::kBf16) return DType::kBF16;
  return activation_type(config, model);
}

/// Tokens that token_logprobs() scores at a time: bounds its logits to kScoreChunk * vocab.
constexpr std::int32_t kScoreChunk = 256;

/// log softmax(logits)[target], in double.
double log_probability(const float* logits, std::int64_t vocab, TokenId target) {
  const float top = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (std::int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(logits[i]) - top);
  return logits[target] - top - std::log(sum);
}

}  // namespace

struct Engine::Slot {
  Slot(std::int64_t max_tokens, std::int64_t max_samples, Stream& stream)
      : host(block_bytes(max_tokens, max_samples), {.pinned_for = stream.device()}),
        device(block_bytes(max_tokens, max_samples), {.device = stream.device()}),
        host_tokens({max_samples}, DType::kI32, {.pinned_for = stream.device()}),
        device_tokens({max_samples}, DType::kI32, {.device = stream.device()}),
        done(stream.make_event()) {}

  static std::size_t block_bytes(std::int64_t max_tokens, std::int64_t max_samples) {
    return static_cast<std::size_t>(lay_out(nullptr, max_tokens, max_samples, max_samples).bytes);
  }

  Buffer host;  // staging; written by launch(), read by the copy
  Buffer device;
  StepArrays arrays;  // of the step in this slot, on the device
  Tensor host_tokens, device_tokens;
  std::unique_ptr<Event> done;
  bool in_flight = false;
  bool sampled = false;
  StepWork work;  // of the step in this slot
  StepKind kind;
  StepMeter::Clock::time_point launched;
};

Engine::Engine(std::unique_ptr<Model> model, EngineConfig config)
    : model_(std::move(model)), config_(std::move(config)) {
  const ModelConfig& m = model_->config();
  if (config_.num_threads <= 0) config_.num_threads = available_processors();
  if (!config_.device.is_cpu()) config_.compute = Compute::kExact;  // of products: bf16 as they are
  check(config_.page_size >= 1, "--page-size must be at least 1");
  check(config_.max_running_requests >= 1, "--max-running-requests must be at least 1");
  check(config_.prefill_budget_tokens >= 1, "--max-prefill-length must be at least 1");
  const std::int64_t context =
      config_.max_seq_len > 0 ? config_.max_seq_len : m.max_position_embeddings;
  if (context > m.longest_context())
    throw Error("--max-seq-len-override " + std::to_string(context) +
                " is longer than the model's context of " + std::to_string(m.longest_context()) +
                " tokens");

  if (config_.deterministic && !config_.device.is_cpu()) {
    if (config_.attention_backend == "auto") config_.attention_backend = "ref";
    check(config_.attention_backend == "ref",
          "--deterministic on a GPU needs the attention backend ref, not ",
          config_.attention_backend);
  }
  config_.page_size = supported_page_size(config_.attention_backend, config_.page_size);
  const int ranks = config_.ranks.tensors == nullptr ? 1 : config_.ranks.tensors->size();
  const std::int64_t heads = m.num_heads / ranks;
  const std::int64_t kv_heads = std::max<std::int64_t>(m.num_kv_heads / ranks, 1);
  memory_bytes_ = find_memory();
  if (ranks > 1 && !config_.device.is_cpu())
    watch_ =
        std::make_unique<RankWatch>(*config_.ranks.tensors, config_.step_timeout, config_.fault);
  KvPoolConfig pool{.num_layers = static_cast<std::int32_t>(m.num_layers),
                    .num_kv_heads = static_cast<std::int32_t>(kv_heads),
                    .head_dim = static_cast<std::int32_t>(m.head_dim),
                    .num_pages = 0,
                    .page_size = config_.page_size,
                    .dtype = kv_type(config_, model_->config()),
                    .device = config_.device};
  const KvPlan plan = plan_kv_cache({.bytes_per_page = KvPool::bytes_per_page(pool),
                                     .page_size = config_.page_size,
                                     .max_rows = config_.max_running_requests,
                                     .max_seq_len = static_cast<std::int32_t>(context),
                                     .available_bytes = memory_bytes_,
                                     .memory_ratio = config_.memory_ratio,
                                     .num_pages_override = config_.num_pages});
  limits_ = {.num_pages = plan.num_pages,
             .page_size = config_.page_size,
             .max_rows = config_.max_running_requests,
             .max_seq_len = plan.max_seq_len,
             .max_step_tokens = config_.prefill_budget_tokens + config_.max_running_requests,
             .vocab_size = static_cast<std::int32_t>(m.vocab_size)};
  graph_sizes_ = plan_graphs();
  const std::int32_t graph_rows = graph_sizes_.empty() ? 0 : graph_sizes_.back();
  max_rows_ = std::max(limits_.max_rows, graph_rows);
  max_tokens_ = std::max(limits_.max_step_tokens, graph_rows);

  pool.num_pages = plan.num_pages;
  kv_pool_ = std::make_unique<KvPool>(pool);
  attention_ = make_attention_backend(config_.attention_backend,
                                      {.num_heads = static_cast<std::int32_t>(heads),
                                       .num_kv_heads = static_cast<std::int32_t>(kv_heads),
                                       .head_dim = static_cast<std::int32_t>(m.head_dim),
                                       .scale = static_cast<float>(m.score_scale()),
                                       .page_size = config_.page_size,
                                       .max_seq_len_tokens = limits_.max_seq_len,
                                       .max_rows = max_rows_,
                                       .device = config_.device,
                                       .softcap = static_cast<float>(m.attention_softcap),
                                       .layer_windows = m.layer_windows,
                                       .activations = activation_type(config_, model_->config()),
                                       .kv_dtype = kv_type(config_, model_->config())});
  stream_ = make_stream(config_);
  scratch_ = std::make_unique<ScratchArena>(plan_scratch_bytes(), config_.device);
  logits_ = Tensor({max_rows_, limits_.vocab_size}, DType::kF32,
                   {.device = config_.device, .lazy = true});
  last_tokens_ = Tensor({limits_.max_rows + 1}, DType::kI32, {.device = config_.device});
  for (auto& slot : slots_) slot = std::make_unique<Slot>(max_tokens_, limits_.max_rows, *stream_);
  context_ = std::make_unique<ForwardContext>(
      ForwardContext{.stream = *stream_,
                     .scratch = *scratch_,
                     .attention = *attention_,
                     .kv = kv_pool_->view(),
                     .compute = config_.compute,
                     .activations = activation_type(config_, model_->config()),
                     .ranks = config_.ranks.tensors});
  sampler_ = std::make_unique<Sampler>(
      SamplerConfig{.num_slots = kSlots, .vocab_size = limits_.vocab_size}, *stream_, *scratch_);
  capture_graphs();
  warm_up();
  work_model_ = std::make_unique<StepWorkModel>(m, config_.device.is_cpu() ? m.dtype : DType::kBF16,
                                                kv_type(config_, model_->config()));
}

Engine::~Engine() {
  try {
    const RankWatch::Call call(watch_.get());
    stream_->synchronize();
  } catch (const std::exception& e) {
    log::error("the engine stopped with: {}", e.what());
  }
  // Graphs hold the collectives of other ranks: they go before a communicator does.
  if (graphs_ != nullptr) graphs_->destroy();
}

/// Bytes that this rank may take, by what is free on the rank that has least: a pool of one size
/// has to fit everywhere.
std::int64_t Engine::find_memory() const {
  if (config_.ranks.host == nullptr) return available_memory_bytes(config_.device);
  config_.ranks.host->barrier();  // all have their weights
  return agree_on_memory(available_memory_bytes(config_.device), config_.device, config_.ranks);
}

/// As Event::synchronize(), unless a rank fails.
void Engine::wait_for(Event& event) const {
  if (watch_ == nullptr) return event.synchronize();
  {
    const RankWatch::Call call(watch_.get());
    while (!event.reached()) std::this_thread::yield();
  }
  watch_->check();
}

std::vector<std::int32_t> Engine::plan_graphs() const {
  // Ranks capture the same graphs; one alone looks again at what its pool has left.
  const std::int64_t free_bytes =
      config_.ranks.host == nullptr ? available_memory_bytes(config_.device) : memory_bytes_;
  return graph_batch_sizes({.listed = config_.graph_batch_sizes,
                            .max_batch_size = config_.graph_max_batch_size,
                            .max_rows = limits_.max_rows,
                            .device = config_.device,
                            .free_bytes = free_bytes});
}

void Engine::capture_graphs() {
  if (!wants_graphs(graph_sizes_, *attention_, stream_->device())) return;
  const PageTable table(limits_.max_rows, limits_.max_seq_len, limits_.dummy_loc());
  GraphRunnerConfig runner{.batch_sizes = graph_sizes_,
                           .max_seq_len_tokens = limits_.max_seq_len,
                           .check = config_.check_graphs};
  if constexpr (cuda::kBuilt)
    if (!config_.device.is_cpu()) runner.record = record_cuda_graph;
  graphs_ = std::make_unique<GraphRunner>(
      std::move(runner), *context_, table, logits_,
      [this](ForwardContext& context, TensorView logits) { model_->forward(context, logits); });
}

/// Computes prompts that nobody has asked for, of sizes up to which it takes little time, and draws
/// a token, so that the first requests do not wait until a GPU's kernels are chosen and loaded.
void Engine::warm_up() {
  if (config_.device.is_cpu() || config_.on_logits) return;
  const PageTable table(limits_.max_rows, limits_.max_seq_len, limits_.dummy_loc());
  for (const std::int32_t tokens : {384, 512, 768, 1024, 1536, 2048}) {
    if (tokens > max_tokens_) break;
    Batch batch;
    batch.page_table = &table;
    for (std::int32_t left = tokens; left > 0; left -= batch.rows.back().extend_len()) {
      if (static_cast<std::int32_t>(batch.rows.size()) == limits_.max_rows) return;
      batch.rows.push_back({table.dummy_row(), 0, std::min(left, limits_.max_seq_len)});
    }
    batch.num_rows = static_cast<std::int32_t>(batch.rows.size());
    batch.token_ids.assign(static_cast<std::size_t>(tokens), 0);
    batch.samples = {{.batch_row = 0, .request = {}, .temperature = 1}};
    batch.slot = 0;
    Slot& slot = *slots_[0];
    stage(batch, slot);
    batch.attention = attention_->prepare_metadata(batch, *stream_);
    forward(batch, slot);
    draw(batch, slot);
    wait_for(*slot.done);
  }
}

EngineStats Engine::stats() const {
  EngineStats stats;
  meter_.add_to(stats);
  if (graphs_ != nullptr) stats.graphs = graphs_->stats();
  return stats;
}

int Engine::num_threads() const { return config_.num_threads; }
std::int64_t Engine::kv_pool_bytes() const { return kv_pool_->bytes(); }

/// Runs the largest step on a stream that drops all work and counts what it takes.
std::int64_t Engine::plan_scratch_bytes() {
  const std::unique_ptr<Stream> dry = make_dry_stream(config_);
  ScratchArena counting;
  const PageTable table(limits_.max_rows, limits_.max_seq_len, limits_.dummy_loc());
  Batch largest;
  largest.page_table = &table;
  // One row with the longest context and as many new tokens as fit, then rows of the rest.
  std::int32_t left = max_tokens_;
  while (left > 0 && static_cast<std::int32_t>(largest.rows.size()) < max_rows_) {
    const std::int32_t extend = std::min(left, limits_.max_seq_len);
    largest.rows.push_back({table.dummy_row(), limits_.max_seq_len - extend, limits_.max_seq_len});
    left -= extend;
  }
  largest.num_rows = static_cast<std::int32_t>(largest.rows.size());
  const std::unique_ptr<AttentionMetadata> metadata = attention_->prepare_metadata(largest, *dry);
  const std::int64_t logit_rows = std::max(max_rows_, kScoreChunk);
  const StepArrays arrays = lay_out(nullptr, max_tokens_, logit_rows, 0);
  largest.inputs = {arrays.token_ids, arrays.positions, arrays.out_locs, arrays.logit_rows};
  ForwardContext ctx{.stream = *dry,
                     .scratch = counting,
                     .inputs = &largest.inputs,
                     .attention = *attention_,
                     .metadata = metadata.get(),
                     .kv = kv_pool_->view(),
                     .compute = config_.compute,
                     .activations = activation_type(config_, model_->config()),
                     .ranks = config_.ranks.tensors};
  const TensorView logits(nullptr, {logit_rows, limits_.vocab_size}, DType::kF32);
  model_->forward(ctx, logits);
  const std::int64_t sampling =
      kernels::sampling_workspace_bytes(limits_.max_rows, limits_.vocab_size, config_.device);
  constexpr std::int64_t kAlignment = 64;
  return std::max(counting.peak_bytes(), round_up(sampling, kAlignment));
}

void Engine::launch(Batch& batch) {
  const RankWatch::Call call(watch_.get());
  if (graphs_ != nullptr) graphs_->pad_batch(batch);
#ifndef NDEBUG
  check_padding(batch, limits_.dummy_loc());
#endif
  Slot& slot = *slots_[next_slot_];
  check(!slot.in_flight, "a step was launched while ", kSlots, " were in flight");
  slot.in_flight = true;
  slot.sampled = false;
  slot.work = work_model_->estimate(batch);
  slot.kind = {.decode_rows = batch.is_decode() ? batch.num_rows : 0,
               .graph = graphs_ != nullptr && graphs_->can_use(batch)};
  slot.launched = StepMeter::Clock::now();
  batch.slot = next_slot_;
  next_slot_ = (next_slot_ + 1) % kSlots;
  {
    const cuda::Range range("prepare inputs");
    stage(batch, slot);
    batch.attention = attention_->prepare_metadata(batch, *stream_);
  }
  forward(batch, slot);
  if (batch.sampling_waits) {
    stream_->record(*slot.done);  // for a collect() after a fault
  } else {
    draw(batch, slot);
  }
  if (watch_ != nullptr) watch_->check();
}

void Engine::sample(Batch& batch) {
  check(batch.slot >= 0 && batch.sampling_waits && !slots_[batch.slot]->sampled,
        "sample() of a step that was not launched, or that was sampled");
  const RankWatch::Call call(watch_.get());
  draw(batch, *slots_[batch.slot]);
  if (watch_ != nullptr) watch_->check();
}

/// Turns the rows into the arrays that kernels read and starts their upload.
void Engine::stage(Batch& batch, Slot& slot) {
  const std::int64_t tokens = batch.num_tokens();
  const auto samples = static_cast<std::int64_t>(batch.samples.size());
  check(tokens > 0 && tokens <= max_tokens_ && samples <= limits_.max_rows, "a step of ", tokens,
        " tokens and ", samples, " samples does not fit the plan");
  check(static_cast<std::int64_t>(batch.token_ids.size()) == tokens, "the step has ",
        batch.token_ids.size(), " token ids for ", tokens, " tokens");
  const StepArrays host = lay_out(slot.host.data(), tokens, samples, batch.num_decode);
  slot.arrays = lay_out(slot.device.data(), tokens, samples, batch.num_decode, config_.device);

  std::memcpy(host.token_ids.data, batch.token_ids.data(),
              batch.token_ids.size() * sizeof(TokenId));
  auto* positions = host.positions.as<std::int32_t>();
  auto* out_locs = host.out_locs.as<std::int32_t>();
  auto* logit_rows = host.logit_rows.as<std::int32_t>();
  auto* sample_rows = host.sample_rows.as<std::int32_t>();
  std::int32_t token = 0;
  std::size_t sample = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(batch.rows.size()); ++i) {
    const BatchRow& row = batch.rows[i];
    const std::span<const TokenLoc> locs = batch.page_table->row(row.row);
    for (std::int32_t position = row.cached_len; position < row.device_len; ++position, ++token) {
      positions[token] = position;
      out_locs[token] = locs[position];
    }
    if (i < batch.num_decode) host.decode_rows.as<std::int32_t>()[i] = row.row.value;
    if (sample < batch.samples.size() && batch.samples[sample].batch_row == i) {
      const SampleRow& s = batch.samples[sample];
      logit_rows[sample] = token - 1;
      sample_rows[sample] = row.row.value;
      host.sampling[sample] = {s.temperature, s.top_k, s.top_p,
                               s.min_p,       s.seed,  static_cast<std::uint64_t>(s.position)};
      ++sample;
    }
  }
  check(sample == batch.samples.size(), "samples must be in ascending order of existing rows");
  stream_->copy(slot.device.data(), slot.host.data(), static_cast<std::size_t>(host.bytes));
  batch.inputs = {slot.arrays.token_ids, slot.arrays.positions, slot.arrays.out_locs,
                  slot.arrays.logit_rows};
}

void Engine::forward(Batch& batch, Slot& slot) {
  const bool replays = graphs_ != nullptr && graphs_->can_use(batch);
  const cuda::Range range(replays             ? "replay graph"
                          : batch.is_decode() ? "decode, no graph"
                                              : "prefill");
  const ScoredTokens* scored = sampler_->score(batch, batch.slot);
  stream_->submit([this, &batch, scored, arrays = slot.arrays] {
    // Decode rows come first, one token each: what was drawn for them is on the device only.
    const auto write_input_ids = [&](TensorView ids) {
      if (batch.num_decode > 0) kernels::gather(last_tokens_, arrays.decode_rows, ids, *stream_);
    };
    const ForwardScope scope(*context_, batch.inputs, *batch.attention);
    TensorView logits = logits_.view().slice(0, static_cast<std::int64_t>(batch.samples.size()));
    if (graphs_ != nullptr && graphs_->can_use(batch)) {
      logits = graphs_->replay(batch, write_input_ids);
    } else {
      write_input_ids(batch.inputs.input_ids.slice(0, batch.num_decode));
      context_->scored = scored;
      model_->forward(*context_, logits);
      context_->scored = nullptr;
    }
    if (config_.on_logits) show_logits(batch, logits);
  });
  sampler_->read_scores(batch, batch.slot);
}

void Engine::show_logits(const Batch& batch, TensorView logits) {
  if (config_.device.is_cpu()) {
    config_.on_logits(batch, logits);
    return;
  }
  stream_->synchronize();
  const Tensor copy = copied_to(logits, kCpu);
  config_.on_logits(batch, copy);
}

void Engine::draw(Batch& batch, Slot& slot) {
  const cuda::Range range("sample");
  slot.sampled = true;
  const auto samples = static_cast<std::int64_t>(batch.samples.size());
  if (samples > 0) {
    const TensorView tokens = slot.device_tokens.view().slice(0, samples);
    sampler_->draw(batch, batch.slot,
                   {.logits = logits_.view().slice(0, samples),
                    .rows = slot.arrays.sampling,
                    .tokens = tokens,
                    .last_tokens = last_tokens_,
                    .last_rows = slot.arrays.sample_rows});
    stream_->copy(slot.host_tokens.view().data, tokens.data,
                  static_cast<std::size_t>(tokens.bytes()));
  }
  stream_->record(*slot.done);
}

std::span<const TokenId> Engine::collect(Batch& batch) {
  check(batch.slot >= 0 && slots_[batch.slot]->in_flight,
        "collect() of a step that was not launched");
  Slot& slot = *slots_[batch.slot];
  const cuda::Range range("collect");
  wait_for(*slot.done);
  const StepMeter::Clock::time_point end = StepMeter::Clock::now();
  meter_.record(slot.work, slot.launched, end);
  group_meter_.record(slot.kind, slot.work, slot.launched, end);
  check(slot.sampled, "collect() of a step whose tokens were not drawn");
  const std::span<const TokenId> tokens{slot.host_tokens.view().as<TokenId>(),
                                        batch.samples.size()};
  sampler_->collect(batch, batch.slot, tokens);
  slot.in_flight = false;
  batch.slot = -1;
  batch.attention.reset();
  return tokens;
}

std::vector<double> Engine::token_logprobs(std::span<const TokenId> tokens) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  if (count > limits_.max_seq_len)
    throw RequestError("the text has " + std::to_string(count) +
                       " tokens, but one window holds only " + std::to_string(limits_.max_seq_len));
  PageTable table(limits_.max_rows, limits_.max_seq_len, limits_.dummy_loc());
  const RowId row{0};
  for (std::int64_t i = 0; i < count; ++i) table.row(row)[i] = static_cast<TokenLoc>(i);
  const std::int64_t vocab = limits_.vocab_size;
  const std::int64_t chunk = std::min(config_.prefill_budget_tokens, kScoreChunk);
  const Tensor logits({chunk, vocab}, DType::kF32, {.device = config_.device});
  std::vector<double> result;
  for (std::int64_t begin = 0; begin + 1 < count; begin += chunk) {
    const std::int64_t end = std::min(begin + chunk, count - 1);
    Batch batch;
    batch.page_table = &table;
    batch.rows = {{row, static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end)}};
    batch.num_rows = 1;
    batch.token_ids.assign(tokens.begin() + begin, tokens.begin() + end);
    Slot& slot = *slots_[0];
    stage(batch, slot);
    batch.attention = attention_->prepare_metadata(batch, *stream_);
    const Tensor rows({end - begin}, DType::kI32);
    for (std::int64_t i = 0; i < end - begin; ++i)
      rows.view().as<std::int32_t>()[i] = static_cast<std::int32_t>(i);
    const Tensor device_rows = copied_to(rows, config_.device);
    batch.inputs.logit_rows = device_rows;
    const TensorView out = logits.view().slice(0, end - begin);
    stream_->submit([&] {
      const ForwardScope scope(*context_, batch.inputs, *batch.attention);
      model_->forward(*context_, out);
    });
    stream_->synchronize();
    const Tensor host = copied_to(out, kCpu);
    for (std::int64_t i = 0; i < end - begin; ++i)
      result.push_back(
          log_probability(host.view().as<float>() + i * vocab, vocab, tokens[begin + i + 1]));
  }
  return result;
}

}  // namespace minisgl

#include "llm/local_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "base/log.h"
#include "base/progress.h"
#include "chat/reasoning_splitter.h"
#include "hub/cache.h"
#include "kernels/simd.h"
#include "tensor/cuda/device.h"

namespace minisgl {
namespace {

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

Compute compute_named(const std::string& name) {
  if (name == "exact") return Compute::kExact;
  if (name == "bf16") return Compute::kBf16;
  throw Error("compute \"" + name + "\" is not known; there are exact, bf16");
}

/// Throws Error if there is no such device.
Device device_of(const LlmOptions& options) {
  int gpus = 0;
  std::string why = "this build has no code for GPUs";
  if constexpr (cuda::kBuilt) {
    if (options.device != "cpu") gpus = cuda::num_devices();
    why = std::to_string(gpus) + " GPUs found" + (gpus > 0 ? "" : ", " + cuda::why_no_devices());
  }
  if (options.device == "cpu" || (options.device == "auto" && gpus == 0)) return kCpu;
  if (gpus > 0 && (options.device == "auto" || options.device == "cuda")) return kGpu;
  for (int i = 0; i < gpus; ++i)
    if (options.device == "cuda:" + std::to_string(i))
      return {DeviceKind::kCuda, static_cast<std::int8_t>(i)};
  if (!options.device.starts_with("cuda"))
    throw Error("--device \"" + options.device +
                "\" is not known; it is auto, cpu, cuda or cuda:N");
  throw Error("--device " + options.device + " is not there: " + why);
}

/// With what this rank's place decides: its GPU, its share of the host's processors.
LlmOptions for_rank(LlmOptions options, const RankSetup& ranks) {
  if (ranks.group == nullptr) return options;
  if (options.device.starts_with("cuda:"))
    throw Error("--device " + options.device +
                " is one GPU: with several ranks say cuda, and name GPUs in CUDA_VISIBLE_DEVICES");
  if (options.num_threads == 0)
    options.num_threads = std::max(1, available_processors() / ranks.group->links().sharing_host);
  if constexpr (cuda::kBuilt) {
    if (!device_of(options).is_cpu())
      options.device = "cuda:" + std::to_string(ranks.group->rank_on_host() % cuda::num_devices());
  }
  return options;
}

/// With what the device decides where `options` leave it open.
LlmOptions with_device_defaults(LlmOptions options) {
  const bool cpu = device_of(options).is_cpu();
  if (options.page_size == 0) options.page_size = cpu ? 1 : 64;
  if (options.max_prefill_length == 0) options.max_prefill_length = cpu ? 256 : 8192;
  return options;
}

/// "auto" is none.
std::optional<DType> kv_cache_dtype_named(const std::string& name) {
  if (name == "fp8_e4m3") return DType::kF8E4M3;
  if (name == "auto") return std::nullopt;
  throw Error("KV cache dtype \"" + name + "\" is not known; there are auto, fp8_e4m3");
}

EngineConfig engine_config(const LlmOptions& options) {
  return {.device = device_of(options),
          .num_threads = options.num_threads > 0 ? options.num_threads : available_processors(),
          .compute = compute_named(options.compute),
          .attention_backend = options.attention_backend,
          .page_size = options.page_size,
          .num_pages = options.num_pages,
          .kv_cache_dtype = kv_cache_dtype_named(options.kv_cache_dtype),
          .memory_ratio = options.memory_ratio,
          .max_running_requests = options.max_running_requests,
          .max_seq_len = options.max_seq_len,
          .prefill_budget_tokens = options.max_prefill_length,
          .graph_max_batch_size = options.graph_max_batch_size,
          .graph_batch_sizes = options.graph_batch_sizes,
          .deterministic = options.deterministic,
          .check_graphs = options.check_graphs,
          .on_logits = {}};
}

/// "temperature 0.6, top_k 20"; "" when there is no advice.
std::string describe(const SamplingDefaults& defaults) {
  std::string text;
  const auto add = [&text](const char* name, const auto& value) {
    if (value) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
  };
  add("temperature", defaults.temperature);
  add("top_k", defaults.top_k);
  add("top_p", defaults.top_p);
  add("min_p", defaults.min_p);
  return text;
}

/// "auto" is none.
std::optional<DType> dtype_named(const std::string& name) {
  if (name == "float32") return DType::kF32;
  if (name == "float16") return DType::kF16;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "auto") return std::nullopt;
  throw Error("dtype \"" + name + "\" is not known; there are auto, float32, float16, bfloat16");
}

/// Threads that compile a response format: few, as the others compute answers meanwhile.
int grammar_threads(int num_processors) { return std::clamp(num_processors / 4, 1, 8); }

/// The name of a file without its extension, or of a folder; a hub's name of a model as it is.
std::string default_name(const std::string& model) {
  if (!std::filesystem::exists(model) && hub::parse_model_name(model)) return model;
  const std::filesystem::path path = model;
  const std::filesystem::path normal = std::filesystem::absolute(path).lexically_normal();
  const std::filesystem::path last =
      normal.filename().empty() ? normal.parent_path().filename() : normal.filename();
  return last.extension() == ".gguf" ? last.stem().string() : last.string();
}

}  // namespace

ChatOptions chat_options(const LlmOptions& options) {
  return {.chat_template = options.chat_template,
          .default_kwargs = parse_template_kwargs(options.default_chat_template_kwargs),
          .parse_special_in_messages = options.parse_special_in_messages};
}

std::unique_ptr<Engine> open_engine(const LlmOptions& given, const RankSetup& ranks) {
  const LlmOptions options = with_device_defaults(for_rank(given, ranks));
  const auto start = std::chrono::steady_clock::now();
  kernels::set_simd(options.simd);
  EngineConfig config = engine_config(options);
  if constexpr (cuda::kBuilt) cuda::make_current(config.device);
  const std::filesystem::path path = hub::find_model(options.model);
  layers::Shard shard;
  if (ranks.group != nullptr) {
    ranks.group->connect_devices(config.device);
    config.ranks = ranks.group->links();
    config.step_timeout = ranks.group->timeout();
    config.fault = ranks.fault;
    shard = {ranks.group->rank(), ranks.group->size()};
  }
  std::unique_ptr<Model> model;
  {
    ProgressBar bar("Loading weights");
    model =
        load_model(path, {.num_threads = config.num_threads,
                          .max_seq_len = config.max_seq_len,
                          .shard = shard,
                          .device = config.device,
                          .dtype = dtype_named(options.dtype),
                          .dummy_weights = options.dummy_weights,
                          .on_progress = [&](std::int64_t done, std::int64_t total) {
                            if (ranks.group != nullptr)
                              if (const std::string fault = ranks.group->fault(); !fault.empty())
                                throw Error(fault);
                            if (shard.rank == 0) bar.update(done, total);
                          }});
  }
  auto engine = std::make_unique<Engine>(std::move(model), config);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const ModelConfig& m = engine->model().config();
  const ExecutorLimits& limits = engine->limits();
  log::info(
      "Loaded {} in {:.2f} s: {} layers, hidden size {}, {} query and {} KV heads of {}, "
      "vocabulary {}",
      default_name(options.model), seconds.count(), m.num_layers, m.hidden_size, m.num_heads,
      m.num_kv_heads, m.head_dim, m.vocab_size);
  const std::string ranks_of = shard.world > 1 ? std::to_string(shard.world) + " ranks of " : "";
  if constexpr (cuda::kBuilt)
    if (!config.device.is_cpu())
      log::info("Compute: {}{} on {}, {}, attention backend {}", ranks_of, name(m.gpu_dtype),
                to_string(config.device), cuda::properties(config.device).name,
                engine->attention_backend());
  if (config.device.is_cpu())
    log::info("Compute: {}, {}{} {}, {} kernels, attention backend {}",
              config.compute == Compute::kBf16 ? "bf16" : "exact (f32)", ranks_of,
              config.num_threads, config.num_threads == 1 ? "thread" : "threads",
              name(kernels::active_simd()), engine->attention_backend());
  const std::string pool_size = fmt::format("{:.2f} GiB", gib(engine->kv_pool_bytes()));
  log::info(
      "KV cache: {} pages of {} {} = {} tokens of {}, {}; context {} tokens, {} requests at once",
      limits.num_pages, limits.page_size, limits.page_size == 1 ? "token" : "tokens",
      static_cast<std::int64_t>(limits.num_pages) * limits.page_size,
      name(engine->kv().first.dtype),
      // A CPU's pages take memory when they are first written.
      config.device.is_cpu() ? "up to " + pool_size + ", taken as it fills" : pool_size,
      limits.max_seq_len, limits.max_rows);
  return engine;
}

LocalGenerator::LocalGenerator(const LlmOptions& given, const RankSetup& ranks)
    : name_(given.served_model_name.empty() ? default_name(given.model) : given.served_model_name),
      path_(given.model) {
  const LlmOptions options = with_device_defaults(given);
  load(options, ranks);
  if (options.generation_config == "auto") sampling_defaults_ = engine_->model().config().sampling;
  if (const std::string text = describe(sampling_defaults_); !text.empty())
    log::info("Sampling unless asked otherwise (generation_config.json): {}", text);
  std::vector<TokenId> eos_ids = engine_->model().config().eos_token_ids;
  if (tokenizer_ != nullptr) {
    const std::vector<TokenId> more = tokenizer_->eos_ids();
    eos_ids.insert(eos_ids.end(), more.begin(), more.end());
  }
  std::sort(eos_ids.begin(), eos_ids.end());
  eos_ids.erase(std::unique(eos_ids.begin(), eos_ids.end()), eos_ids.end());
  if (ranks.group != nullptr) {
    RankTurns::Options turns{.make_constraint = [this](const NewRequest& request) {
      return make_constraint(request.sampling.response_format,
                             static_cast<ReasoningStart>(request.constraint_start));
    }};
    turns.compare_batches |= ranks.compare_batches;
    turns.idle_interval = std::min(turns.idle_interval, ranks.group->timeout() / 2);
    turns_ = std::make_unique<RankTurns>(*ranks.group->links().host, std::move(turns));
  }
  start({.prefill_budget_tokens = options.max_prefill_length,
         .prefix_cache = options.cache_type,
         .overlap = options.overlap,
         .eos_ids = std::move(eos_ids),
         .check_integrity = true,
         .ranks = turns_.get()});
  log::info("Scheduler: prompts in steps of {} tokens, {} prefix cache, overlap {}",
            options.max_prefill_length, options.cache_type, options.overlap ? "on" : "off");
}

LocalGenerator::LocalGenerator(std::string name, std::unique_ptr<Executor> executor,
                               std::unique_ptr<Tokenizer> tokenizer, SchedulerConfig config)
    : name_(std::move(name)),
      path_(name_),
      tokenizer_(std::move(tokenizer)),
      executor_(std::move(executor)) {
  if (tokenizer_ == nullptr)
    tokenizer_error_ = "it has no tokenizer";
  else if (!tokenizer_->chat_template().empty())
    chat_renderer_ = std::make_unique<ChatRenderer>(*tokenizer_, ChatOptions{});
  start(std::move(config));
}

void LocalGenerator::start(SchedulerConfig config) {
  if (chat_dialect_.reasoning && Grammars::built()) {
    reasoning_tokens_ = ReasoningTokens::of(*tokenizer_, vocab_size(), config.eos_ids,
                                            kReasoningBegin, kReasoningEnd);
    chat_dialect_.reasoning_before_formats = reasoning_tokens_ != nullptr;
  }
  if (tokenizer_ != nullptr)
    grammars_ = std::make_unique<Grammars>(
        *tokenizer_, Grammars::Options{.vocab_size = vocab_size(),
                                       .end_ids = config.eos_ids,
                                       .num_threads = grammar_threads(available_processors())});
  scheduler_ =
      std::make_unique<Scheduler>(*executor_, std::move(config),
                                  [this](std::span<const TokenEvent> events) { deliver(events); });
  thread_ = std::thread([this] { run(); });
}

void LocalGenerator::load(const LlmOptions& options, const RankSetup& ranks) {
  // Errors in these come before minutes of loading.
  const ChatOptions chat = chat_options(options);
  const DialectOptions dialect{.tool_call_parser = options.tool_call_parser,
                               .reasoning_parser = options.reasoning_parser};
  choose_dialect("", dialect);
  // The vocabulary is read while the weights are repacked.
  const std::filesystem::path path = hub::find_model(options.model);
  auto tokenizer = std::async(std::launch::async, [&] { return load_tokenizer(path); });
  auto engine = open_engine(options, ranks);
  engine_ = engine.get();
  executor_ = std::move(engine);
  try {
    tokenizer_ = tokenizer.get();
  } catch (const Error& e) {
    tokenizer_error_ = e.what();
    log::warning("Only token ids can be served: {}", tokenizer_error_);
    return;
  }
  if (tokenizer_->chat_template().empty() && options.chat_template.empty()) return;
  try {
    chat_renderer_ = std::make_unique<ChatRenderer>(*tokenizer_, chat);
    chat_dialect_ = choose_dialect(chat_renderer_->tool_source(), dialect);
    log::info("Chats: tool calls as {}, reasoning {}", name(chat_dialect_.calls),
              chat_dialect_.reasoning ? "between <think> and </think>" : "not looked for");
  } catch (const Error& e) {
    if (!options.chat_template.empty()) throw;  // what was asked for must work
    log::warning("No chats can be served: the model's chat template cannot be used: {}", e.what());
  }
}

LocalGenerator::~LocalGenerator() { stop(); }

void LocalGenerator::stop() {
  scheduler_->stop();
  if (thread_.joinable()) thread_.join();
}

void LocalGenerator::wait() { thread_.join(); }

void LocalGenerator::run() {
  try {
    if constexpr (cuda::kBuilt)
      if (engine_ != nullptr) cuda::make_current(engine_->device());
    scheduler_->run();
  } catch (const std::exception& e) {
    log::error("The engine has failed: {}", e.what());
    const std::lock_guard lock(mutex_);
    fault_ = e.what();
  }
}

std::string LocalGenerator::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

const Tokenizer& LocalGenerator::tokenizer() const {
  if (tokenizer_ == nullptr)
    throw RequestError("this model serves token ids only: " + tokenizer_error_, "prompt");
  return *tokenizer_;
}

MarkedText LocalGenerator::render_chat(const nlohmann::ordered_json& messages,
                                       const nlohmann::ordered_json& tools,
                                       const nlohmann::ordered_json& kwargs,
                                       bool add_generation_prompt) const {
  tokenizer();  // throws when there is none
  if (chat_renderer_ == nullptr)
    throw RequestError(
        "the model has no chat template that can be used; send a prompt to /v1/completions instead",
        "messages");
  return chat_renderer_->render(messages, tools, kwargs, add_generation_prompt);
}

std::vector<TokenId> LocalGenerator::encode(const decltype(GenerateRequest::prompt)& prompt,
                                            bool add_special) const {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&prompt)) return *ids;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    std::vector<TokenId> ids = tokenizer().encode(*text, {.add_special = add_special});
    const std::string bos = tokenizer().bos_token();
    if (!bos.empty() && text->starts_with(bos) && ids.size() > 1 && ids[0] == ids[1] &&
        !warned_of_two_bos_.exchange(true))
      log::warning(
          "A prompt begins with {}, which the tokenizer adds as well: it has two of them. Leave it "
          "out of prompts (said once)",
          bos);
    return ids;
  }
  return tokenizer().encode(std::get<MarkedText>(prompt));
}

/// Every rank makes it of the same request.
std::unique_ptr<TokenConstraint> LocalGenerator::make_constraint(const ResponseFormat& format,
                                                                 ReasoningStart reasoning) const {
  tokenizer();  // throws when there is none
  std::unique_ptr<TokenConstraint> constraint = grammars_->constraint(format);
  if (reasoning == ReasoningStart::kOver || reasoning_tokens_ == nullptr) return constraint;
  return std::make_unique<ReasoningGate>(std::move(constraint), reasoning_tokens_,
                                         /*in_reasoning=*/reasoning == ReasoningStart::kBegun);
}

/// Gives `work` what follows its response format.
void LocalGenerator::constrain(NewRequest& work, ReasoningStart reasoning) const {
  if (work.sampling.response_format.kind == ResponseFormat::Kind::kText) return;
  work.constraint = make_constraint(work.sampling.response_format, reasoning);
  work.constraint_start = static_cast<std::int32_t>(reasoning);
  work.sampling.min_tokens = 0;  // the format alone says where an answer may end
}

RequestId LocalGenerator::submit(GenerateRequest request,
                                 std::function<void(GenerateUpdate)> on_update) {
  NewRequest work{.id = {}, .prompt = {}, .sampling = request.sampling};
  try {
    work.prompt = encode(request.prompt, /*add_special=*/true);
    if (work.sampling.max_tokens < 0)
      work.sampling.max_tokens =
          std::max<std::int64_t>(1, max_seq_len() - static_cast<std::int64_t>(work.prompt.size()));
    constrain(work, request.reasoning);
    scheduler_->validate(work);
  } catch (const RequestError& e) {
    if (e.param() != "prompt" || request.param == "prompt") throw;
    throw RequestError(e.what(), request.param, e.code());
  }
  const SamplingParams& sampling = request.sampling;
  auto answer =
      std::make_shared<Answer>(Answer{.on_update = std::move(on_update),
                                      .detokenizer = std::nullopt,
                                      .stop = StopMatcher(sampling.stop),
                                      .min_tokens = sampling.min_tokens,
                                      .includes_stop_text = sampling.include_stop_str_in_output,
                                      .prompt_tokens = static_cast<int>(work.prompt.size())});
  answer->awaits_prompt_logprobs = sampling.prompt_logprobs.has_value();
  if (tokenizer_ != nullptr) answer->detokenizer.emplace(*tokenizer_, sampling.skip_special_tokens);
  {
    const std::lock_guard lock(mutex_);
    work.id = {next_id_++};
    answers_.emplace(work.id, std::move(answer));
  }
  const RequestId id = work.id;
  scheduler_->submit(std::move(work));
  return id;
}

void LocalGenerator::abort(RequestId id) { scheduler_->abort(id); }

void LocalGenerator::deliver(std::span<const TokenEvent> events) {
  for (const TokenEvent& event : events) {
    std::shared_ptr<Answer> answer;
    {
      const std::lock_guard lock(mutex_);
      const auto found = answers_.find(event.request);
      if (found == answers_.end()) continue;  // ended by a stop string a step ago
      answer = found->second;
    }
    GenerateUpdate update = advance(*answer, event);
    if (update.finish != FinishReason::kNone) {
      const std::lock_guard lock(mutex_);
      answers_.erase(event.request);
    }
    if (update.finish == FinishReason::kStop && event.finish == FinishReason::kNone)
      scheduler_->abort(event.request);
    answer->on_update(std::move(update));
  }
}

/// The text that `event` adds to the answer; what may be part of a stop text is held back.
std::string LocalGenerator::text_of(Answer& answer, const TokenEvent& event) {
  if (!answer.detokenizer || answer.stop.stopped()) return "";
  const auto pass = [&answer](const std::string& text) {
    return answer.completion_tokens > answer.min_tokens ? answer.stop.push(text) : text;
  };
  std::string text;
  if (event.has_token && !event.is_end_token) text = pass(answer.detokenizer->push(event.token));
  if (event.finish != FinishReason::kNone && !answer.stop.stopped()) {
    text += pass(answer.detokenizer->flush());
    text += answer.stop.flush();
  }
  if (answer.includes_stop_text) text += answer.stop.found();
  return text;
}

TextLogprobs LocalGenerator::to_text(const PositionLogprobs& position) const {
  const auto convert = [this](const TokenLogprob& from) {
    TextLogprob to{.token = from.token, .logprob = from.logprob};
    if (tokenizer_ != nullptr) to.bytes = tokenizer_->token_bytes(from.token);
    return to;
  };
  TextLogprobs result{.chosen = convert(position.chosen)};
  for (const TokenLogprob& entry : position.top) result.top.push_back(convert(entry));
  return result;
}

void LocalGenerator::add_logprobs(Answer& answer, const TokenEvent& event,
                                  GenerateUpdate& update) const {
  if (event.logprobs) {
    update.logprobs.push_back(to_text(*event.logprobs));
    answer.cumulative_logprob += event.logprobs->chosen.logprob;
  }
  update.cumulative_logprob = answer.cumulative_logprob;
  const bool prompt_is_done = event.has_token || event.finish == FinishReason::kLength;
  if (!answer.awaits_prompt_logprobs || !prompt_is_done) return;
  update.prompt_logprobs.emplace_back();  // nothing stands before the first token
  for (const PositionLogprobs& position : event.prompt_logprobs)
    update.prompt_logprobs.emplace_back(to_text(position));
  answer.awaits_prompt_logprobs = false;
}

/// What `event` adds to the answer.
GenerateUpdate LocalGenerator::advance(Answer& answer, const TokenEvent& event) const {
  GenerateUpdate update;
  update.finish = event.finish;
  update.error = event.error;
  update.times = event.times;
  answer.cached_tokens = event.cached_tokens;
  if (event.has_token) {
    update.tokens.push_back(event.token);
    ++answer.completion_tokens;
  }
  update.text = text_of(answer, event);
  add_logprobs(answer, event, update);
  if (answer.stop.stopped()) {
    update.finish = FinishReason::kStop;
    update.stop_reason = answer.stop.found();
  } else if (event.is_end_token) {
    update.stop_reason = event.token;
  }
  update.prompt_tokens = answer.prompt_tokens;
  update.cached_tokens = answer.cached_tokens;
  update.completion_tokens = answer.completion_tokens;
  return update;
}

}  // namespace minisgl

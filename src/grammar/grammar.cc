#include "grammar/grammar.h"

#include <fmt/format.h>

#include "minisgl/error.h"

#if MINISGL_HAS_GRAMMAR
#include <xgrammar/compiler.h>
#include <xgrammar/matcher.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/log.h"
#include "grammar/format_text.h"
#include "grammar/grammar_cache.h"
#include "grammar/utf8_guard.h"
#include "grammar/xgrammar/pattern.h"
#include "grammar/xgrammar/warnings.h"
#endif

namespace minisgl {

#if MINISGL_HAS_GRAMMAR
namespace {

/// Longer ones are refused: nothing that people write is.
constexpr std::size_t kMaxTextBytes = std::size_t{256} << 10;

/// The first line of what xgrammar says.
std::string first_line(std::string text) {
  text.erase(std::min(text.find('\n'), text.size()));
  return text;
}

/// What all formats of a vocabulary share.
struct Vocabulary {
  Utf8Guard guard;
  std::vector<std::string> tokens;  ///< by id; empty: never drawn
  std::vector<TokenId> end_ids;
};

class Matcher final : public TokenConstraint {
 public:
  /// Without ids that end an answer it ends with its grammar.
  Matcher(const xgrammar::CompiledGrammar& grammar, std::shared_ptr<const Vocabulary> vocabulary,
          std::int32_t vocab_size)
      : matcher_(grammar, std::nullopt,
                 /*terminate_without_stop_token=*/vocabulary->end_ids.empty()),
        vocabulary_(std::move(vocabulary)),
        vocab_size_(vocab_size) {}

  bool fill(std::span<std::int32_t> mask) override {
    if (matcher_.IsTerminated()) return false;
    auto size = static_cast<std::int64_t>(mask.size());
    DLTensor tensor{.data = mask.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = {kDLInt, 32, 1},
                    .shape = &size,
                    .strides = nullptr,
                    .byte_offset = 0};
    try {
      if (!matcher_.FillNextTokenBitmask(&tensor) && !Utf8Guard::applies(last_byte_)) return false;
    } catch (const std::exception& e) {
      log::error("A mask of constrained output could not be made: {}", first_line(e.what()));
      std::fill(mask.begin(), mask.end(), 0);  // ends this request and no other
      return true;
    }
    vocabulary_->guard.apply(last_byte_, mask);
    if (const int bits = vocab_size_ % 32; bits != 0)
      mask.back() &= static_cast<std::int32_t>((std::uint32_t{1} << bits) - 1);
    return true;
  }

  bool accept(TokenId token) override {
    try {
      if (matcher_.IsTerminated() || !matcher_.AcceptToken(token)) return false;
    } catch (const std::exception& e) {
      log::error("Constrained output failed at token {}: {}", token, first_line(e.what()));
      return false;
    }
    const auto id = static_cast<std::size_t>(token);
    if (id < vocabulary_->tokens.size() && !vocabulary_->tokens[id].empty())
      last_byte_ = static_cast<unsigned char>(vocabulary_->tokens[id].back());
    return true;
  }

  bool finished() const override { return matcher_.IsTerminated(); }

 private:
  xgrammar::GrammarMatcher matcher_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::int32_t vocab_size_;
  unsigned char last_byte_ = 0;  // of the answer so far
};

}  // namespace

class Grammars::Impl {
 public:
  Impl(const Tokenizer& tokenizer, Options options)
      : tokenizer_(tokenizer), options_(std::move(options)), cache_(options_.cache_bytes) {}

  std::unique_ptr<TokenConstraint> constraint(const ResponseFormat& format) {
    if (format.text.size() > kMaxTextBytes)
      throw RequestError(fmt::format("response_format: the text has {} bytes; at most {} are taken",
                                     format.text.size(), kMaxTextBytes),
                         "response_format");
    const std::string key = std::to_string(static_cast<int>(format.kind)) + ' ' + format.text;
    const auto grammar = cache_.get(key, [&] {
      auto compiled = std::make_shared<const xgrammar::CompiledGrammar>(compile(format));
      const auto bytes = static_cast<std::int64_t>(compiled->MemorySizeBytes() + key.size());
      return Cache::Made{std::move(compiled), bytes};
    });
    return std::make_unique<Matcher>(*grammar, vocabulary_, options_.vocab_size);
  }

  std::int64_t cached_bytes() const { return cache_.bytes(); }

 private:
  using Cache = GrammarCache<xgrammar::CompiledGrammar>;

  /// Made by the first request: sorting a vocabulary of 150,000 tokens takes a tenth of a second.
  xgrammar::GrammarCompiler& compiler() {
    const std::lock_guard lock(mutex_);
    if (compiler_) return *compiler_;
    const std::int32_t size = std::min(tokenizer_.vocab_size(), options_.vocab_size);
    auto vocabulary = std::make_shared<Vocabulary>();
    vocabulary->tokens.resize(static_cast<std::size_t>(size));
    for (std::int32_t id = 0; id < size; ++id) {
      const std::string_view bytes = tokenizer_.token_bytes(id);
      if (tokenizer_.is_special(id) || Utf8Guard::is_ill_formed(bytes)) continue;
      vocabulary->tokens[static_cast<std::size_t>(id)] = bytes;
      vocabulary->guard.add(id, bytes);
    }
    for (const TokenId id : options_.end_ids)
      if (id >= 0 && id < size) vocabulary->end_ids.push_back(id);
    const xgrammar::TokenizerInfo info(vocabulary->tokens, xgrammar::VocabType::RAW,
                                       options_.vocab_size, vocabulary->end_ids);
    vocabulary_ = std::move(vocabulary);
    compiler_.emplace(info, options_.num_threads, /*cache_enabled=*/false);
    return *compiler_;
  }

  xgrammar::CompiledGrammar compile(const ResponseFormat& format) {
    try {
      xgrammar::GrammarCompiler& compiler = this->compiler();
      const XgrammarWarnings warnings;
      xgrammar::CompiledGrammar compiled = compile(compiler, format);
      if (warnings.first().empty()) return compiled;
      throw RequestError("response_format: " + first_line(warnings.first()), "response_format",
                         "unsupported_schema");
    } catch (const RequestError&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw RequestError("response_format: too large", "response_format");
    } catch (const std::exception& e) {
      throw RequestError("response_format: " + first_line(e.what()), "response_format");
    }
  }

  static xgrammar::CompiledGrammar compile(xgrammar::GrammarCompiler& compiler,
                                           const ResponseFormat& format) {
    using Kind = ResponseFormat::Kind;
    switch (format.kind) {
      case Kind::kText: break;
      case Kind::kJsonObject:
      case Kind::kJsonSchema:
        return compiler.CompileJSONSchema(schema_text(format, json_pattern_error),
                                          /*any_whitespace=*/false);
      case Kind::kRegex: return compiler.CompileRegex(format.text);
      case Kind::kGrammar: return compiler.CompileGrammar(format.text);
      case Kind::kChoice: return compiler.CompileGrammar(choice_grammar(format));
      case Kind::kStructuralTag:
        return compiler.CompileStructuralTag(structural_tag_text(format, json_pattern_error));
    }
    throw Error("text needs no constraint");
  }

  const Tokenizer& tokenizer_;
  const Options options_;
  std::mutex mutex_;  // guards the making of the next two
  std::optional<xgrammar::GrammarCompiler> compiler_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  Cache cache_;
};

Grammars::Grammars(const Tokenizer& tokenizer, Options options)
    : impl_(std::make_unique<Impl>(tokenizer, std::move(options))) {}

std::unique_ptr<TokenConstraint> Grammars::constraint(const ResponseFormat& format) {
  return impl_->constraint(format);
}

bool Grammars::built() { return true; }

std::int64_t Grammars::cached_bytes() const { return impl_->cached_bytes(); }

#else

class Grammars::Impl {};

Grammars::Grammars(const Tokenizer& /*tokenizer*/, Options /*options*/) {}

std::unique_ptr<TokenConstraint> Grammars::constraint(const ResponseFormat& /*format*/) {
  throw RequestError(
      "response_format: this build has no constrained output (MINISGL_GRAMMAR is off)",
      "response_format", "unsupported_parameter");
}

bool Grammars::built() { return false; }

std::int64_t Grammars::cached_bytes() const { return 0; }

#endif

Grammars::~Grammars() = default;

}  // namespace minisgl

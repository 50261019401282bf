#include "scheduler/rank_messages.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "minisgl/error.h"

namespace minisgl {
namespace {

/// Appends values to bytes, as they lie in memory: all ranks are the same program.
class Writer {
 public:
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void field(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), bytes, bytes + sizeof(T));
  }
  void field(const std::string& text) {
    field(text.size());
    const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
    out_.insert(out_.end(), bytes, bytes + text.size());
  }
  template <class T>
  void field(const std::vector<T>& values) {
    field(values.size());
    for (const T& value : values) field(value);
  }
  template <class T>
  void field(const std::optional<T>& value) {
    field(value.has_value());
    if (value) field(*value);
  }
  void field(const LogitBias& bias) {
    field(bias.token);
    field(bias.bias);
  }
  Message take() { return std::move(out_); }

 private:
  Message out_;
};

/// Takes them in the same order.
class Reader {
 public:
  explicit Reader(const Message& bytes) : left_(bytes) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  void field(T& value) {
    std::memcpy(&value, next(sizeof(T)).data(), sizeof(T));
  }
  void field(std::string& text) {
    const std::span<const std::byte> bytes = next(size());
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  template <class T>
  void field(std::vector<T>& values) {
    values.resize(size());
    for (T& value : values) field(value);
  }
  template <class T>
  void field(std::optional<T>& value) {
    bool has_value = false;
    field(has_value);
    value.reset();
    if (has_value) field(value.emplace());
  }
  void field(LogitBias& bias) {
    field(bias.token);
    field(bias.bias);
  }
  bool done() const { return left_.empty(); }

 private:
  std::size_t size() {
    std::size_t count = 0;
    field(count);
    if (count > left_.size()) throw Error("a message between ranks is cut off");
    return count;
  }
  std::span<const std::byte> next(std::size_t bytes) {
    if (bytes > left_.size()) throw Error("a message between ranks is cut off");
    const std::span<const std::byte> result = left_.first(bytes);
    left_ = left_.subspan(bytes);
    return result;
  }

  std::span<const std::byte> left_;
};

/// Every field, in one order, for both directions. `archive` is a Writer or a Reader.
template <class Archive, class Params>
void all_fields(Archive& archive, Params& p) {
  archive.field(p.temperature);
  archive.field(p.top_k);
  archive.field(p.top_p);
  archive.field(p.min_p);
  archive.field(p.presence_penalty);
  archive.field(p.frequency_penalty);
  archive.field(p.repetition_penalty);
  archive.field(p.logit_bias);
  archive.field(p.seed);
  archive.field(p.max_tokens);
  archive.field(p.min_tokens);
  archive.field(p.ignore_eos);
  archive.field(p.stop_token_ids);
  archive.field(p.stop);
  archive.field(p.include_stop_str_in_output);
  archive.field(p.skip_special_tokens);
  archive.field(p.num_logprobs);
  archive.field(p.prompt_logprobs);
  archive.field(p.response_format.kind);
  archive.field(p.response_format.text);
}
/// As large as all fields above together. If this fails, a field was added that the other ranks
/// would not hear of.
static_assert(sizeof(SamplingParams) == 232, "add the new field to all_fields()");

enum class Kind : std::uint8_t { kRequest, kAbort, kFlush };

void write(Writer& writer, const SchedulerMessage& message) {
  if (const auto* request = std::get_if<NewRequest>(&message)) {
    writer.field(Kind::kRequest);
    writer.field(request->id.value);
    writer.field(request->prompt);
    all_fields(writer, request->sampling);
    writer.field(request->constraint_start);
    writer.field(request->constraint != nullptr);
  } else if (const auto* abort = std::get_if<AbortRequest>(&message)) {
    writer.field(Kind::kAbort);
    writer.field(abort->id.value);
  } else {
    writer.field(Kind::kFlush);
  }
}

SchedulerMessage read(Reader& reader, const MakeConstraint& make_constraint) {
  Kind kind{};
  reader.field(kind);
  if (kind == Kind::kFlush) return FlushRequest{};
  RequestId id{};
  reader.field(id.value);
  if (kind == Kind::kAbort) return AbortRequest{id};
  if (kind != Kind::kRequest) throw Error("a message between ranks is of no known kind");
  NewRequest request{.id = id, .prompt = {}, .sampling = {}};
  reader.field(request.prompt);
  all_fields(reader, request.sampling);
  reader.field(request.constraint_start);
  bool is_constrained = false;
  reader.field(is_constrained);
  if (is_constrained) request.constraint = make_constraint(request);
  return request;
}

}  // namespace

Message encode_turn(const RankTurn& turn) {
  Writer writer;
  writer.field(turn.stopping);
  writer.field(turn.roll_call);
  writer.field(turn.messages.size());
  for (const SchedulerMessage& message : turn.messages) write(writer, message);
  return writer.take();
}

RankTurn decode_turn(const Message& bytes, const MakeConstraint& make_constraint) {
  Reader reader(bytes);
  RankTurn turn;
  std::size_t count = 0;
  reader.field(turn.stopping);
  reader.field(turn.roll_call);
  reader.field(count);
  for (std::size_t i = 0; i < count; ++i) turn.messages.push_back(read(reader, make_constraint));
  if (!reader.done()) throw Error("a message between ranks is longer than it says");
  return turn;
}

}  // namespace minisgl

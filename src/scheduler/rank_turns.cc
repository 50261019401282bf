#include "scheduler/rank_turns.h"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "base/log.h"
#include "kernels/simd.h"
#include "minisgl/error.h"

namespace minisgl {
namespace {

Message message_of(const std::string& text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}
std::string text_of(const Message& message) {
  return {reinterpret_cast<const char*>(message.data()), message.size()};
}

/// FNV-1a.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3U;
  return hash;
}

Message message_of(std::uint64_t number) {
  Message message(sizeof(number));
  std::memcpy(message.data(), &number, sizeof(number));
  return message;
}

}  // namespace

std::uint64_t RankTurns::agree(const std::string& settings, std::uint64_t seed) {
  const std::vector<Message> all = host_.all_gather(message_of(settings));
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error("rank " + std::to_string(rank) + " runs with other settings than rank 0: " +
                text_of(all[rank]) + "; rank 0: " + text_of(all[0]));
  }
  Message shared = message_of(seed);
  host_.broadcast(shared);
  if (shared.size() != sizeof(seed)) throw Error("rank 0 sent no seed");
  std::memcpy(&seed, shared.data(), sizeof(seed));
  return seed;
}

void RankTurns::share(RankTurn& turn) {
  Message bytes;
  if (is_first()) bytes = encode_turn(turn);
  host_.broadcast(bytes);
  if (!is_first()) turn = decode_turn(bytes, options_.make_constraint);
  if (turn.roll_call) host_.barrier();
}

void RankTurns::compare(const Batch& batch) {
  if (!options_.compare_batches) return;
  ++num_steps_;
  const std::string mine = describe(batch);
  const std::vector<Message> hashes = host_.all_gather(message_of(hash_of(mine)));
  std::size_t other = 0;
  while (other < hashes.size() && hashes[other] == hashes[0]) ++other;
  if (other == hashes.size()) return;
  const std::vector<Message> batches = host_.all_gather(message_of(mine));
  const std::string where =
      fmt::format("step {} of rank {} is not that of rank 0", num_steps_, other);
  for (const std::size_t rank : {std::size_t{0}, other})
    log::error("{}: rank {} has {}", where, rank, text_of(batches[rank]));
  throw Error(where + ": " + text_of(batches[other]) + "; rank 0: " + text_of(batches[0]));
}

std::string describe(const ExecutorLimits& limits, const SchedulerConfig& config) {
  std::string text = fmt::format(
      "{} kernels (--simd), {} pages of {} tokens, {} requests, context {}, {} tokens a step, "
      "vocabulary {}, prefill budget {}, {} cache, overlap {}, end tokens",
      name(kernels::active_simd()), limits.num_pages, limits.page_size, limits.max_rows,
      limits.max_seq_len, limits.max_step_tokens, limits.vocab_size, config.prefill_budget_tokens,
      config.prefix_cache, config.overlap ? "on" : "off");
  for (const TokenId id : config.eos_ids) text += fmt::format(" {}", id);
  return text;
}

std::string describe(const Batch& batch) {
  std::string text = fmt::format("{} rows, {} of them decoding:", batch.num_rows, batch.num_decode);
  std::size_t token = 0;
  for (std::int32_t i = 0; i < batch.num_rows; ++i) {
    const BatchRow& row = batch.rows[static_cast<std::size_t>(i)];
    text += fmt::format(" row {} [{}, {})", row.row.value, row.cached_len, row.device_len);
    std::uint64_t hash = 0;  // of its token ids, and of where their keys go
    const std::span<const TokenLoc> places = batch.page_table->row(row.row);
    for (std::int32_t at = row.cached_len; at < row.device_len; ++at, ++token) {
      hash = (hash ^ static_cast<std::uint32_t>(batch.token_ids[token])) * 0x100000001B3U;
      hash = (hash ^ static_cast<std::uint32_t>(places[static_cast<std::size_t>(at)])) *
             0x100000001B3U;
    }
    text += fmt::format(" {:08x}", hash & 0xFFFFFFFFU);
  }
  text += "; samples:";
  for (const SampleRow& s : batch.samples)
    text +=
        fmt::format(" request {} at {} (row {}, t {}, k {}, p {}, min {}, seed {:x}, {} {} {})",
                    s.request.value, s.position, s.batch_row, s.temperature, s.top_k, s.top_p,
                    s.min_p, s.seed, s.repetition_penalty, s.frequency_penalty, s.presence_penalty);
  return text;
}

}  // namespace minisgl

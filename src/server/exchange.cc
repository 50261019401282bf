#include "server/exchange.h"

namespace minisgl {

Exchange::Exchange(Generator& generator, Job job, ExchangeOptions options,
                   std::function<void()> notify)
    : generator_(generator),
      request_(std::move(job.request)),
      options_(std::move(options)),
      answer_(request_, std::move(job.reply)),
      timers_(request_.num_answers(), RequestTimer(*options_.metrics, options_.arrival)),
      notify_(std::move(notify)) {}

void Exchange::start() {
  try {
    for (std::size_t i = 0; i < request_.num_answers(); ++i) {
      auto on_update = [self = shared_from_this(), i](GenerateUpdate update) {
        self->timers_[i].observe(update);
        self->deliver(i, std::move(update));
      };
      ids_.push_back(generator_.submit(request_.generate_request(i), std::move(on_update)));
    }
  } catch (...) {
    cancel();
    throw;
  }
}

void Exchange::deliver(std::size_t choice, GenerateUpdate update) {
  constexpr std::size_t kFrameBytes = 256;  // what JSON and SSE add to a piece of text
  const std::lock_guard lock(mutex_);
  if (!notify_ || overflowed_) return;
  if (request_.stream) {
    backlog_bytes_ += update.text.size() + kFrameBytes;
    overflowed_ = backlog_bytes_ > options_.max_backlog_bytes;
  }
  const bool is_last = update.finish != FinishReason::kNone;
  inbox_.emplace_back(choice, std::move(update));
  // A whole reply is written at its end: until then it is only kept from piling up here.
  constexpr std::size_t kPile = 64;
  const bool due = request_.stream ? inbox_.size() == 1 : is_last || inbox_.size() % kPile == 0;
  if (due || overflowed_) notify_();
}

std::string Exchange::take() {
  std::vector<std::pair<std::size_t, GenerateUpdate>> arrived;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(inbox_);
    backlog_bytes_ = 0;
  }
  std::string bytes;
  for (const auto& [choice, update] : arrived) bytes += answer_.add(choice, update);
  return bytes;
}

std::string Exchange::fail(int status, const std::string& message) {
  cancel();
  return answer_.fail(status, message);
}

void Exchange::cancel() {
  {
    const std::lock_guard lock(mutex_);
    notify_ = nullptr;
    inbox_.clear();
  }
  for (std::size_t i = 0; i < ids_.size(); ++i)
    if (answer_.is_open(i)) generator_.abort(ids_[i]);
  ids_.clear();
}

bool Exchange::overflowed() const {
  const std::lock_guard lock(mutex_);
  return overflowed_;
}

}  // namespace minisgl

#include "server/mailbox.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "server/http_connection.h"

namespace minisgl {

void Mailbox::push(std::weak_ptr<Connection> connection) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = waiting_.empty();
    waiting_.push_back(std::move(connection));
  }
  if (is_first) boost::asio::post(io_, [this] { deliver(); });
}

void Mailbox::deliver() {
  {
    const std::lock_guard lock(mutex_);
    delivering_.swap(waiting_);
  }
  for (const std::weak_ptr<Connection>& weak : delivering_)
    if (const auto connection = weak.lock()) connection->on_update();
  delivering_.clear();
}

}  // namespace minisgl

// What a chat model wrote, taken apart.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minisgl {

/// Pieces in the order of the text. A call is a kCall, whose text is the function's name, and the
/// kArguments that follow it: joined, the JSON text of its arguments.
struct ChatPiece {
  enum class Kind : std::uint8_t { kReasoning, kContent, kCall, kArguments };
  Kind kind = Kind::kContent;
  std::string text;

  bool operator==(const ChatPiece&) const = default;
};

/// Collects pieces; neighbours of one kind become one.
class ChatPieces {
 public:
  void add(ChatPiece::Kind kind, std::string_view text) {
    if (text.empty() && kind != ChatPiece::Kind::kCall) return;
    if (!pieces_.empty() && pieces_.back().kind == kind && kind != ChatPiece::Kind::kCall)
      pieces_.back().text += text;
    else
      pieces_.push_back({.kind = kind, .text = std::string(text)});
  }
  std::vector<ChatPiece> take() { return std::exchange(pieces_, {}); }

 private:
  std::vector<ChatPiece> pieces_;
};

}  // namespace minisgl

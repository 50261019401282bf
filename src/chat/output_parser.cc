#include "chat/output_parser.h"

namespace minisgl {

OutputParser::OutputParser(const OutputFormat& format)
    : calls_(format.calls == CallSyntax::kNone ? nullptr
                                               : make_call_parser(format.calls, format.function)),
      parallel_calls_(format.parallel_calls) {
  if (format.reasoning) reasoning_.emplace(format.in_reasoning);
}

std::vector<ChatPiece> OutputParser::push(std::string_view text) {
  std::string answer;
  if (reasoning_) {
    for (const char c : text) reasoning_->push(c, pieces_, answer);
    text = answer;
  }
  if (calls_)
    for (const char c : text) calls_->push(c, pieces_);
  else
    pieces_.add(ChatPiece::Kind::kContent, text);
  return take();
}

std::vector<ChatPiece> OutputParser::finish() {
  std::string answer;
  if (reasoning_) reasoning_->finish(pieces_, answer);
  if (calls_) {
    for (const char c : answer) calls_->push(c, pieces_);
    calls_->finish(pieces_);
  } else {
    pieces_.add(ChatPiece::Kind::kContent, answer);
  }
  return take();
}

std::vector<ChatPiece> OutputParser::take() {
  std::vector<ChatPiece> pieces = pieces_.take();
  if (!calls_) return pieces;
  std::vector<ChatPiece> kept;
  for (ChatPiece& piece : pieces) {
    if (piece.kind == ChatPiece::Kind::kCall) ++num_calls_;
    const bool is_further = num_calls_ > 1 && (piece.kind == ChatPiece::Kind::kCall ||
                                               piece.kind == ChatPiece::Kind::kArguments);
    if (parallel_calls_ || !is_further) kept.push_back(std::move(piece));
  }
  return kept;
}

}  // namespace minisgl

#include "chat/tag_finder.h"

namespace minisgl {

TagFinder::TagFinder(std::string tag) : tag_(std::move(tag)), border_(tag_.size(), 0) {
  for (std::size_t i = 1, k = 0; i < tag_.size(); ++i) {
    while (k > 0 && tag_[i] != tag_[k]) k = border_[k - 1];
    if (tag_[i] == tag_[k]) ++k;
    border_[i] = k;
  }
}

bool TagFinder::push(char c, std::string& passed) {
  while (matched_ > 0 && c != tag_[matched_]) {
    // The text ends with tag_[0, matched_): all but its next candidate cannot begin the tag.
    const std::size_t next = border_[matched_ - 1];
    passed.append(tag_, 0, matched_ - next);
    matched_ = next;
  }
  if (c != tag_[matched_]) {
    passed += c;
    return false;
  }
  if (++matched_ < tag_.size()) return false;
  matched_ = 0;
  return true;
}

}  // namespace minisgl

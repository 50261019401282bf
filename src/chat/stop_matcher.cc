#include "chat/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace minisgl {
namespace {

std::vector<std::size_t> borders(std::string_view text) {
  std::vector<std::size_t> border(text.size(), 0);
  for (std::size_t i = 1, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != text[k]) k = border[k - 1];
    if (text[i] == text[k]) ++k;
    border[i] = k;
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops)
    if (!stop.empty()) patterns_.push_back({.text = stop, .border = borders(stop)});
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  if (patterns_.empty()) return std::string(text);
  std::string all = std::exchange(held_, {});
  const std::size_t begin = all.size();
  all.append(text);
  for (std::size_t i = begin; i < all.size(); ++i) {
    std::size_t complete = 0;  // length of the longest stop string that ends at byte i
    for (Pattern& p : patterns_) {
      while (p.matched > 0 && all[i] != p.text[p.matched]) p.matched = p.border[p.matched - 1];
      if (all[i] == p.text[p.matched]) ++p.matched;
      if (p.matched == p.text.size()) complete = std::max(complete, p.matched);
    }
    if (complete > 0) {
      found_ = all.substr(i + 1 - complete, complete);
      all.resize(i + 1 - complete);
      return all;
    }
  }
  std::size_t hold = 0;
  for (const Pattern& p : patterns_) hold = std::max(hold, p.matched);
  held_ = all.substr(all.size() - hold);
  all.resize(all.size() - hold);
  return all;
}

std::string StopMatcher::flush() {
  for (Pattern& p : patterns_) p.matched = 0;
  return std::exchange(held_, {});
}

}  // namespace minisgl

#include "kvcache/radix_cache.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/math.h"
#include "kvcache/common_prefix.h"

namespace minisgl {

bool RadixCache::FirstPageLess::less(const TokenId* a, const TokenId* b) const {
  return std::memcmp(a, b, cache->page_size_ * sizeof(TokenId)) < 0;
}

RadixCache::RadixCache(std::int32_t page_size) : page_size_(static_cast<std::size_t>(page_size)) {
  check(page_size > 0, "radix cache: page_size is ", page_size, "; it must be at least 1");
  Node& root = nodes_.emplace_back(this);
  root.in_use = true;
  root.num_locks = 1;  // never evicted
}

PrefixMatch RadixCache::match(std::span<const TokenId> tokens) {
  const Walk found = walk(tokens);
  return {{found.node, static_cast<std::int32_t>(found.len)}, path_pages(found.node)};
}

void RadixCache::lock(PrefixHandle handle) {
  check_handle(handle, "lock");
  ++nodes_[handle.node].own_locks;
  for (NodeId id = handle.node; id != kNone; id = nodes_[id].parent) {
    Node& node = nodes_[id];
    if (node.num_locks++ > 0) continue;
    const auto pages = static_cast<std::int64_t>(node.pages.size());
    sizes_.evictable_pages -= pages;
    sizes_.protected_pages += pages;
    update_order(id);
  }
}

void RadixCache::unlock(PrefixHandle handle) {
  check_handle(handle, "unlock");
  check(nodes_[handle.node].own_locks > 0, "radix cache: unlock of ", handle.cached_len,
        " tokens that are not locked");
  --nodes_[handle.node].own_locks;
  for (NodeId id = handle.node; id != kNone; id = nodes_[id].parent) {
    Node& node = nodes_[id];
    if (--node.num_locks > 0) continue;
    const auto pages = static_cast<std::int64_t>(node.pages.size());
    sizes_.protected_pages -= pages;
    sizes_.evictable_pages += pages;
    update_order(id);
  }
}

PrefixInsert RadixCache::insert(std::span<const TokenId> tokens, std::span<const PageId> pages) {
  tokens = tokens.first(round_down(tokens.size(), page_size_));
  const std::size_t num_pages = tokens.size() / page_size_;
  check(pages.size() >= num_pages, "radix cache: ", tokens.size(), " tokens need ", num_pages,
        " pages, not ", pages.size());
  const Walk found = walk(tokens);
  NodeId end = found.node;
  if (found.len < tokens.size()) {
    end = add_node(found.node);
    Node& leaf = nodes_[end];
    const auto new_tokens = tokens.subspan(found.len);
    const auto new_pages = pages.subspan(found.len / page_size_, new_tokens.size() / page_size_);
    leaf.tokens.assign(new_tokens.begin(), new_tokens.end());
    leaf.pages.assign(new_pages.begin(), new_pages.end());
    leaf.end_len = static_cast<std::int32_t>(tokens.size());
    leaf.last_use = now_;
    nodes_[found.node].children.insert(end);
    sizes_.evictable_pages += static_cast<std::int64_t>(leaf.pages.size());
    update_order(found.node);  // a leaf no more
    update_order(end);
  }
  return {static_cast<std::int32_t>(found.len),
          {end, static_cast<std::int32_t>(tokens.size())},
          path_pages(end)};
}

std::vector<PageId> RadixCache::evict(std::int64_t num_pages) {
  check(num_pages >= 0 && num_pages <= sizes_.evictable_pages, "radix cache: ", num_pages,
        " pages to evict, but only ", sizes_.evictable_pages, " are not locked");
  std::vector<PageId> evicted;
  evicted.reserve(static_cast<std::size_t>(num_pages));
  while (static_cast<std::int64_t>(evicted.size()) < num_pages) {
    const NodeId id = eviction_order_.begin()->second;
    Node& leaf = nodes_[id];
    const std::size_t wanted = static_cast<std::size_t>(num_pages) - evicted.size();
    const std::size_t count = std::min(wanted, leaf.pages.size());
    evicted.insert(evicted.end(), leaf.pages.end() - static_cast<std::ptrdiff_t>(count),
                   leaf.pages.end());
    sizes_.evictable_pages -= static_cast<std::int64_t>(count);
    if (count == leaf.pages.size()) {
      remove_leaf(id);
    } else {  // the front of a prefix is worth more than its end
      leaf.pages.resize(leaf.pages.size() - count);
      leaf.tokens.resize(leaf.pages.size() * page_size_);
      leaf.end_len -= static_cast<std::int32_t>(count * page_size_);
    }
  }
  return evicted;
}

std::vector<PageId> RadixCache::reset() {
  check(sizes_.protected_pages == 0, "radix cache: reset while ", sizes_.protected_pages,
        " pages are locked");
  return evict(sizes_.evictable_pages);
}

std::vector<PageId> RadixCache::pages() const {
  std::vector<PageId> all;
  all.reserve(static_cast<std::size_t>(sizes_.total_pages()));
  for (const Node& node : nodes_) all.insert(all.end(), node.pages.begin(), node.pages.end());
  return all;
}

// Follows `tokens` from the root as far as whole pages agree, splitting the node in which they
// part.
RadixCache::Walk RadixCache::walk(std::span<const TokenId> tokens) {
  tokens = tokens.first(round_down(tokens.size(), page_size_));
  ++now_;
  touch(kRoot);
  Walk at{kRoot, 0};
  while (at.len < tokens.size()) {
    const auto& children = nodes_[at.node].children;
    const auto child = children.find(tokens.data() + at.len);
    if (child == children.end()) break;
    NodeId id = *child;
    const std::size_t common =
        round_down(common_prefix_len(nodes_[id].tokens, tokens.subspan(at.len)), page_size_);
    if (common < nodes_[id].tokens.size()) id = split(id, common);
    touch(id);
    at = {id, at.len + common};
  }
  return at;
}

// Puts a new node with the first `front_tokens` tokens of `id` above it, and returns the new one,
// which the caller must touch().
RadixCache::NodeId RadixCache::split(NodeId id, std::size_t front_tokens) {
  const NodeId parent = nodes_[id].parent;
  nodes_[parent].children.erase(id);
  const NodeId front_id = add_node(parent);
  Node& front = nodes_[front_id];
  Node& back = nodes_[id];
  const auto tokens = static_cast<std::ptrdiff_t>(front_tokens);
  const auto pages = static_cast<std::ptrdiff_t>(front_tokens / page_size_);
  front.tokens.assign(back.tokens.begin(), back.tokens.begin() + tokens);
  front.pages.assign(back.pages.begin(), back.pages.begin() + pages);
  front.end_len = nodes_[parent].end_len + static_cast<std::int32_t>(front_tokens);
  front.num_locks = back.num_locks;  // whoever locks the end locks the way to it
  back.tokens.erase(back.tokens.begin(), back.tokens.begin() + tokens);
  back.pages.erase(back.pages.begin(), back.pages.begin() + pages);
  back.parent = front_id;
  front.children.insert(id);
  nodes_[parent].children.insert(front_id);
  return front_id;
}

RadixCache::NodeId RadixCache::add_node(NodeId parent) {
  NodeId id = kNone;
  if (unused_.empty()) {
    id = static_cast<NodeId>(nodes_.size());
    nodes_.emplace_back(this);
  } else {
    id = unused_.back();
    unused_.pop_back();
  }
  nodes_[id].in_use = true;
  nodes_[id].parent = parent;
  return id;
}

void RadixCache::remove_leaf(NodeId id) {
  Node& leaf = nodes_[id];
  const NodeId parent = leaf.parent;
  nodes_[parent].children.erase(id);
  eviction_order_.erase({leaf.last_use, id});
  leaf = Node(this);  // gives the memory back; its index may be used again
  unused_.push_back(id);
  update_order(parent);
}

void RadixCache::touch(NodeId id) {
  Node& node = nodes_[id];
  if (node.in_order) {
    eviction_order_.erase({node.last_use, id});
    eviction_order_.insert({now_, id});
  }
  node.last_use = now_;
}

// Puts `id` into the eviction order or takes it out, as invariant 6 wants.
void RadixCache::update_order(NodeId id) {
  Node& node = nodes_[id];
  const bool evictable = node.num_locks == 0 && node.children.empty();
  if (evictable == node.in_order) return;
  if (evictable) {
    eviction_order_.insert({node.last_use, id});
  } else {
    eviction_order_.erase({node.last_use, id});
  }
  node.in_order = evictable;
}

std::vector<PageId> RadixCache::path_pages(NodeId id) const {
  std::vector<PageId> pages(static_cast<std::size_t>(nodes_[id].end_len) / page_size_);
  auto end = pages.end();
  for (; id != kRoot; id = nodes_[id].parent) {
    end = std::copy_backward(nodes_[id].pages.begin(), nodes_[id].pages.end(), end);
  }
  return pages;
}

void RadixCache::check_handle(PrefixHandle handle, const char* what) const {
  const bool good = handle.node >= 0 && handle.node < static_cast<NodeId>(nodes_.size()) &&
                    nodes_[handle.node].in_use && nodes_[handle.node].end_len == handle.cached_len;
  check(good, "radix cache: ", what, " with a stale handle of ", handle.cached_len,
        " tokens; a handle that is not locked is good until the next insert or evict");
}

void RadixCache::check_node(NodeId id) const {
  const Node& node = nodes_[id];
  const Node& parent = nodes_[node.parent];
  check(parent.in_use && parent.children.contains(id), "radix cache, invariant 1: node ", id,
        " is not a child of its parent");
  check(!node.pages.empty() && node.tokens.size() == node.pages.size() * page_size_ &&
            node.end_len == parent.end_len + static_cast<std::int32_t>(node.tokens.size()),
        "radix cache, invariant 2: node ", id, " has ", node.tokens.size(), " tokens, ",
        node.pages.size(), " pages and ends at ", node.end_len, " after ", parent.end_len);
  const bool unlocked_leaf = node.num_locks == 0 && node.children.empty();
  check(node.in_order == unlocked_leaf &&
            unlocked_leaf == eviction_order_.contains({node.last_use, id}),
        "radix cache, invariant 6: node ", id, " has ", node.num_locks, " locks and ",
        node.children.size(), " children");
  check(node.last_use <= parent.last_use && node.last_use <= now_,
        "radix cache, invariant 7: node ", id, " was used later than its parent");
}

void RadixCache::check_integrity() const {
  PrefixCacheSizes sizes;
  std::size_t in_use = 0, in_order = 0, num_reached = 0;
  std::vector<NodeId> to_visit{kRoot};
  while (!to_visit.empty()) {
    const NodeId id = to_visit.back();
    to_visit.pop_back();
    ++num_reached;
    check(num_reached <= nodes_.size(), "radix cache, invariant 1: the nodes form a cycle");
    const Node& node = nodes_[id];
    std::int64_t locks = node.own_locks + (id == kRoot ? 1 : 0);
    const TokenId* previous = nullptr;
    for (const NodeId child : node.children) {
      check(nodes_[child].parent == id, "radix cache, invariant 1: node ", child,
            " has two parents");
      const TokenId* first = nodes_[child].tokens.data();
      check(previous == nullptr || FirstPageLess{this}.less(previous, first),
            "radix cache, invariant 3: the children of node ", id, " are out of order");
      previous = first;
      locks += nodes_[child].num_locks;
      to_visit.push_back(child);
    }
    check(node.num_locks == locks, "radix cache, invariant 4: node ", id, " counts ",
          node.num_locks, " locks, not ", locks);
  }
  std::vector<bool> seen;
  for (NodeId id = 0; id < static_cast<NodeId>(nodes_.size()); ++id) {
    const Node& node = nodes_[id];
    in_use += node.in_use ? 1 : 0;
    in_order += node.in_order ? 1 : 0;
    if (!node.in_use || id == kRoot) continue;
    check_node(id);
    (node.num_locks > 0 ? sizes.protected_pages : sizes.evictable_pages) +=
        static_cast<std::int64_t>(node.pages.size());
    for (const PageId page : node.pages) {
      const auto index = static_cast<std::size_t>(page.value);
      if (index >= seen.size()) seen.resize(2 * index + 1);
      check(!seen[index], "radix cache, invariant 8: page ", page.value, " is there twice");
      seen[index] = true;
    }
  }
  check(in_use == num_reached && in_use + unused_.size() == nodes_.size(),
        "radix cache, invariant 1: ", in_use, " nodes in use, ", num_reached, " reached, ",
        unused_.size(), " unused of ", nodes_.size());
  check(nodes_[kRoot].pages.empty() && nodes_[kRoot].end_len == 0 && !nodes_[kRoot].in_order,
        "radix cache, invariant 2: the root has tokens");
  check(in_order == eviction_order_.size(), "radix cache, invariant 6: ", eviction_order_.size(),
        " nodes in the eviction order, not ", in_order);
  check(sizes.evictable_pages == sizes_.evictable_pages &&
            sizes.protected_pages == sizes_.protected_pages,
        "radix cache, invariant 5: counted ", sizes_.evictable_pages, " evictable and ",
        sizes_.protected_pages, " protected pages, found ", sizes.evictable_pages, " and ",
        sizes.protected_pages);
}

}  // namespace minisgl

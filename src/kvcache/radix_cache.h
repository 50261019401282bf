#pragma once

#include <cstdint>
#include <deque>
#include <set>
#include <utility>

#include "kvcache/prefix_cache.h"

namespace minisgl {

/// A radix tree over pages of tokens. A node stands for the tokens on the path from the root to its
/// end; siblings differ in their first page.
///
///   root --[1 2]--+--[3 4]      two prompts, 1 2 3 4 and 1 2 7 8 9
///                 +--[7 8 9]
///
/// A match or an insertion that ends inside a node first splits it: a new node takes the front, and
/// the old one keeps its index and its end, so that handles to it stay right.
/// A lock counts on every node from the handle's to the root. Eviction takes pages from the ends of
/// unlocked leaves, least recently used first, and time is the number of match() and insert()
/// calls.
///
/// Costs: match and insert O(tokens matched + log(children) a node), plus a copy of the node that
/// is split; lock and unlock O(nodes on the path); evict O(pages + nodes removed * log(leaves)).
///
/// Not thread-safe. Invariants, which check_integrity() verifies:
///  1. The nodes in use are a tree: each but the root is a child of its parent, once, and all are
///     reached from the root.
///  2. A node but the root has at least one page and page_size tokens for each of its pages; its
///     end_len is its parent's plus its tokens. The root has neither.
///  3. Siblings are ordered by their first page and no two are equal.
///  4. A node has as many locks as end at it and as its children have together; the root has one
///     more.
///  5. evictable_pages and protected_pages are the pages of the nodes without and with locks.
///  6. The eviction order holds the unlocked leaves (without the root), each under its last use.
///  7. A node was used no earlier than its children, and no later than now.
///  8. No page is in two places.
///
/// Source: mini-sglang kvcache/radix_cache.py; SGLang (Zheng et al. 2024), section 3.
class RadixCache final : public PrefixCache {
 public:
  explicit RadixCache(std::int32_t page_size);

  PrefixMatch match(std::span<const TokenId> tokens) override;
  void lock(PrefixHandle handle) override;
  void unlock(PrefixHandle handle) override;
  PrefixInsert insert(std::span<const TokenId> tokens, std::span<const PageId> pages) override;
  std::vector<PageId> evict(std::int64_t num_pages) override;
  std::vector<PageId> reset() override;
  PrefixCacheSizes sizes() const override { return sizes_; }
  std::vector<PageId> pages() const override;
  void check_integrity() const override;

 private:
  using NodeId = std::int32_t;
  static constexpr NodeId kRoot = 0;
  static constexpr NodeId kNone = -1;

  /// Orders siblings by their first page, as bytes: any total order would do.
  struct FirstPageLess {
    using is_transparent = void;
    const RadixCache* cache;
    bool operator()(NodeId a, NodeId b) const { return less(first(a), first(b)); }
    bool operator()(NodeId a, const TokenId* b) const { return less(first(a), b); }
    bool operator()(const TokenId* a, NodeId b) const { return less(a, first(b)); }
    const TokenId* first(NodeId id) const { return cache->nodes_[id].tokens.data(); }
    bool less(const TokenId* a, const TokenId* b) const;
  };

  struct Node {
    explicit Node(const RadixCache* cache) : children(FirstPageLess{cache}) {}
    std::vector<TokenId> tokens;
    std::vector<PageId> pages;
    NodeId parent = kNone;
    std::int32_t end_len = 0;    // tokens from the root to the end of this node
    std::int32_t num_locks = 0;  // of handles to this node or to nodes below it
    std::int32_t own_locks = 0;  // of handles to this node
    std::uint64_t last_use = 0;
    bool in_use = false;
    bool in_order = false;  // is in eviction_order_
    std::set<NodeId, FirstPageLess> children;
  };

  struct Walk {
    NodeId node;
    std::size_t len;  // tokens matched, which end where `node` ends
  };

  Walk walk(std::span<const TokenId> tokens);
  NodeId split(NodeId id, std::size_t front_tokens);
  NodeId add_node(NodeId parent);
  void remove_leaf(NodeId id);
  void touch(NodeId id);
  void update_order(NodeId id);
  std::vector<PageId> path_pages(NodeId id) const;
  void check_handle(PrefixHandle handle, const char* what) const;
  void check_node(NodeId id) const;

  std::size_t page_size_;
  std::deque<Node> nodes_;  // a deque: references stay good while nodes are added
  std::vector<NodeId> unused_;
  std::set<std::pair<std::uint64_t, NodeId>> eviction_order_;  // (last use, unlocked leaf)
  PrefixCacheSizes sizes_;
  std::uint64_t now_ = 0;
};

}  // namespace minisgl

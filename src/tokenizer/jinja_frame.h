// Where the code of a template runs: variables in nested scopes, and the text being written.

#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tokenizer/jinja_context.h"

namespace minisgl::jinja {

/// A variable's name as a small number, given when the template is parsed.
using NameId = int;

/// Names of the variables that occur in a template.
class NameTable {
 public:
  NameId intern(const std::string& name) {
    const auto [it, added] = ids_.try_emplace(name, static_cast<NameId>(names_.size()));
    if (added) names_.push_back(name);
    return it->second;
  }
  const std::string& name(NameId id) const { return names_[static_cast<std::size_t>(id)]; }
  /// -1 when the template does not mention it.
  NameId find(const std::string& name) const {
    const auto it = ids_.find(name);
    return it == ids_.end() ? -1 : it->second;
  }

 private:
  std::vector<std::string> names_;
  std::unordered_map<std::string, NameId> ids_;
};

/// The variables of one scope, and the scope around it.
class Scope {
 public:
  /// Looks here, then outwards; null when there is none.
  const Value* find(NameId id) const {
    for (const Scope* s = this; s != nullptr; s = s->parent_) {
      for (const auto& [name, value] : s->variables_) {
        if (name == id) return &value;
      }
    }
    return nullptr;
  }
  /// Sets it here.
  void set(NameId id, Value value) {
    for (auto& [name, old] : variables_) {
      if (name == id) {
        old = std::move(value);
        return;
      }
    }
    variables_.emplace_back(id, std::move(value));
  }
  Scope* parent() const { return parent_; }
  Scope& outermost() { return parent_ ? parent_->outermost() : *this; }
  /// A macro refers to it: it, and those around it, must live on.
  void capture() {
    for (Scope* s = this; s != nullptr && !s->captured_; s = s->parent_) s->captured_ = true;
  }

 private:
  friend class ScopePool;
  Scope* parent_ = nullptr;
  std::vector<std::pair<NameId, Value>> variables_;
  bool captured_ = false;
};

/// All scopes of a rendering; those that no macro refers to are used again.
class ScopePool {
 public:
  Scope& take(Scope* parent) {
    if (free_.empty()) {
      all_.emplace_back();
      free_.push_back(&all_.back());
    }
    Scope& scope = *free_.back();
    free_.pop_back();
    scope.parent_ = parent;
    return scope;
  }
  void give_back(Scope& scope) {
    if (scope.captured_) return;
    scope.variables_.clear();
    free_.push_back(&scope);
  }

 private:
  std::deque<Scope> all_;
  std::vector<Scope*> free_;
};

/// What an expression or statement needs to run.
struct Frame {
  Context& ctx;
  ScopePool& scopes;
  Scope& scope;
  StrBuilder& out;
};

/// A scope inside another while it lives.
class InnerScope {
 public:
  InnerScope(ScopePool& pool, Scope& parent) : pool_(pool), scope_(pool.take(&parent)) {}
  ~InnerScope() { pool_.give_back(scope_); }
  InnerScope(const InnerScope&) = delete;
  InnerScope& operator=(const InnerScope&) = delete;
  Scope& operator*() const { return scope_; }
  Scope* operator->() const { return &scope_; }

 private:
  ScopePool& pool_;
  Scope& scope_;
};

}  // namespace minisgl::jinja

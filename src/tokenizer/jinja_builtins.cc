#include "tokenizer/jinja_builtins.h"

#include "tokenizer/jinja_arguments.h"
#include "tokenizer/jinja_objects.h"
#include "tokenizer/jinja_ops.h"
#include "tokenizer/jinja_repr.h"

namespace minisgl::jinja {
namespace {

// The sandbox of jinja2 allows no longer ranges.
constexpr std::size_t kMaxRange = 100'000;

Value range(Context&, const Arguments& args) {
  const Bound bound("range", args, {"start", "stop", "step"}, 1);
  const bool one = !bound.has(1);
  const std::int64_t start = one ? 0 : to_index(bound.at(0));
  const std::int64_t stop = to_index(bound.at(one ? 0 : 1));
  const std::int64_t step = bound.has(2) ? to_index(bound.at(2)) : 1;
  if (step == 0) throw TemplateError("range() arg 3 must not be zero");
  auto object = std::make_shared<Range>(start, stop, step);
  if (*object->length() > kMaxRange)
    throw TemplateError("Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
                        std::to_string(kMaxRange) + ").");
  return Value::object(std::move(object));
}

// dict(mapping or pairs, name=value, ...)
Dict make_dict(Context& ctx, const Arguments& args) {
  Dict dict;
  if (args.positional.size() > 1)
    throw TemplateError("dict expected at most 1 argument, got " +
                        std::to_string(args.positional.size()));
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is(Kind::kDict)) {
      dict = from.as_dict();
    } else {
      const ListRef all = iterate(ctx, from);
      for (const Value& pair : all->items()) {
        const ListRef both = iterate(ctx, pair);
        if (both->size() != 2)
          throw TemplateError("dictionary update sequence element has length " +
                              std::to_string(both->size()) + "; 2 is required");
        dict.set(both->items()[0], both->items()[1]);
      }
    }
  }
  ctx.charge(static_cast<std::int64_t>(dict.size()));
  for (const auto& [name, value] : args.keywords) dict.set(name, value);
  return dict;
}

Value dict_function(Context& ctx, const Arguments& args) {
  return Value::dict(make_dict(ctx, args));
}

Value namespace_function(Context& ctx, const Arguments& args) {
  auto ns = std::make_shared<Namespace>();
  const Dict attributes = make_dict(ctx, args);
  for (const auto& [name, value] : attributes.entries()) ns->set(name, value);
  ctx.keep(ns);
  return Value::object(std::move(ns));
}

Value cycler(Context&, const Arguments& args) {
  if (!args.keywords.empty()) throw TemplateError("cycler() takes no keyword arguments");
  if (args.positional.empty()) throw TemplateError("at least one item has to be provided");
  return Value::object(
      std::make_shared<Cycler>(std::make_shared<const List>(args.positional, List::Type::kTuple)));
}

Value joiner(Context&, const Arguments& args) {
  const Bound bound("joiner", args, {"sep"});
  return Value::object(std::make_shared<Joiner>(bound.get(0, Value::string(", "))));
}

Value raise_exception(Context& ctx, const Arguments& args) {
  const Bound bound("raise_exception", args, {"message"}, 1);
  throw TemplateError(to_str(ctx, bound.at(0)).text(), 0, /*raised=*/true);
}

Value strftime_now(Context& ctx, const Arguments& args) {
  const Bound bound("strftime_now", args, {"format"}, 1);
  // A space in front tells an empty result from one that is too long.
  const std::string format = " " + bound.string(0).text();
  constexpr std::size_t kMaxFormat = 1000;
  if (format.size() > kMaxFormat) throw TemplateError("strftime_now() format is too long");
  std::string buffer(16 * 1024, '\0');
  const std::size_t n = std::strftime(buffer.data(), buffer.size(), format.c_str(), &ctx.now());
  if (n == 0) throw TemplateError("strftime_now() result is too long");
  return Value::string(buffer.substr(1, n - 1));
}

Value lipsum(Context&, const Arguments&) {
  throw TemplateError("lipsum() is not supported: a chat template has no use for filler text");
}

struct Builtin {
  std::string_view name;
  Function::Body body;
};
constexpr Builtin kBuiltins[] = {
    {"cycler", cycler}, {"dict", dict_function},           {"joiner", joiner},
    {"lipsum", lipsum}, {"namespace", namespace_function}, {"raise_exception", raise_exception},
    {"range", range},   {"strftime_now", strftime_now},
};

}  // namespace

std::optional<Value> find_builtin(std::string_view name) {
  for (const Builtin& b : kBuiltins) {
    if (b.name == name) return Value::object(std::make_shared<Function>(b.name, b.body));
  }
  return std::nullopt;
}

}  // namespace minisgl::jinja

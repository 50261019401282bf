#include "metrics/exposition.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <iterator>

namespace minisgl::metrics {
namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  // Counters of bytes are beyond what {} writes without an exponent.
  if (value == std::floor(value) && std::abs(value) < 1e17) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);
}

/// A bound as Prometheus' own libraries write it: "1.0", "0.25".
std::string bound_text(double bound) {
  const std::string text = number(bound);
  return text.find_first_of(".eI") == std::string::npos ? text + ".0" : text;
}

std::string escaped(std::string_view text, bool quotes_too) {
  std::string result;
  for (const char c : text) {
    if (c == '\\')
      result += "\\\\";
    else if (c == '\n')
      result += "\\n";
    else if (c == '"' && quotes_too)
      result += "\\\"";
    else
      result += c;
  }
  return result;
}

std::string joined(std::string_view first, std::string_view second) {
  return fmt::format("{}{}{}", first, first.empty() || second.empty() ? "" : ",", second);
}

std::string to_text(const Labels& labels) {
  std::string text;
  for (const auto& [name, value] : labels)
    text = joined(text, fmt::format("{}=\"{}\"", name, escaped(value, /*quotes_too=*/true)));
  return text;
}

}  // namespace

bool is_metric_name(std::string_view name) {
  if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0])) != 0) return false;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != ':') return false;
  return true;
}

Exposition::Exposition(std::string prefix, const Labels& common)
    : prefix_(std::move(prefix)), common_(to_text(common)) {}

void Exposition::begin_family(std::string_view name, std::string_view help, std::string_view type) {
  if (family_ == name) return;
  family_ = name;
  fmt::format_to(std::back_inserter(text_), "# HELP {0}{1} {2}\n# TYPE {0}{1} {3}\n", prefix_, name,
                 escaped(help, /*quotes_too=*/false), type);
}

void Exposition::sample(std::string_view name, std::string_view labels, double value) {
  const std::string all = joined(common_, labels);
  fmt::format_to(std::back_inserter(text_), "{}{}", prefix_, name);
  if (!all.empty()) fmt::format_to(std::back_inserter(text_), "{{{}}}", all);
  fmt::format_to(std::back_inserter(text_), " {}\n", number(value));
}

void Exposition::counter(std::string_view name, std::string_view help, double value,
                         const Labels& labels) {
  begin_family(name, help, "counter");
  sample(name, to_text(labels), value);
}

void Exposition::gauge(std::string_view name, std::string_view help, double value,
                       const Labels& labels) {
  begin_family(name, help, "gauge");
  sample(name, to_text(labels), value);
}

void Exposition::histogram(std::string_view name, std::string_view help, const Histogram& histogram,
                           const Labels& labels) {
  begin_family(name, help, "histogram");
  const std::string own = to_text(labels);
  const Histogram::Snapshot snapshot = histogram.snapshot();
  const std::string bucket = fmt::format("{}_bucket", name);
  for (std::size_t i = 0; i < snapshot.cumulative.size(); ++i) {
    const std::string bound =
        i < histogram.bounds().size() ? bound_text(histogram.bounds()[i]) : "+Inf";
    sample(bucket, joined(own, fmt::format("le=\"{}\"", bound)),
           static_cast<double>(snapshot.cumulative[i]));
  }
  sample(fmt::format("{}_sum", name), own, snapshot.sum);
  sample(fmt::format("{}_count", name), own, static_cast<double>(snapshot.cumulative.back()));
}

}  // namespace minisgl::metrics

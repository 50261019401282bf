// The text that Prometheus reads: https://prometheus.io/docs/instrumenting/exposition_formats/

#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metrics/metrics.h"

namespace minisgl::metrics {

using Labels = std::vector<std::pair<std::string, std::string>>;

/// The Content-Type of the text.
inline constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

/// True for names that Prometheus takes: letters, digits, "_" and ":", no digit first.
bool is_metric_name(std::string_view name);

/// Collects series into a text. Series of one name must be added one after the other; its type and
/// help are written once. Values of labels may hold anything.
class Exposition {
 public:
  /// Every name begins with `prefix`, every series has `common` labels.
  Exposition(std::string prefix, const Labels& common);

  /// `name` ends in "_total".
  void counter(std::string_view name, std::string_view help, double value,
               const Labels& labels = {});
  void gauge(std::string_view name, std::string_view help, double value, const Labels& labels = {});
  void histogram(std::string_view name, std::string_view help, const Histogram& histogram,
                 const Labels& labels = {});

  const std::string& text() const { return text_; }

 private:
  void begin_family(std::string_view name, std::string_view help, std::string_view type);
  void sample(std::string_view name, std::string_view labels, double value);

  const std::string prefix_;
  const std::string common_;  // `a="b",c="d"`
  std::string family_;        // whose head was written last
  std::string text_;
};

}  // namespace minisgl::metrics

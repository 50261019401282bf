// Written by hand after the format's description; tests/test_metrics.py reads the server's text
// with Prometheus' own parser.

#include "metrics/exposition.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace minisgl::metrics {
namespace {

TEST(ExpositionTest, SeriesOfOneNameShareTheirHead) {
  Exposition out("app:", {{"engine", "0"}});
  out.counter("ended_total", "Requests that ended.", 3, {{"reason", "stop"}});
  out.counter("ended_total", "Requests that ended.", 0, {{"reason", "abort"}});
  out.gauge("running", "Now.", 2.5);
  EXPECT_EQ(out.text(),
            "# HELP app:ended_total Requests that ended.\n"
            "# TYPE app:ended_total counter\n"
            "app:ended_total{engine=\"0\",reason=\"stop\"} 3\n"
            "app:ended_total{engine=\"0\",reason=\"abort\"} 0\n"
            "# HELP app:running Now.\n"
            "# TYPE app:running gauge\n"
            "app:running{engine=\"0\"} 2.5\n");
}

TEST(ExpositionTest, AHistogramHasCumulativeBucketsSumAndCount) {
  Histogram seconds({0.5, 1});
  seconds.observe(0.25, 2);
  seconds.observe(4);
  Exposition out("", {});
  out.histogram("seconds", "Time.", seconds);
  EXPECT_EQ(out.text(),
            "# HELP seconds Time.\n"
            "# TYPE seconds histogram\n"
            "seconds_bucket{le=\"0.5\"} 2\n"
            "seconds_bucket{le=\"1.0\"} 2\n"
            "seconds_bucket{le=\"+Inf\"} 3\n"
            "seconds_sum 4.5\n"
            "seconds_count 3\n");
}

TEST(ExpositionTest, LabelsAndHelpMayHoldAnything) {
  Exposition out("", {});
  out.gauge("g", "a\\b\n\"c\"", 1, {{"model", "a\\b\n\"c\""}});
  EXPECT_EQ(out.text(),
            "# HELP g a\\\\b\\n\"c\"\n"
            "# TYPE g gauge\n"
            "g{model=\"a\\\\b\\n\\\"c\\\"\"} 1\n");
}

TEST(ExpositionTest, LargeAndStrangeNumbersAreExact) {
  const auto written = [](double value) {
    Exposition out("", {});
    out.gauge("g", "h", value);
    return out.text().substr(out.text().rfind(' ') + 1);
  };
  EXPECT_EQ(written(1234567890123456.0), "1234567890123456\n");
  EXPECT_EQ(std::stod(written(1e30)), 1e30);
  EXPECT_EQ(std::stod(written(0.1 + 0.2)), 0.1 + 0.2);
  EXPECT_EQ(written(std::nan("")), "NaN\n");
  EXPECT_EQ(written(std::numeric_limits<double>::infinity()), "+Inf\n");
  EXPECT_EQ(written(-std::numeric_limits<double>::infinity()), "-Inf\n");
}

TEST(ExpositionTest, NamesThatPrometheusTakes) {
  for (const char* good : {"minisgl:", "vllm:", "a", "_x9"}) EXPECT_TRUE(is_metric_name(good));
  for (const char* bad : {"", "9a", "a-b", "a b", "ä", "a{"}) EXPECT_FALSE(is_metric_name(bad));
}

}  // namespace
}  // namespace minisgl::metrics

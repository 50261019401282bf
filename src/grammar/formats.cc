#include "grammar/formats.h"

#include <algorithm>
#include <iterator>

namespace minisgl {
namespace {

const std::string kDate =
    "[1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|"
    "(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))";
const std::string kTime =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
const std::string kLabel = "[A-Za-z0-9]([A-Za-z0-9-]{0,20}[A-Za-z0-9])?";
const std::string kHost = kLabel + "(\\." + kLabel + "){0,4}";
const std::string kByte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
const std::string kGroup = "[0-9A-Fa-f]{1,4}";
const std::string kDays = "[0-9]{1,6}";
const std::string kClock =
    "T([0-9]{1,6}H([0-9]{1,6}M([0-9]{1,6}S)?)?|[0-9]{1,6}M([0-9]{1,6}S)?|"
    "[0-9]{1,6}S)";
const std::string kPath = "[A-Za-z0-9._~!$&()*+,;=:@-]{0,40}";

struct Format {
  std::string_view name;
  std::string pattern;
};

const Format kFormats[] = {
    {"date", kDate},
    {"date-time", kDate + "T" + kTime},
    {"duration", "P((" + kDays + "Y(" + kDays + "M(" + kDays + "D)?)?|" + kDays + "M(" + kDays +
                     "D)?|" + kDays + "D)(" + kClock + ")?|" + kClock + "|" + kDays + "W)"},
    {"email",
     "[A-Za-z0-9_+-]{1,30}(\\.[A-Za-z0-9_+-]{1,20}){0,2}@" + kLabel + "(\\." + kLabel + "){1,4}"},
    {"hostname", kHost},
    {"ipv4", kByte + "(\\." + kByte + "){3}"},
    // All eight groups, or some left out in one place.
    {"ipv6", "(" + kGroup + "(:" + kGroup + "){7}|" + kGroup + "::(" + kGroup + "(:" + kGroup +
                 "){0,4})?|::(" + kGroup + "(:" + kGroup + "){0,5})?|" + kGroup + "(:" + kGroup +
                 "){1,3}::(" + kGroup + "(:" + kGroup + "){0,2})?)"},
    {"time", kTime},
    {"uri", "[a-z][a-z0-9+.-]{0,15}://" + kHost + "(:[0-9]{1,4})?(/" + kPath + "){0,8}(\\?" +
                kPath + ")?(#" + kPath + ")?"},
    {"uuid", "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"},
};

}  // namespace

std::string pattern_of_format(std::string_view format) {
  const auto* const found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                         [&](const Format& f) { return f.name == format; });
  return found == std::end(kFormats) ? "" : found->pattern;
}

std::string known_formats() {
  std::string names;
  for (const Format& format : kFormats)
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  return names;
}

}  // namespace minisgl

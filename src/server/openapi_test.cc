#include "server/openapi.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "server/json.h"
#include "server/routes.h"

namespace minisgl {
namespace {

// "GET /v1/models", ...
std::set<std::string> served() {
  std::set<std::string> all;
  for (const auto& [path, methods] : Routes::paths()) {
    std::string name(path);
    if (name.ends_with('/')) name += "{id}";
    for (const char* method : {"GET", "POST"})
      if (methods.find(method) != std::string_view::npos)
        all.insert(std::string(method) + " " + name);
  }
  return all;
}

TEST(OpenApiTest, DescribesEveryPathAndMethodAndNoOther) {
  std::set<std::string> described;
  const Json document = Json::parse(openapi_json());
  for (const auto& [path, item] : document["paths"].items()) {
    if (item.contains("get")) described.insert("GET " + path);
    if (item.contains("post")) described.insert("POST " + path);
  }
  EXPECT_EQ(described, served());
}

TEST(OpenApiTest, EveryReferenceLeadsSomewhere) {
  const std::string& text = openapi_json();
  const Json document = Json::parse(text);
  const std::string mark = "{\"$ref\":\"#";
  std::size_t num_references = 0;
  for (std::size_t at = 0; (at = text.find(mark, at)) != std::string::npos; ++num_references) {
    at += mark.size();
    const std::string pointer = text.substr(at, text.find('"', at) - at);
    EXPECT_TRUE(document.contains(Json::json_pointer(pointer))) << pointer;
  }
  EXPECT_GT(num_references, 20U);
}

}  // namespace
}  // namespace minisgl

// The description of the HTTP API for programs.
// Source: https://spec.openapis.org/oas/v3.1.0

#pragma once

#include <string>

namespace minisgl {

/// What GET /openapi.json answers: OpenAPI 3.1. A test holds its paths and methods against the
/// routes. docs/http_api.md is the same for people.
const std::string& openapi_json();

}  // namespace minisgl

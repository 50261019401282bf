// The bodies of requests and replies as JSON schemas, for the description of the API.

#pragma once

#include "server/json.h"

namespace minisgl {

/// "#/components/schemas" of an OpenAPI 3.1 document: schemas by name, referring to each other.
Json openapi_schemas();

}  // namespace minisgl

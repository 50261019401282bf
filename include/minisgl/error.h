// What minisgl throws. Part of the public interface: no other header of the project is needed.

#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace minisgl {

/// Something the user or the environment got wrong, or a broken invariant. what() is one line that
/// names the cause and, where there is one, what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A request that cannot be served as it was asked. The server answers it with status 400; the
/// engine and other requests are not disturbed.
class RequestError : public Error {
 public:
  /// `param` is the field at fault ("prompt", "max_tokens", ...; may be empty), `code` a
  /// machine-readable reason such as "context_length_exceeded" (may be empty).
  explicit RequestError(const std::string& message, std::string param = "", std::string code = "")
      : Error(message), param_(std::move(param)), code_(std::move(code)) {}

  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  std::string param_;
  std::string code_;
};

}  // namespace minisgl

#include "pull/http.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <exception>
#include <optional>
#include <thread>

#include "base/check.h"
#include "minisgl/error.h"

namespace minisgl::pull {
namespace {

constexpr int kMaxRedirects = 10;
constexpr std::size_t kMaxBody = 64 << 20;
constexpr long kConnectTimeout_s = 20;
constexpr long kIdleTimeout_s = 30;

/// A parsed address.
class Url {
 public:
  explicit Url(const std::string& text) : url_(curl_url()) { set(text); }
  ~Url() { curl_url_cleanup(url_); }
  Url(const Url&) = delete;
  Url& operator=(const Url&) = delete;

  /// A relative one is relative to what this was.
  void set(const std::string& text) {
    const CURLUcode code = curl_url_set(url_, CURLUPART_URL, text.c_str(), 0);
    if (code != CURLUE_OK) throw Error("'" + text + "' is no address: " + curl_url_strerror(code));
  }
  std::string part(CURLUPart which) const {
    char* text = nullptr;
    const unsigned int flags = which == CURLUPART_URL ? 0 : CURLU_DEFAULT_PORT;
    if (curl_url_get(url_, which, &text, flags) != CURLUE_OK) return {};
    std::string copy = text;
    curl_free(text);
    return copy;
  }

 private:
  CURLU* url_;
};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

/// What the callbacks of one request share.
struct HttpClient::Transfer {
  const HttpClient& client;
  const Request& request;
  HttpReply reply;
  bool asked = false;  // on_reply was called
  bool wanted = true;  // and said yes
  bool stopped = false;
  std::exception_ptr thrown;

  static std::size_t on_header(char* data, std::size_t, std::size_t size, void* self) {
    auto& reply = static_cast<Transfer*>(self)->reply;
    const std::string_view line(data, size);
    if (line.starts_with("HTTP/")) {  // an interim reply, or a proxy's, came before
      reply.headers.clear();
      return size;
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return size;
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
    while (!value.empty() && (value.back() == '\r' || value.back() == '\n' || value.back() == ' '))
      value.remove_suffix(1);
    reply.headers[lower(std::string(line.substr(0, colon)))] = value;
    return size;
  }

  static std::size_t on_data(char* data, std::size_t, std::size_t size, void* self) {
    auto& transfer = *static_cast<Transfer*>(self);
    try {
      return transfer.take({reinterpret_cast<const std::byte*>(data), size}) ? size : 0;
    } catch (...) {
      transfer.thrown = std::current_exception();
      return 0;
    }
  }

  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    auto& transfer = *static_cast<Transfer*>(self);
    transfer.stopped = transfer.client.stop_ && transfer.client.stop_();
    return transfer.stopped ? 1 : 0;
  }

  void ask() {
    if (asked) return;
    asked = true;
    long status = 0;
    curl_easy_getinfo(client.curl_, CURLINFO_RESPONSE_CODE, &status);
    reply.status = static_cast<int>(status);
    if (request.on_reply && !is_redirect(reply.status)) wanted = request.on_reply(reply);
  }

  bool take(std::span<const std::byte> bytes) {
    ask();
    if (!wanted) return false;
    if (request.on_body && reply.status < 300) {
      request.on_body(bytes);
      return true;
    }
    if (reply.body.size() + bytes.size() > kMaxBody) throw Error("a reply has more than 64 MiB");
    reply.body.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return true;
  }
};

HttpClient::HttpClient(std::function<bool()> stop) : stop_(std::move(stop)), curl_(nullptr) {
  static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (ready == CURLE_OK) curl_ = curl_easy_init();
  if (curl_ == nullptr) throw Error("libcurl cannot be used");
}

HttpClient::~HttpClient() { curl_easy_cleanup(curl_); }

HttpReply HttpClient::get_once(const std::string& url, const std::string& token,
                               const Request& request) {
  Transfer transfer{.client = *this, .request = request, .reply = {}, .thrown = {}};
  std::array<char, CURL_ERROR_SIZE> message{};
  curl_easy_reset(curl_);  // keeps the connection
  const auto set = [&](auto option, auto value) { curl_easy_setopt(curl_, option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_USERAGENT, "minisgl");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_CONNECTTIMEOUT, kConnectTimeout_s);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, kIdleTimeout_s);
  set(CURLOPT_BUFFERSIZE, 512L << 10);
  set(CURLOPT_ERRORBUFFER, message.data());
  set(CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, &Transfer::on_data);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &Transfer::on_progress);
  set(CURLOPT_XFERINFODATA, &transfer);
  if (!token.empty()) {
    set(CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    set(CURLOPT_XOAUTH2_BEARER, token.c_str());
  }
  const std::string range = std::to_string(request.from) + "-";
  if (request.from > 0) set(CURLOPT_RANGE, range.c_str());

  const CURLcode code = curl_easy_perform(curl_);
  if (transfer.stopped) throw Stopped();
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  if (code == CURLE_OK) transfer.ask();  // when there was no body
  if (code != CURLE_OK && transfer.wanted)
    transfer.reply.fault = message[0] != '\0' ? message.data() : curl_easy_strerror(code);
  return std::move(transfer.reply);
}

HttpReply HttpClient::get(const Request& request) {
  std::string url = request.url;
  for (int hop = 0; hop <= kMaxRedirects; ++hop) {
    const bool trusted = same_origin(url, request.url);
    HttpReply reply = get_once(url, trusted ? request.token : "", request);
    if (!is_redirect(reply.status)) return reply;
    const std::string target = resolve_url(url, reply.header("location"));
    if (url.starts_with("https:") && !target.starts_with("https:"))
      throw Error(url + " redirects to " + target + ", which is not encrypted");
    url = target;
  }
  throw Error(request.url + " redirects more than " + std::to_string(kMaxRedirects) + " times");
}

void HttpClient::sleep(std::chrono::milliseconds time) const {
  constexpr auto kStep = std::chrono::milliseconds(100);
  const auto end = std::chrono::steady_clock::now() + time;
  for (;;) {
    if (stop_ && stop_()) throw Stopped();
    if (std::chrono::steady_clock::now() >= end) return;
    std::this_thread::sleep_for(
        std::min<std::chrono::nanoseconds>(kStep, end - std::chrono::steady_clock::now()));
  }
}

bool same_origin(const std::string& a, const std::string& b) {
  const Url left(a), right(b);
  for (const CURLUPart part : {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT})
    if (lower(left.part(part)) != lower(right.part(part))) return false;
  return true;
}

std::string resolve_url(const std::string& base, const std::string& location) {
  if (location.empty()) throw Error(base + " redirects to nowhere");
  Url url(base);
  url.set(location);
  return url.part(CURLUPART_URL);
}

std::string encode_url(const std::string& text, bool keep_slashes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slashes);
    if (plain) {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

}  // namespace minisgl::pull

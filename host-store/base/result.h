// SPDX-License-Identifier: GPL-2.0-only
// Errors as values: a Result<T> holds a T or an Error, and may not be ignored.
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace tmem {

enum class ErrorCode {
  kInvalidArgument,  // the caller (operator, guest, peer) gave something that cannot be right
  kNotFound,
  kAlreadyExists,
  kExhausted,    // a bound, a limit or a credit is used up
  kUnavailable,  // the other side is not there (yet, or any more)
  kCorrupt,      // bytes do not match their checksum or their format
  kSystem,       // a system call failed; the message says which and why
  kInternal,
};

constexpr const char* ToString(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kNotFound: return "not found";
    case ErrorCode::kAlreadyExists: return "already exists";
    case ErrorCode::kExhausted: return "exhausted";
    case ErrorCode::kUnavailable: return "unavailable";
    case ErrorCode::kCorrupt: return "corrupt";
    case ErrorCode::kSystem: return "system";
    case ErrorCode::kInternal: return "internal";
  }
  return "unknown";
}

// What went wrong, for a person. Making one allocates: outcomes of the data path (a miss, "does
// not fit") are types of their own and never an Error.
struct [[nodiscard]] Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;

  std::string Describe() const { return std::string(ToString(code)) + ": " + message; }
};

// The error of the system call that just failed; `call` names it ("bind /run/x.sock").
// Takes errno as an argument default, so it is read before anything can change it.
inline Error SystemError(std::string call, int error_number = errno) {
  // strerror is thread-safe in glibc since 2.32 (Debian 12 has 2.36).
  return {ErrorCode::kSystem, std::move(call) + ": " + std::strerror(error_number)};
}

namespace internal {
[[noreturn]] inline void DieOfError(const Error& error) {
  std::fprintf(stderr, "tmem: value() of a Result that holds an error: %s\n",
               error.Describe().c_str());
  std::abort();
}
}  // namespace internal

// A T or an Error. Taking the value of an error stops the program: it is a bug of the caller.
// Not synchronised. Costs a variant.
template <typename T>
class [[nodiscard]] Result {
  static_assert(!std::is_same_v<T, Error> && !std::is_reference_v<T>);

 public:
  // Implicit, so that a function returns a value or an Error as it is.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    CheckOk();
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    CheckOk();
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    CheckOk();
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Only when !ok().
  const Error& error() const& { return *std::get_if<1>(&state_); }
  Error&& error() && { return std::move(*std::get_if<1>(&state_)); }

 private:
  void CheckOk() const {
    if (!ok()) internal::DieOfError(error());
  }

  std::variant<T, Error> state_;
};

// Success without a value, or an Error. `return Ok();` for success.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  void value() const {
    if (!ok()) internal::DieOfError(error());
  }

  // Only when !ok().
  const Error& error() const& { return *std::get_if<1>(&state_); }
  Error&& error() && { return std::move(*std::get_if<1>(&state_)); }

 private:
  std::variant<std::monostate, Error> state_;
};

inline Result<void> Ok() {
  return {};
}

}  // namespace tmem

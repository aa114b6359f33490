// `auto r = co_await as_result(work);` gives a result<T> where `co_await work` would throw `failure`.
// Exceptions other than `failure` pass through: they are not the library's.
#pragma once

#include <chorale/async/result.hpp>
#include <chorale/async/task.hpp>

namespace chorale {

template <class T>
task<result<T>> as_result(task<T> work) {
  try {
    if constexpr (std::is_void_v<T>) {
      co_await std::move(work);
      co_return result<void>{};
    } else {
      T value = co_await std::move(work);
      co_return result<T>{std::move(value)};
    }
  } catch (const failure& f) {
    co_return result<T>{f.why()};
  }
}

}  // namespace chorale

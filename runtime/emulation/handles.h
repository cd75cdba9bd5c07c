// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lists of live objects, whose handles are their addresses. A handle that is
// not in the list, because it was destroyed or never made, is detected instead
// of dereferenced.
#pragma once

#include <memory>
#include <unordered_map>
#include <utility>

namespace fsdpc::runtime::emulation {

/// Handles are not thread-safe; the owner locks. Objects are shared, so that
/// work that is enqueued keeps what it uses alive after the handle is gone.
template <typename T> class Handles {
public:
  /// The address is unique while the object lives.
  void *add(std::shared_ptr<T> object) {
    void *handle = object.get();
    objects.emplace(handle, std::move(object));
    return handle;
  }
  /// Returns null if the handle is not alive.
  std::shared_ptr<T> find(const void *handle) const {
    auto at = objects.find(handle);
    return at == objects.end() ? nullptr : at->second;
  }
  /// Returns null if the handle is not alive. The object ends with the last
  /// reference, which may be that of enqueued work.
  std::shared_ptr<T> remove(const void *handle) {
    std::shared_ptr<T> object = find(handle);
    objects.erase(handle);
    return object;
  }
  /// In no particular order. `visit` must not add or remove objects.
  template <typename Visit> void each(Visit visit) {
    for (auto &[handle, object] : objects)
      visit(*object);
  }
  size_t size() const { return objects.size(); }

private:
  std::unordered_map<const void *, std::shared_ptr<T>> objects;
};

} // namespace fsdpc::runtime::emulation

// The name of a type without its namespaces.
#pragma once

#include <cxxabi.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <typeinfo>

namespace lathe::engine::simulation {

// Returns "SendAck" for lathe::engine::SendAck.
template <typename T>
std::string TypeName() {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(
      abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, &status), &std::free);
  const std::string whole = status == 0 ? name.get() : typeid(T).name();
  return whole.substr(whole.rfind(':') + 1);
}

}  // namespace lathe::engine::simulation

// EMULATED_KERNEL(name) makes a kernel known to cuModuleGetFunction. The builder writes one for each entry of the PTX.
#pragma once
#include <stddef.h>
#include <string.h>

namespace emulator {
const int MOST_ARGUMENTS = 48, LARGEST_ARGUMENT = 256;
struct Arguments { alignas(16) char at[MOST_ARGUMENTS][LARGEST_ARGUMENT]; };

struct Kernel {
  const char *name;
  void (*copy)(Arguments &to, void **arguments);
  void (*call)(const Arguments &);
  Kernel *next;
  Kernel(const char *name, void (*copy)(Arguments &, void **), void (*call)(const Arguments &));
};
extern Kernel *kernels;

template <size_t... I> struct Indices {};
template <auto F> struct Bound;
template <class... T, void (*F)(T...)> struct Bound<F> {
  static_assert(sizeof...(T) <= MOST_ARGUMENTS && (... && (sizeof(T) <= LARGEST_ARGUMENT)));
  static void copy(Arguments &to, void **arguments) {
    int i = 0;
    ((memcpy(to.at[i], arguments[i], sizeof(T)), i++), ...);
  }
  template <size_t... I> static void spread(const Arguments &from, Indices<I...>) { F(*(T *)from.at[I]...); }
  static void call(const Arguments &from) { spread(from, Indices<__integer_pack(sizeof...(T))...>{}); }
};
} // namespace emulator

#define EMULATED_KERNEL(name)                                                                                          \
  static emulator::Kernel emulated_##name(#name, emulator::Bound<name>::copy, emulator::Bound<name>::call);

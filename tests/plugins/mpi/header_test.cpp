// SPDX-License-Identifier: Apache-2.0
// The plugin's own declarations of MPI against a library's header, whichever the build has given.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include OTR_MPI_HEADER

#include <type_traits>

#include "plugins/mpi/library.h"

namespace outrigger::mpi {
namespace {

using Handle = std::conditional_t<std::is_pointer_v<MPI_Comm>, void*, MPI_Comm>;

#define OTR_IS_HANDLE(type)                       \
  static_assert(sizeof(type) == sizeof(Handle) && \
                std::is_pointer_v<type> == std::is_pointer_v<Handle>)
OTR_IS_HANDLE(MPI_Comm);
OTR_IS_HANDLE(MPI_Datatype);
OTR_IS_HANDLE(MPI_Op);
OTR_IS_HANDLE(MPI_Request);
OTR_IS_HANDLE(MPI_Group);
OTR_IS_HANDLE(MPI_Errhandler);

// As many parameters, each passed alike.
template <typename Ours, typename Theirs>
struct IsLike : std::false_type {};
template <typename... A, typename... B>
struct IsLike<int(A...), int(B...)>
    : std::bool_constant<sizeof...(A) == sizeof...(B) && ((sizeof(A) == sizeof(B)) && ...) &&
                         ((std::is_pointer_v<A> == std::is_pointer_v<B>) && ...)> {};

#define OTR_COMPARE(symbol, ...) \
  static_assert(IsLike<int(__VA_ARGS__), decltype(symbol)>::value, #symbol);
OTR_MPI_FUNCTIONS(OTR_COMPARE)

template <typename T>
uint64_t number(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<uintptr_t>(value);
  } else {
    return static_cast<uint64_t>(value);
  }
}

TEST(MpiHeader, HasTheConstantsOfThePlugin) {
#if defined(OPEN_MPI)
  const auto ours = open_mpi_constants([](const char* name) { return dlsym(RTLD_DEFAULT, name); });
  EXPECT_EQ(ours.failed, MPI_ERR_PROC_FAILED);
  EXPECT_EQ(ours.failed_pending, MPI_ERR_PROC_FAILED_PENDING);
#elif defined(MPICH)
  const auto ours = mpich_constants();
  EXPECT_EQ(ours.failed, MPIX_ERR_PROC_FAILED);
  EXPECT_EQ(ours.failed_pending, MPIX_ERR_PROC_FAILED_PENDING);
#else
  const auto ours = standard_constants();
  EXPECT_EQ(ours.failed, MPI_ERR_PROC_ABORTED);
#endif
  EXPECT_EQ(number(ours.comm_world), number(MPI_COMM_WORLD));
  EXPECT_EQ(number(ours.comm_self), number(MPI_COMM_SELF));
  EXPECT_EQ(number(ours.byte), number(MPI_BYTE));
  EXPECT_EQ(number(ours.uint64), number(MPI_UINT64_T));
  EXPECT_EQ(number(ours.min), number(MPI_MIN));
  EXPECT_EQ(number(ours.errors_return), number(MPI_ERRORS_RETURN));
  EXPECT_EQ(number(ours.request_null), number(MPI_REQUEST_NULL));
  EXPECT_EQ(number(ours.status_ignore), number(MPI_STATUS_IGNORE));
  EXPECT_EQ(number(ours.in_place), number(MPI_IN_PLACE));
  EXPECT_EQ(ours.serialized, MPI_THREAD_SERIALIZED);
  EXPECT_EQ(ours.multiple, MPI_THREAD_MULTIPLE);
  EXPECT_EQ(ours.any_source, MPI_ANY_SOURCE);
  EXPECT_EQ(kUndefined, MPI_UNDEFINED);
}

}  // namespace
}  // namespace outrigger::mpi

// SPDX-License-Identifier: Apache-2.0
// The part of MPI that the plugin uses, in declarations of our own. MPI libraries have three binary
// interfaces: Open MPI's, MPICH's (Intel MPI, MVAPICH, Cray MPICH), and the standard's since MPI 5.
// So one plugin serves all, builds without a header, and starts without a library. Where headers
// are, a test compares (tests/plugins/mpi/header_test.cpp).
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <variant>

namespace outrigger::mpi {

// FUNCTION(symbol, parameters…): every function returns an error. Handle: of any object.
#define OTR_MPI_FUNCTIONS(FUNCTION)                                                       \
  FUNCTION(MPI_Initialized, int*)                                                         \
  FUNCTION(MPI_Finalized, int*)                                                           \
  FUNCTION(MPI_Init_thread, int*, char***, int, int*)                                     \
  FUNCTION(MPI_Query_thread, int*)                                                        \
  FUNCTION(MPI_Finalize)                                                                  \
  FUNCTION(MPI_Get_library_version, char*, int*)                                          \
  FUNCTION(MPI_Error_class, int, int*)                                                    \
  FUNCTION(MPI_Error_string, int, char*, int*)                                            \
  FUNCTION(MPI_Comm_rank, Handle, int*)                                                   \
  FUNCTION(MPI_Comm_size, Handle, int*)                                                   \
  FUNCTION(MPI_Comm_idup, Handle, Handle*, Handle*)                                       \
  FUNCTION(MPI_Comm_split, Handle, int, int, Handle*)                                     \
  FUNCTION(MPI_Comm_free, Handle*)                                                        \
  FUNCTION(MPI_Comm_set_errhandler, Handle, Handle)                                       \
  FUNCTION(MPI_Comm_create_keyval, int (*)(Handle, int, void*, void*, void*, int*),       \
           int (*)(Handle, int, void*, void*), int*, void*)                               \
  FUNCTION(MPI_Comm_set_attr, Handle, int, void*)                                         \
  FUNCTION(MPI_Iallgather, const void*, int, Handle, void*, int, Handle, Handle, Handle*) \
  FUNCTION(MPI_Ialltoall, const void*, int, Handle, void*, int, Handle, Handle, Handle*)  \
  FUNCTION(MPI_Iallreduce, const void*, void*, int, Handle, Handle, Handle, Handle*)      \
  FUNCTION(MPI_Ibcast, void*, int, Handle, int, Handle, Handle*)                          \
  FUNCTION(MPI_Isend, const void*, int, Handle, int, int, Handle, Handle*)                \
  FUNCTION(MPI_Irecv, void*, int, Handle, int, int, Handle, Handle*)                      \
  FUNCTION(MPI_Test, Handle*, int*, void*)                                                \
  FUNCTION(MPI_Cancel, Handle*)                                                           \
  FUNCTION(MPI_Comm_group, Handle, Handle*)                                               \
  FUNCTION(MPI_Group_size, Handle, int*)                                                  \
  FUNCTION(MPI_Group_translate_ranks, Handle, int, const int*, Handle, int*)              \
  FUNCTION(MPI_Group_free, Handle*)
// … and libraries with user-level failure mitigation (ULFM) these, too.
#define OTR_MPI_FAILURE_FUNCTIONS(FUNCTION)       \
  FUNCTION(MPIX_Comm_get_failed, Handle, Handle*) \
  FUNCTION(MPIX_Comm_failure_ack, Handle)

// What the three interfaces give different values.
template <typename Handle>
struct Constants {
  Handle comm_world, comm_self, byte, uint64, min, errors_return, request_null;
  void *status_ignore, *in_place;
  int serialized, multiple;  // levels of threads
  int any_source;
  int failed, failed_pending;  // classes of errors: a process has ended
};

template <typename Handle>
struct Mpi {
#define OTR_MPI_ENTRY(symbol, ...) int (*symbol)(__VA_ARGS__) = nullptr;
  OTR_MPI_FUNCTIONS(OTR_MPI_ENTRY)
  OTR_MPI_FAILURE_FUNCTIONS(OTR_MPI_ENTRY)  // null where the library has none
#undef OTR_MPI_ENTRY
  Constants<Handle> constants;
  std::string path;
  std::string version;       // of the library, its first line
  bool takes_turns = false;  // MPI_THREAD_SERIALIZED: no two calls at a time
  std::mutex* turns = nullptr;
};

using PointerMpi = Mpi<void*>;  // Open MPI, the standard's
using IntMpi = Mpi<int>;        // MPICH
using Library = std::variant<PointerMpi, IntMpi>;

inline constexpr int kUndefined = -32766;  // a color, in all three

// at: the address of a variable of the library, whose objects they are.
[[nodiscard]] Constants<void*> open_mpi_constants(void* (*at)(const char* name));
[[nodiscard]] Constants<void*> standard_constants();
[[nodiscard]] Constants<int> mpich_constants();

// The library that OTR_MPI_LIBRARY names, else the one that this process has loaded already, else
// the one that fits the launcher, else the first that is found; loaded once, initialised with
// MPI_THREAD_MULTIPLE if it was not. Throws one Failure with every path tried; the next call tries
// again.
[[nodiscard]] const Library& library();

// Whether the library is loaded, and MPI_Finalize was not called.
[[nodiscard]] bool is_running();
// Called once, in MPI_Finalize, while MPI still works.
void set_farewell(void (*farewell)());
// From now on MPI_Finalize may wait for ever: at the process's end it is not called.
void leave_unfinished();
[[nodiscard]] bool is_unfinished();

}  // namespace outrigger::mpi

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034 # launchers is read by who sources this
# Sourced at the tree's root by what configures a build: `launchers`, CMake's options for ccache where there is one.
launchers=()
if command -v ccache > /dev/null; then
  export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 # clones in other folders find each other's objects
  launchers=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi

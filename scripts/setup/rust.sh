# SPDX-License-Identifier: Apache-2.0
# Rust: the machine's own cargo, else Debian's (cargo-web is the newer of its two).
# shellcheck shell=bash

setup_rust() {
  ! command -v cargo > /dev/null || return 0
  if command -v apt-get > /dev/null && may_install; then
    installing "apt: cargo-web"
    apt-cache show cargo-web > /dev/null 2>&1 || apt_get update || true
    apt_install cargo-web || true
  fi
  command -v cargo > /dev/null || skip rust "no cargo on PATH and no package for it; install Rust 1.75 or newer"
}

# The crates that rust/Cargo.lock names, into cargo's own cache.
setup_crates() {
  command -v cargo > /dev/null || return 0 # named as a skip already
  ! cargo metadata --offline --locked --format-version 1 --manifest-path rust/Cargo.toml > /dev/null 2>&1 || return 0
  installing "cargo fetch: the crates that rust/Cargo.lock names"
  cargo fetch --quiet --locked --manifest-path rust/Cargo.toml || skip rust "cargo could not fetch the crates that rust/Cargo.lock names"
}

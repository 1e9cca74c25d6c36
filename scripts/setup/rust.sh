# SPDX-License-Identifier: Apache-2.0
# Rust: the machine's own cargo, else Debian's (cargo-web is the newer of its two).
# shellcheck shell=bash

setup_rust() {
  ! command -v cargo > /dev/null || return 0
  if command -v apt-get > /dev/null && may_install; then
    installing "apt: cargo-web rustfmt-web rust-web-clippy"
    apt-cache show cargo-web > /dev/null 2>&1 || apt_get update || true
    apt_install cargo-web rustfmt-web rust-web-clippy || apt_install cargo-web || true
  fi
  command -v cargo > /dev/null || skip rust "no cargo on PATH and no package for it; install Rust 1.77 or newer"
}

# The crates that a workspace's Cargo.lock names, into cargo's own cache: setup_crates [FOLDER]
setup_crates() {
  local folder=${1:-rust}
  command -v cargo > /dev/null || return 0 # named as a skip already
  ! cargo metadata --offline --locked --format-version 1 --manifest-path "$folder/Cargo.toml" > /dev/null 2>&1 || return 0
  installing "cargo fetch: the crates that $folder/Cargo.lock names"
  cargo fetch --quiet --locked --manifest-path "$folder/Cargo.toml" || skip rust "cargo could not fetch the crates that $folder/Cargo.lock names"
}

# What the long tests need besides: candle and burn, and where there is a rustup the oldest compiler that the crates are for.
setup_rust_soak() {
  setup_crates rust/outrigger-candle
  setup_crates rust/outrigger-burn
  command -v rustup > /dev/null || return 0
  ! rustup run 1.77 cargo --version > /dev/null 2>&1 || return 0
  installing "rustup: 1.77"
  { rustup toolchain install 1.77 --profile minimal --no-self-update > /dev/null 2>&1 &&
    rustup run 1.77 cargo fetch --quiet --locked --manifest-path rust/Cargo.toml; } || skip rust "rustup could not install Rust 1.77"
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! This crate's own tests and examples find the library where outrigger-sys has found it.
fn main() {
    println!("cargo:rerun-if-env-changed=DEP_OUTRIGGER_LIBDIR");
    if let Ok(directory) = std::env::var("DEP_OUTRIGGER_LIBDIR") {
        println!("cargo:rustc-link-arg=-Wl,-rpath,{directory}");
    }
}

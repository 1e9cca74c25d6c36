// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds liboutrigger: OUTRIGGER_LIB_DIR, else pkg-config.
use std::env;
use std::path::Path;
use std::process::{exit, Command};

// A library of another binary interface is never taken: 0.1.x has ABI 0.
const VERSION_RANGE: [&str; 2] = ["outrigger >= 0.1.0", "outrigger < 0.2.0"];

fn main() {
    println!("cargo:rerun-if-env-changed=OUTRIGGER_LIB_DIR");
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    let directory = match env::var("OUTRIGGER_LIB_DIR") {
        Ok(directory) if has_library(&directory) => directory,
        Ok(directory) => fail(&format!(
            "OUTRIGGER_LIB_DIR={directory} holds no {}",
            library_name()
        )),
        Err(_) => pkg_config().unwrap_or_else(|reason| fail(&reason)),
    };
    println!("cargo:rustc-link-search=native={directory}");
    println!("cargo:rustc-link-lib=dylib=outrigger");
    println!("cargo:libdir={directory}"); // DEP_OUTRIGGER_LIBDIR for crates that depend on this one
}

fn library_name() -> &'static str {
    match env::var("CARGO_CFG_TARGET_OS").as_deref() {
        Ok("macos") => "liboutrigger.dylib",
        Ok("windows") => "outrigger.lib",
        _ => "liboutrigger.so",
    }
}

fn has_library(directory: &str) -> bool {
    Path::new(directory).join(library_name()).exists()
}

fn pkg_config() -> Result<String, String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".into());
    let found = Command::new(&program)
        .args(["--print-errors", "--exists"])
        .args(VERSION_RANGE)
        .output()
        .map_err(|error| format!("{program} cannot be run: {error}"))?;
    if !found.status.success() {
        return Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&found.stderr).trim()
        ));
    }
    let output = Command::new(&program)
        .args(["--variable=libdir", "outrigger"])
        .output()
        .map_err(|error| format!("{program} cannot be run: {error}"))?;
    let directory = String::from_utf8_lossy(&output.stdout).trim().to_string();
    if has_library(&directory) {
        Ok(directory)
    } else {
        Err(format!(
            "{program} says libdir={directory}, which holds no {}",
            library_name()
        ))
    }
}

fn fail(reason: &str) -> ! {
    eprintln!("outrigger-sys needs the library outrigger 0.1: {reason}");
    eprintln!("Build it (cmake -S . -B build && cmake --build build --target outrigger, in the root of the");
    eprintln!("source tree) and set OUTRIGGER_LIB_DIR to its build folder; or install it, so that pkg-config");
    eprintln!("knows outrigger.pc.");
    exit(1);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds liboutrigger: OUTRIGGER_LIB_DIR, else pkg-config, else with the feature bundled CMake's build.
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{exit, Command};

// A library of another binary interface is never taken: 0.1.x has ABI 0.
const VERSION_RANGE: [&str; 2] = ["outrigger >= 0.1.0", "outrigger < 0.2.0"];

fn main() {
    for name in ["LIB_DIR", "SOURCE_DIR"] {
        println!("cargo:rerun-if-env-changed=OUTRIGGER_{name}");
    }
    println!("cargo:rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo:rerun-if-env-changed=DOCS_RS");
    // Documentation needs no library, and a program that loads it needs none yet.
    if env::var_os("DOCS_RS").is_some() || has_feature("DLOPEN") {
        return;
    }
    let directory = match env::var("OUTRIGGER_LIB_DIR") {
        Ok(directory) if has_library(&directory) => directory,
        Ok(directory) => fail(&format!(
            "OUTRIGGER_LIB_DIR={directory} holds no {}",
            library_name()
        )),
        Err(_) => pkg_config()
            .or_else(|reason| {
                if has_feature("BUNDLED") {
                    bundled()
                } else {
                    Err(reason)
                }
            })
            .unwrap_or_else(|reason| fail(&reason)),
    };
    println!("cargo:rustc-link-search=native={directory}");
    println!("cargo:rustc-link-lib=dylib=outrigger");
    println!("cargo:libdir={directory}"); // DEP_OUTRIGGER_LIBDIR for crates that depend on this one
}

fn has_feature(name: &str) -> bool {
    env::var_os(format!("CARGO_FEATURE_{name}")).is_some()
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

/// Compiles the library where cargo puts what it makes.
fn bundled() -> Result<String, String> {
    let source = source()?;
    for part in ["CMakeLists.txt", "c_api", "cmake", "core", "kernels"] {
        println!("cargo:rerun-if-changed={}", source.join(part).display());
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("library");
    cmake(&[
        "-S".as_ref(),
        source.as_os_str(),
        "-B".as_ref(),
        out.as_os_str(),
        "-DCMAKE_BUILD_TYPE=Release".as_ref(),
        "-DOTR_TESTS=OFF".as_ref(),
        "-DOTR_EXAMPLES=OFF".as_ref(),
        "-DOTR_UNITY=ON".as_ref(),
    ])?;
    let jobs = env::var_os("NUM_JOBS").unwrap_or_else(|| "1".into());
    cmake(&[
        "--build".as_ref(),
        out.as_os_str(),
        "--target".as_ref(),
        "outrigger".as_ref(),
        "--parallel".as_ref(),
        &jobs,
    ])?;
    let directory = out.display().to_string();
    if has_library(&directory) {
        Ok(directory)
    } else {
        Err(format!("cmake left no {} in {directory}", library_name()))
    }
}

/// The source tree of this release.
fn source() -> Result<PathBuf, String> {
    let named = env::var_os("OUTRIGGER_SOURCE_DIR").map(PathBuf::from);
    let source = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    let header = source.join("c_api/include/outrigger.h");
    let remedy = "set OUTRIGGER_SOURCE_DIR to its source tree";
    let text = fs::read_to_string(&header)
        .map_err(|error| format!("{} cannot be read ({error}); {remedy}", header.display()))?;
    let version = concat!("OTR_VERSION_STRING \"", env!("CARGO_PKG_VERSION"), "\"");
    if !text.contains(version) {
        let wanted = env!("CARGO_PKG_VERSION");
        return Err(format!(
            "{} is not of the release {wanted}; {remedy}",
            header.display()
        ));
    }
    Ok(source)
}

fn cmake(arguments: &[&OsStr]) -> Result<(), String> {
    let program = env::var("CMAKE").unwrap_or_else(|_| "cmake".into());
    let status = Command::new(&program)
        .args(arguments)
        .stdout(std::io::stderr()) // cargo reads what this program writes to stdout
        .status()
        .map_err(|error| format!("{program} cannot be run: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!(
            "{program} has failed ({status}); its words are above"
        ))
    }
}

fn fail(reason: &str) -> ! {
    eprintln!("outrigger-sys needs the library outrigger 0.1: {reason}");
    eprintln!("Build it (cmake -S . -B build && cmake --build build --target outrigger, in the root of the");
    eprintln!("source tree) and set OUTRIGGER_LIB_DIR to its build folder; or install it, so that pkg-config");
    eprintln!("knows outrigger.pc; or enable the feature bundled, which compiles it, or dlopen, which loads it when");
    eprintln!("the program runs.");
    exit(1);
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles and runs tests/bindings/layout, and turns each line it prints into a Rust assertion.
use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    let libdir = env::var("DEP_OUTRIGGER_LIBDIR").expect("outrigger-sys gives its folder");
    println!("cargo:rustc-link-arg=-Wl,-rpath,{libdir}");
    for file in ["tests/bindings/layout", "c_api/include/outrigger.h"] {
        println!("cargo:rerun-if-changed={}", root.join(file).display());
    }
    fs::write(
        out.join("assertions.rs"),
        assertions(&layout(&root, &out, &libdir)),
    )
    .expect("OUT_DIR is writable");
}

fn layout(root: &Path, out: &Path, libdir: &str) -> String {
    let folder = root.join("tests/bindings/layout");
    let program = out.join("layout");
    let compiled = Command::new(env::var("CC").unwrap_or_else(|_| "cc".into()))
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-I",
        ])
        .arg(root.join("c_api/include"))
        .args([folder.join("layout.c"), folder.join("main.c")])
        .arg("-o")
        .arg(&program)
        .args([
            &format!("-L{libdir}"),
            "-loutrigger",
            &format!("-Wl,-rpath,{libdir}"),
        ])
        .status()
        .expect("a C compiler runs as cc, or as CC names it");
    assert!(
        compiled.success(),
        "the C compiler does not agree with the generated prototypes"
    );
    let printed = Command::new(&program)
        .output()
        .expect("the program that was just built runs");
    assert!(printed.status.success());
    String::from_utf8(printed.stdout).expect("layout prints ASCII")
}

fn assertions(layout: &str) -> String {
    let mut code = String::from("fn compare(check: &mut Check) {\n");
    for line in layout.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let statement = match words[..] {
            ["constant", name, value] => {
                format!("check.constant(\"{name}\", {name} as i64, {value});")
            }
            ["size", name, size] => format!("check.size(\"{name}\", size_of::<{name}>(), {size});"),
            ["offset", name, field, offset] => {
                format!("check.size(\"{name}.{field}\", offset_of!({name}, {field}), {offset});")
            }
            ["signature", name, ref kinds @ ..] => {
                let arity = kinds.len() - 2; // without the arrow and the result
                let holes = "_, ".repeat(arity);
                let kinds = kinds.join(" ");
                format!("check.signature(\"{name}\", signature{arity}({name} as unsafe extern \"C\" fn({holes}) -> _), \"{kinds}\");")
            }
            _ => panic!("layout printed {line:?}"),
        };
        writeln!(code, "    {statement}").expect("a String grows");
    }
    code + "}\n"
}

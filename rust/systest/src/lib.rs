// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sizes, offsets, constants and signatures of outrigger-sys against those that C sees.
#![cfg(test)]
use core::mem::{offset_of, size_of};
use outrigger_sys::*;

include!(concat!(env!("OUT_DIR"), "/assertions.rs"));

#[derive(Default)]
struct Check {
    made: usize,
    wrong: Vec<String>,
}

impl Check {
    fn equal<T: PartialEq + std::fmt::Debug>(&mut self, name: &str, rust: T, c: T) {
        self.made += 1;
        if rust != c {
            self.wrong
                .push(format!("{name}: Rust has {rust:?}, C has {c:?}"));
        }
    }
    fn constant(&mut self, name: &str, rust: i64, c: i64) {
        self.equal(name, rust, c);
    }
    fn size(&mut self, name: &str, rust: usize, c: usize) {
        self.equal(name, rust, c);
    }
    fn signature(&mut self, name: &str, rust: String, c: &str) {
        self.equal(name, rust, c.to_string());
    }
}

/// What a parameter is to a calling convention; the names are those of tests/bindings/layout/layout.h.
trait Kind {
    const NAME: &'static str;
}
macro_rules! kinds {
    ($($type:ty => $name:literal),*) => { $(impl Kind for $type { const NAME: &'static str = $name; })* };
}
kinds!(i32 => "i32", u32 => "u32", i64 => "i64", u64 => "u64", f64 => "f64", () => "void");
#[cfg(target_pointer_width = "64")]
kinds!(usize => "u64");
impl<T> Kind for *const T {
    const NAME: &'static str = "p";
}
impl<T> Kind for *mut T {
    const NAME: &'static str = "p";
}
/// A callback that may be NULL.
impl<T> Kind for Option<T> {
    const NAME: &'static str = "p";
}

macro_rules! signatures {
    ($($name:ident($($kind:ident),*);)*) => { $(
        fn $name<$($kind: Kind,)* R: Kind>(_: unsafe extern "C" fn($($kind),*) -> R) -> String {
            let kinds: &[&str] = &[$($kind::NAME,)* "->", R::NAME];
            kinds.join(" ")
        }
    )* };
}
signatures! {
    signature0(); signature1(A); signature2(A, B); signature3(A, B, C); signature4(A, B, C, D);
    signature5(A, B, C, D, E); signature6(A, B, C, D, E, F);
}

#[test]
fn declarations_agree_with_the_header() {
    let mut check = Check::default();
    compare(&mut check);
    assert!(check.made > 150, "only {} comparisons", check.made);
    assert!(check.wrong.is_empty(), "{}", check.wrong.join("\n"));
}

#[test]
fn the_loaded_library_has_this_binary_interface() {
    // SAFETY: takes no argument.
    assert_eq!(unsafe { otr_abi_version() }, OTR_ABI_VERSION);
}

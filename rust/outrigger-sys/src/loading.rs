// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The library as it is found when the program runs.
extern crate std;
use crate::bindings::{Functions, OTR_ABI_VERSION, OTR_E_SYSTEM};
use core::cell::RefCell;
use core::ffi::{c_char, c_int, c_void, CStr};
use core::mem::{size_of, transmute_copy};
use std::ffi::CString;
use std::format;
use std::path::Path;
use std::string::String;
use std::sync::OnceLock;
use std::{env, thread_local};

#[cfg(not(unix))]
compile_error!("the feature dlopen of outrigger-sys is for systems that have dlopen");

#[cfg(target_os = "macos")]
const NAME: &str = "liboutrigger.0.dylib";
#[cfg(not(target_os = "macos"))]
const NAME: &str = "liboutrigger.so.0";
const RTLD_NOW: c_int = 2;

// Of the C library, which std links.
extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlerror() -> *const c_char;
}

static LOADED: OnceLock<Functions> = OnceLock::new();
thread_local!(static WHY_NOT: RefCell<CString> = RefCell::default());

/// Loads the library from this file; `None`: from the one that `OUTRIGGER_LIBRARY` names, else where the system's loader looks. It stays
/// until the program ends: once one is loaded, this does nothing. The first call of any function does the same with `None`. Any thread.
///
/// The text of a failure says which file it was and why: absent, no library, of another binary interface, without a function.
pub fn load(file: Option<&Path>) -> Result<(), String> {
    loaded(file).map(|_| ())
}

fn loaded(file: Option<&Path>) -> Result<&'static Functions, String> {
    if let Some(functions) = LOADED.get() {
        return Ok(functions);
    }
    let asked = file.map(|file| file.as_os_str().to_os_string());
    let name = asked.or_else(|| env::var_os("OUTRIGGER_LIBRARY"));
    let name = name.unwrap_or_else(|| NAME.into());
    let shown = name.to_string_lossy().into_owned();
    let functions = Library::open(&name)
        .and_then(|library| Functions::of(&library))
        .map_err(|reason| {
            format!(
                "the library outrigger cannot be loaded from {shown}: {reason}. Give its file to load, or set OUTRIGGER_LIBRARY to it or \
                 LD_LIBRARY_PATH to its folder"
            )
        })?;
    Ok(LOADED.get_or_init(|| functions))
}

/// The functions, for a call; without them the thread has the reason.
pub(crate) fn functions() -> Option<&'static Functions> {
    if let Some(functions) = LOADED.get() {
        return Some(functions); // the way of every call
    }
    loaded(None)
        .map_err(|reason| {
            let reason = CString::new(reason.replace('\0', " ")).unwrap_or_default();
            WHY_NOT.with(|kept| *kept.borrow_mut() = reason);
        })
        .ok()
}

pub(crate) type Reason = String;

pub(crate) struct Library(*mut c_void);

impl Library {
    fn open(name: &std::ffi::OsStr) -> Result<Self, Reason> {
        let name = CString::new(name.as_encoded_bytes()).map_err(|error| format!("{error}"))?;
        // SAFETY: a text; the library's initialisers do nothing that Rust would notice.
        let library = Self(unsafe { dlopen(name.as_ptr(), RTLD_NOW) });
        if library.0.is_null() {
            return Err(last_error());
        }
        // SAFETY: this function has had this signature in every release.
        let version = unsafe {
            let version = library.symbol::<unsafe extern "C" fn() -> i32>(c"otr_abi_version")?;
            version()
        };
        if version != OTR_ABI_VERSION {
            return Err(format!(
                "it has the binary interface {version}, and this crate is for {OTR_ABI_VERSION}"
            ));
        }
        Ok(library)
    }

    /// # Safety
    /// F is a pointer to a function of this name's signature.
    pub(crate) unsafe fn symbol<F: Copy>(&self, name: &CStr) -> Result<F, Reason> {
        assert!(size_of::<F>() == size_of::<*mut c_void>());
        let address = dlsym(self.0, name.as_ptr());
        if address.is_null() {
            return Err(format!("{}; is it an older release?", last_error()));
        }
        Ok(transmute_copy(&address))
    }
}

fn last_error() -> String {
    // SAFETY: NULL, or a text until this thread's next call.
    unsafe {
        let text = dlerror();
        if text.is_null() {
            return "the loader gives no reason".into();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// What a function gives where there is no library.
pub(crate) trait Absent {
    fn absent() -> Self;
}

impl Absent for () {
    fn absent() {}
}

impl Absent for i32 {
    fn absent() -> i32 {
        OTR_E_SYSTEM
    }
}

/// The reason, until this thread's next call.
impl Absent for *const c_char {
    fn absent() -> *const c_char {
        WHY_NOT.with(|kept| kept.borrow().as_ptr())
    }
}

/// The functions of `bindings`, each of which calls the one that was loaded.
macro_rules! functions {
    ($($(#[$meta:meta])* pub fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        pub(crate) struct Functions {
            $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)*
        }

        impl Functions {
            pub(crate) fn of(library: &crate::loading::Library) -> Result<Self, crate::loading::Reason> {
                // SAFETY: the header's names and signatures.
                unsafe {
                    Ok(Self {
                        $($name: library.symbol(
                            core::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()),
                        )?,)*
                    })
                }
            }
        }

        $(
            $(#[$meta])*
            /// # Safety
            /// Pointers are what is asked for above.
            pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
                match crate::loading::functions() {
                    Some(functions) => (functions.$name)($($argument),*),
                    None => crate::loading::Absent::absent(),
                }
            }
        )*
    };
}

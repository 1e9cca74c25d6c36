// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Saves and loads.
use crate::raw::{bytes, check, json, made, optional, options, path, pointer, sized, text};
use crate::{Engine, Result, SaveState, Value};
use core::ffi::c_char;
use core::ops::Range;
use core::ptr;
use outrigger_sys::*;
use std::ffi::CString;
use std::path::Path;
use std::time::Duration;

/// What a save may be told; every rank gives the same but for the parts.
#[derive(Clone, Debug, Default)]
pub struct Save<'a> {
    /// After it, the checkpoints of the most steps that stay; 0: all.
    pub keep_last: i32,
    /// A folder of the same tag is replaced.
    pub replace: bool,
    /// The call returns before the values are written.
    pub asynchronous: bool,
    /// Bytes of this rank that ride along: random states, a place in the data.
    pub parts: &'a [(&'a str, &'a [u8])],
}

/// What a load may be told.
#[derive(Clone, Debug)]
pub struct Load<'a> {
    /// No moments and no progress.
    pub weights_only: bool,
    /// What differs is an error.
    pub strict: bool,
    /// Patterns of names here: these are loaded; empty: all.
    pub include: &'a [&'a str],
    /// Patterns of names here: these are not.
    pub exclude: &'a [&'a str],
    /// Names here, and what they are there.
    pub renamed: &'a [(&'a str, &'a str)],
    /// Patterns of names here whose first dimension may be another one there.
    pub resized: &'a [&'a str],
}

impl Default for Load<'_> {
    fn default() -> Self {
        Self {
            weights_only: false,
            strict: true,
            include: &[],
            exclude: &[],
            renamed: &[],
            resized: &[],
        }
    }
}

impl Save<'_> {
    /// `parts`: of these parts.
    pub(crate) fn raw(&self, parts: &Parts) -> Result<otr_save_options> {
        let mut wanted = options(otr_save_options_init)?;
        wanted.keep_last = self.keep_last;
        wanted.replace = i32::from(self.replace);
        wanted.asynchronous = i32::from(self.asynchronous);
        (wanted.parts, wanted.part_count) = parts.array();
        Ok(wanted)
    }
}

impl Load<'_> {
    /// The options for one call.
    pub(crate) fn with(&self, call: impl FnOnce(&otr_load_options) -> Result<()>) -> Result<()> {
        let (include, exclude, resized) = (
            Texts::new(self.include)?,
            Texts::new(self.exclude)?,
            Texts::new(self.resized)?,
        );
        let here = Texts::new(&self.renamed.iter().map(|pair| pair.0).collect::<Vec<_>>())?;
        let there = Texts::new(&self.renamed.iter().map(|pair| pair.1).collect::<Vec<_>>())?;
        let pairs = here.pointers.iter().zip(&there.pointers);
        let renamed: Vec<otr_rename> = pairs
            .map(|(&here, &there)| otr_rename { here, there })
            .collect();
        let mut wanted = options(otr_load_options_init)?;
        wanted.weights_only = i32::from(self.weights_only);
        wanted.strict = i32::from(self.strict);
        (wanted.include, wanted.include_count) = include.array();
        (wanted.exclude, wanted.exclude_count) = exclude.array();
        (wanted.resized, wanted.resized_count) = resized.array();
        if !renamed.is_empty() {
            wanted.renamed = renamed.as_ptr();
            wanted.renamed_count = renamed.len() as i64;
        }
        call(&wanted)
    }
}

/// How the last asynchronous save is getting on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SaveStatus {
    /// Whether there is one, and whether it is over.
    pub state: SaveState,
    /// Of this rank's file.
    pub bytes: i64,
    /// Of these.
    pub bytes_written: i64,
    /// How long the host was held up.
    pub held_up: Duration,
}

/// Texts, and an array of pointers to them.
struct Texts {
    _kept: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Texts {
    fn new(texts: &[&str]) -> Result<Self> {
        let kept = texts
            .iter()
            .map(|each| text(each))
            .collect::<Result<Vec<_>>>()?;
        let pointers = kept.iter().map(|each| each.as_ptr()).collect();
        Ok(Self {
            _kept: kept,
            pointers,
        })
    }
    fn array(&self) -> (*const *const c_char, i64) {
        if self.pointers.is_empty() {
            (ptr::null(), 0)
        } else {
            (self.pointers.as_ptr(), self.pointers.len() as i64)
        }
    }
}

/// Bytes of the host that ride along, each with a name.
pub(crate) struct Parts {
    _names: Texts,
    raw: Vec<otr_part>, // points to what the caller keeps, too
}

impl Parts {
    pub(crate) fn new(parts: &[(&str, &[u8])]) -> Result<Self> {
        let names = Texts::new(&parts.iter().map(|part| part.0).collect::<Vec<_>>())?;
        let pairs = names.pointers.iter().zip(parts);
        let raw = pairs.map(|(&name, (_, bytes))| otr_part {
            name,
            data: bytes.as_ptr().cast(),
            bytes: bytes.len(),
        });
        let raw = raw.collect();
        Ok(Self { _names: names, raw })
    }
    pub(crate) fn array(&self) -> (*const otr_part, i64) {
        if self.raw.is_empty() {
            (ptr::null(), 0)
        } else {
            (self.raw.as_ptr(), self.raw.len() as i64)
        }
    }
}

// SAFETY of the calls below: the engine lives, texts and parts outlive the calls.
impl Engine {
    /// Saves the training as `directory/tag`: masters, moments and progress. Between two windows. Collective.
    pub fn save(&mut self, directory: impl AsRef<Path>, tag: &str, asked: &Save) -> Result<()> {
        let (directory, tag) = (path(directory.as_ref())?, text(tag)?);
        let parts = Parts::new(asked.parts)?;
        let wanted = asked.raw(&parts)?;
        check(unsafe { otr_engine_save(self.as_raw(), directory.as_ptr(), tag.as_ptr(), &wanted) })
    }

    /// Waits for the last asynchronous save, at most so long; without a time as long as it takes. A save that failed is an error here, once.
    pub fn wait_save(&mut self, timeout: Option<Duration>) -> Result<SaveStatus> {
        let seconds = timeout.map_or(-1.0, |time| time.as_secs_f64());
        let mut status = sized!(otr_save_status);
        check(unsafe { otr_engine_wait_save(self.as_raw(), seconds, &mut status) })?;
        Ok(SaveStatus {
            state: SaveState::from_raw(status.state).unwrap_or(SaveState::UnderWay),
            bytes: status.bytes,
            bytes_written: status.bytes_written,
            held_up: Duration::try_from_secs_f64(status.held_up_seconds).unwrap_or_default(),
        })
    }

    /// Goes on from a checkpoint, whatever number of ranks, stage and formats it was made with; `None`: the last one. Collective.
    pub fn load(
        &mut self,
        directory: impl AsRef<Path>,
        tag: Option<&str>,
        asked: &Load,
    ) -> Result<()> {
        let (directory, tag) = (path(directory.as_ref())?, optional(tag)?);
        asked.with(|wanted| {
            check(unsafe {
                otr_engine_load(self.as_raw(), directory.as_ptr(), pointer(&tag), wanted)
            })
        })
    }
}

/// A checkpoint that is looked at, without an engine.
pub struct Checkpoint {
    raw: *mut otr_checkpoint,
}

// SAFETY: a handle works on any thread, on one at a time.
unsafe impl Send for Checkpoint {}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // SAFETY: given back once.
        unsafe { otr_checkpoint_destroy(self.raw) }
    }
}

// SAFETY of the calls below: the handle lives, texts and buffers outlive the calls and have the sizes that are said.
impl Checkpoint {
    /// Checks manifest and index, not the values; `None`: the last one of the folder.
    pub fn open(directory: impl AsRef<Path>, tag: Option<&str>) -> Result<Self> {
        let (directory, tag) = (path(directory.as_ref())?, optional(tag)?);
        let raw =
            made(|out| unsafe { otr_checkpoint_open(directory.as_ptr(), pointer(&tag), out) })?;
        Ok(Self { raw })
    }

    /// What it holds: ranks, parts, files, formats, progress, configuration, parameters. JSON.
    pub fn describe(&self) -> Result<String> {
        json(|buffer, size| unsafe { otr_checkpoint_describe(self.raw, buffer, size) })
    }

    /// Bytes that a rank gave to the save.
    pub fn part(&self, rank: i32, name: &str) -> Result<Vec<u8>> {
        let name = text(name)?;
        bytes(|buffer, size| unsafe {
            otr_checkpoint_part(self.raw, rank, name.as_ptr(), buffer.cast(), size)
        })
    }

    /// Elements of a parameter, row-major, as float32, whatever they are stored as.
    pub fn read(&self, name: &str, value: Value, elements: Range<usize>) -> Result<Vec<f32>> {
        let name = text(name)?;
        let number = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut values = vec![0.0; elements.len()];
        let (first, count) = (number(elements.start), number(elements.len()));
        check(unsafe {
            otr_checkpoint_read(
                self.raw,
                name.as_ptr(),
                value as i32,
                first,
                count,
                values.as_mut_ptr(),
            )
        })?;
        Ok(values)
    }

    /// Reads every value and compares it with its checksum. [`Error::Corrupt`](crate::Error) names what is damaged.
    pub fn verify(&self) -> Result<()> {
        check(unsafe { otr_checkpoint_verify(self.raw) })
    }

    /// Writes the weights as a safetensors file; `dtype`: "float32", "bfloat16" or "float16".
    pub fn export(&self, file: impl AsRef<Path>, dtype: &str, replace: bool) -> Result<()> {
        let (file, dtype) = (path(file.as_ref())?, text(dtype)?);
        let mut wanted = options(otr_export_options_init)?;
        wanted.dtype = dtype.as_ptr();
        wanted.replace = i32::from(replace);
        check(unsafe { otr_checkpoint_export(self.raw, file.as_ptr(), &wanted) })
    }
}

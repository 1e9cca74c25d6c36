// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A training is saved and goes on; a part of it is loaded under other names, with other rows.
#[allow(dead_code)]
#[path = "../examples/scenario/safe.rs"]
mod safe;
#[allow(dead_code)]
#[path = "../examples/scenario/tensor.rs"]
mod tensor;

use core::ffi::{c_char, CStr};
use outrigger_sys::*;
use safe::*;
use std::ffi::CString;
use std::path::PathBuf;
use std::ptr;
use tensor::{view, view_mut};

const COLUMNS: usize = 7;

fn c(text: &str) -> CString {
    CString::new(text).expect("no NUL in a text")
}

/// The library's explanation of a call that failed.
fn told(code: i32) -> Option<(i32, String)> {
    if code == OTR_OK {
        return None;
    }
    // SAFETY: the text is never NULL, and valid until this thread's next call.
    let text = unsafe { CStr::from_ptr(otr_last_error_message()) };
    Some((code, text.to_string_lossy().into_owned()))
}

/// A folder of this test's own.
struct Place(PathBuf);
impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("otr-rust-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Place(path)
    }
    fn text(&self) -> CString {
        c(self.0.to_str().expect("a path of UTF-8"))
    }
}
impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn values(count: usize, factor: f32) -> Vec<f32> {
    (0..count).map(|i| (i as f32 + 1.0) * factor).collect()
}

/// Parameters of these names and rows: `factor` times 1, 2, 3 and so on.
fn engine(names: &[(&str, usize)], factor: f32) -> Result<Engine> {
    let context = Context::new()?;
    let engine = Engine::new(&Comm::from_env(&context)?, "{}")?;
    let plain = options(otr_param_options_init)?;
    for (name, rows) in names {
        let (data, shape) = (
            values(rows * COLUMNS, factor),
            [*rows as i64, COLUMNS as i64],
        );
        engine.add_parameter(name, Some(&view(&data, &shape)), &plain)?;
    }
    engine.commit()?;
    Ok(engine)
}

fn read(engine: &Engine, id: i64, value: i32) -> Result<Vec<f32>> {
    let shape = engine.parameter_shape(id)?;
    let mut data = vec![0.0; shape.iter().product::<i64>() as usize];
    engine.read(id, value, &mut view_mut(&mut data, &shape))?;
    Ok(data)
}

/// One step with gradients of these parameters, each with so many rows.
fn step(engine: &mut Engine, parameters: &[(i64, usize)], factor: f32) -> Result<()> {
    let pass = engine.begin_pass(&[])?;
    for (id, rows) in parameters {
        let (data, shape) = (
            values(rows * COLUMNS, factor),
            [*rows as i64, COLUMNS as i64],
        );
        pass.add_grad(*id, &view(&data, &shape))?;
    }
    pass.end()?;
    engine.step()?;
    Ok(())
}

fn save(engine: &Engine, place: &Place, note: &[u8]) -> Result<Option<(i32, String)>> {
    let mut asked: otr_save_options = options(otr_save_options_init)?;
    let (tag, name) = (c("a"), c("note"));
    let part = otr_part {
        name: name.as_ptr(),
        data: note.as_ptr().cast(),
        bytes: note.len(),
    };
    (asked.parts, asked.part_count) = (&part, 1);
    // SAFETY: the engine is live; texts and options outlive the call.
    Ok(told(unsafe {
        otr_engine_save(engine.0, place.text().as_ptr(), tag.as_ptr(), &asked)
    }))
}

/// SAFETY of the call: `asked` points to what the caller keeps.
fn load(engine: &Engine, place: &Place, asked: &otr_load_options) -> Option<(i32, String)> {
    told(unsafe { otr_engine_load(engine.0, place.text().as_ptr(), ptr::null(), asked) })
}

#[test]
fn a_training_goes_on_with_the_same_bits() -> Result<()> {
    let place = Place::new("whole");
    let mut first = engine(&[("w", 60), ("b", 1)], 0.25)?;
    step(&mut first, &[(0, 60), (1, 1)], 0.5)?;
    assert_eq!(save(&first, &place, b"7 of 9")?, None);
    assert_eq!(
        save(&first, &place, b"")?.map(|each| each.0),
        Some(OTR_E_DUPLICATE)
    );
    let mut again = engine(&[("b", 1), ("w", 60)], -3.0)?;
    assert_eq!(load(&again, &place, &options(otr_load_options_init)?), None);
    step(&mut first, &[(0, 60), (1, 1)], -0.125)?;
    step(&mut again, &[(1, 60), (0, 1)], -0.125)?;
    for value in [OTR_VALUE_MASTER, OTR_VALUE_EXP_AVG, OTR_VALUE_EXP_AVG_SQ] {
        assert_eq!(
            read(&again, 1, value)?,
            read(&first, 0, value)?,
            "w, value {value}"
        );
        assert_eq!(
            read(&again, 0, value)?,
            read(&first, 1, value)?,
            "b, value {value}"
        );
    }
    // What rides along, and a value without an engine.
    let (mut opened, name, note) = (ptr::null_mut(), c("w"), c("note"));
    let (mut bytes, mut size, mut two) = ([0u8; 6], 6usize, [0f32; 2]);
    let before = values(60 * COLUMNS, 0.25);
    // SAFETY: the checkpoint is given back once; the buffers have the sizes that are said.
    unsafe {
        let found = otr_checkpoint_open(place.text().as_ptr(), ptr::null(), &mut opened);
        assert_eq!(told(found), None);
        let found = otr_checkpoint_part(
            opened,
            0,
            note.as_ptr(),
            bytes.as_mut_ptr().cast(),
            &mut size,
        );
        assert_eq!(told(found), None);
        let found = otr_checkpoint_read(
            opened,
            name.as_ptr(),
            OTR_VALUE_MASTER,
            300,
            2,
            two.as_mut_ptr(),
        );
        assert_eq!(told(found), None);
        otr_checkpoint_destroy(opened);
    }
    assert_eq!(&bytes, b"7 of 9");
    // Adam's first update is the learning rate, against the gradient's sign.
    let lr = before[300] - two[0];
    assert!(
        lr > 0.0 && (before[301] - two[1] - lr).abs() < 1e-4,
        "{lr} {two:?}"
    );
    Ok(())
}

#[test]
fn a_part_is_loaded_under_other_names() -> Result<()> {
    let place = Place::new("part");
    let there = engine(
        &[("model.enc.w", 50), ("model.enc.b", 1), ("model.head", 40)],
        0.5,
    )?;
    assert_eq!(save(&there, &place, b"")?, None);
    let here = engine(&[("enc.w", 50), ("enc.b", 1), ("head", 45)], -2.0)?;
    let texts = ["enc.*", "head", "*.b", "*", "model.*", "enk.*"].map(c);
    let raw: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
    let renamed = otr_rename {
        here: raw[3],
        there: raw[4],
    };
    let mut asked: otr_load_options = options(otr_load_options_init)?;
    (asked.weights_only, asked.renamed, asked.renamed_count) = (1, &renamed, 1);
    (asked.exclude, asked.exclude_count) = (&raw[2], 1);
    let refused = load(&here, &place, &asked).expect("other rows");
    assert!(
        refused.0 == OTR_E_SHAPE && refused.1.contains("\"head\""),
        "{refused:?}"
    );
    (asked.include, asked.include_count) = (&raw[5], 1);
    let refused = load(&here, &place, &asked).expect("no such name");
    assert!(
        refused.0 == OTR_E_NOT_FOUND && refused.1.contains("did you mean \"enc.*\""),
        "{refused:?}"
    );
    assert_eq!(
        read(&here, 0, OTR_VALUE_MASTER)?,
        values(50 * COLUMNS, -2.0),
        "nothing has changed"
    );
    (asked.include, asked.include_count) = (&raw[0], 2);
    (asked.resized, asked.resized_count) = (&raw[1], 1);
    assert_eq!(load(&here, &place, &asked), None);
    assert_eq!(read(&here, 0, OTR_VALUE_MASTER)?, values(50 * COLUMNS, 0.5));
    assert_eq!(read(&here, 1, OTR_VALUE_MASTER)?, values(COLUMNS, -2.0));
    let mut head = values(45 * COLUMNS, -2.0);
    head[..40 * COLUMNS].copy_from_slice(&values(40 * COLUMNS, 0.5));
    assert_eq!(read(&here, 2, OTR_VALUE_MASTER)?, head);
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A training is saved and goes on; a part of it is loaded under other names, with other rows.
use outrigger::*;
use std::path::PathBuf;

const COLUMNS: usize = 7;

/// A folder of this test's own.
struct Place(PathBuf);
impl Place {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("outrigger-rust-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Place(path)
    }
}
impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn values(rows: usize, factor: f32) -> Vec<f32> {
    (0..rows * COLUMNS)
        .map(|i| (i as f32 + 1.0) * factor)
        .collect()
}

/// Parameters of these names and rows: `factor` times 1, 2, 3 and so on.
fn engine(names: &[(&str, usize)], factor: f32) -> Result<Engine> {
    let mut plan = Plan::new(&Comm::alone(&Context::new()?)?, "{}")?;
    for &(name, rows) in names {
        plan.parameter(name, &Tensor::new(&values(rows, factor), &[rows, COLUMNS])?)?;
    }
    plan.commit()
}

/// One step with gradients of these parameters, each with so many rows.
fn step(engine: &mut Engine, parameters: &[(&str, usize)], factor: f32) -> Result<()> {
    engine.backward(&[], |pass| -> Result<()> {
        for &(name, rows) in parameters {
            pass.add_grad(
                engine.parameter_id(name)?,
                &Tensor::new(&values(rows, factor), &[rows, COLUMNS])?,
            )?;
        }
        Ok(())
    })?;
    engine.step().map(|_| ())
}

fn read(engine: &Engine, name: &str, value: Value) -> Result<Vec<f32>> {
    engine.read(engine.parameter_id(name)?, value)
}

#[test]
fn a_training_goes_on_with_the_same_bits() -> Result<()> {
    let place = Place::new("whole");
    let mut first = engine(&[("w", 60), ("b", 1)], 0.25)?;
    let both = [("w", 60), ("b", 1)];
    step(&mut first, &both, 0.5)?;
    let save = Save {
        asynchronous: true,
        parts: &[("note", b"7 of 9")],
        ..Default::default()
    };
    first.save(&place.0, "a", &save)?;
    assert_eq!(first.wait_save(None)?.state, SaveState::Done);
    assert!(matches!(
        first.save(&place.0, "a", &Save::default()),
        Err(Error::Duplicate(_))
    ));
    let mut again = engine(&[("b", 1), ("w", 60)], -3.0)?;
    again.load(&place.0, None, &Load::default())?;
    step(&mut first, &both, -0.125)?;
    step(&mut again, &both, -0.125)?;
    for value in [Value::Master, Value::ExpAvg, Value::ExpAvgSq] {
        for (name, _) in both {
            assert_eq!(
                read(&again, name, value)?,
                read(&first, name, value)?,
                "{name}, {value:?}"
            );
        }
    }
    // What rides along, and a value without an engine.
    let opened = Checkpoint::open(&place.0, Some("a"))?;
    opened.verify()?;
    assert_eq!(opened.part(0, "note")?, b"7 of 9");
    assert!(opened.describe()?.contains("\"w\""));
    // Adam's first update is the learning rate, against the gradient's sign.
    let (before, two) = (values(60, 0.25), opened.read("w", Value::Master, 300..302)?);
    let lr = before[300] - two[0];
    assert!(
        lr > 0.0 && (before[301] - two[1] - lr).abs() < 1e-4,
        "{lr} {two:?}"
    );
    assert!(matches!(
        opened.read("w", Value::Master, 419..421),
        Err(Error::Argument(_))
    ));
    opened.export(place.0.join("w.safetensors"), "bfloat16", false)?;
    assert!(place.0.join("w.safetensors").metadata().unwrap().len() > 2 * 61 * 7);
    Ok(())
}

#[test]
fn a_part_is_loaded_under_other_names() -> Result<()> {
    let place = Place::new("part");
    let mut there = engine(
        &[("model.enc.w", 50), ("model.enc.b", 1), ("model.head", 40)],
        0.5,
    )?;
    there.save(&place.0, "a", &Save::default())?;
    let mut here = engine(&[("enc.w", 50), ("enc.b", 1), ("head", 45)], -2.0)?;
    let asked = Load {
        weights_only: true,
        renamed: &[("*", "model.*")],
        exclude: &["*.b"],
        ..Default::default()
    };
    let refused = here.load(&place.0, None, &asked);
    assert!(
        matches!(&refused, Err(Error::Shape(text)) if text.contains("\"head\"")),
        "{refused:?}"
    );
    let refused = here.load(
        &place.0,
        None,
        &Load {
            include: &["enk.*"],
            ..asked.clone()
        },
    );
    assert!(
        matches!(&refused, Err(Error::NotFound(text)) if text.contains("did you mean \"enc.*\"")),
        "{refused:?}"
    );
    assert_eq!(
        read(&here, "enc.w", Value::Master)?,
        values(50, -2.0),
        "nothing has changed"
    );
    here.load(
        &place.0,
        None,
        &Load {
            include: &["enc.*", "head"],
            resized: &["head"],
            ..asked
        },
    )?;
    assert_eq!(read(&here, "enc.w", Value::Master)?, values(50, 0.5));
    assert_eq!(read(&here, "enc.b", Value::Master)?, values(1, -2.0));
    let mut head = values(45, -2.0);
    head[..40 * COLUMNS].copy_from_slice(&values(40, 0.5));
    assert_eq!(read(&here, "head", Value::Master)?, head);
    Ok(())
}

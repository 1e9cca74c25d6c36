// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::{add, alone, on, MOMENTUM};
use outrigger::*;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

fn panicked<T>(call: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call))
        .err()
        .expect("it does not panic");
    panic.downcast_ref::<&str>().map_or_else(
        || panic.downcast_ref::<String>().cloned().unwrap_or_default(),
        |text| text.to_string(),
    )
}

#[test]
fn of_a_record_come_out_of_the_step() {
    let (mut engine, w) = alone(MOMENTUM, &[1.0]);
    let mut count = 0;
    engine
        .on_record(move |_| {
            count += 1;
            assert!(count != 1, "the first record is bad");
        })
        .unwrap();
    add(&engine, w, &[1.0]);
    assert!(panicked(|| engine.step()).contains("the first record is bad"));
    add(&engine, w, &[1.0]);
    assert_eq!(engine.step().unwrap().applied_steps, 2);
}

#[test]
fn of_the_log_come_out_of_the_call() {
    let context = Context::builder()
        .log(Level::Info, |_, text| panic!("logged: {text}"))
        .build()
        .unwrap();
    let comm = Comm::alone(&context).unwrap();
    let mut plan = Plan::new(&comm, MOMENTUM).unwrap();
    plan.parameter("w", &Tensor::scalar(&1.0_f32)).unwrap();
    assert!(panicked(|| plan.commit()).starts_with("logged: "));
}

#[test]
fn of_the_backward_give_the_pass_up() {
    let (mut engine, w) = alone(MOMENTUM, &[1.0]);
    let told = panicked(|| {
        engine.backward(&[], |pass| -> Result<()> {
            pass.add_grad(w, &Tensor::new(&[1.0_f32], &[1])?)?;
            panic!("no gradient")
        })
    });
    assert_eq!(told, "no gradient");
    let report = engine.step().unwrap();
    assert_eq!(
        (report.outcome, report.reason),
        (Outcome::Skipped, Skip::Abandoned)
    );
    let refused = engine.backward(&[], |_| Err(Error::Host("mine".into())));
    assert_eq!(refused, Err(Error::Host("mine".into())));
}

#[test]
fn of_a_rank_do_not_keep_the_others() {
    let context = Context::new().unwrap();
    let mut comms = Comm::threads(&context, 2).unwrap();
    let (second, first) = (comms.pop().unwrap(), comms.pop().unwrap());
    let committed = Arc::new(Barrier::new(2));
    let both = committed.clone();
    let other = thread::spawn(move || {
        let (_engine, _) = on(&second, MOMENTUM, &[1.0]);
        both.wait();
        panic!("rank 1 has an accident");
    });
    let (mut engine, w) = on(&first, MOMENTUM, &[1.0]);
    committed.wait();
    let mut window = || -> Result<Report> {
        engine.backward(&[], |pass| {
            pass.add_grad(w, &Tensor::new(&[1.0_f32], &[1])?)
        })?;
        engine.step()
    };
    assert!(matches!(window(), Err(Error::Aborted(text)) if text.contains("has panicked")));
    assert!(other.join().is_err());
}

#[test]
fn waits_are_interrupted_and_aborted() {
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let context = Context::builder()
        .interrupt(move || {
            let mut count = count.lock().unwrap();
            *count += 1;
            *count == 2
        })
        .build()
        .unwrap();
    let mut comms = Comm::threads(&context, 2).unwrap();
    let (second, first) = (comms.pop().unwrap(), comms.pop().unwrap());
    assert!(matches!(first.barrier(), Err(Error::Interrupted(_))));
    assert_eq!(*asked.lock().unwrap(), 2);
    let other = thread::spawn(move || second.barrier());
    first.barrier().unwrap(); // goes on where it was
    other.join().unwrap().unwrap();

    let context = Context::new().unwrap();
    let comms = Comm::threads(&context, 2).unwrap();
    let mut engines: Vec<Engine> = thread::scope(|scope| {
        let made: Vec<_> = comms
            .into_iter()
            .map(|comm| scope.spawn(move || on(&comm, MOMENTUM, &[1.0]).0))
            .collect();
        made.into_iter().map(|each| each.join().unwrap()).collect()
    });
    let remote = engines[0].remote();
    let later = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        remote.abort("enough").unwrap();
        remote
    });
    let w = engines[0].parameter_id("w").unwrap();
    add(&engines[0], w, &[1.0]);
    assert!(matches!(engines[0].step(), Err(Error::Aborted(text)) if text.contains("enough")));
    let remote = later.join().unwrap();
    assert!(remote.check().is_err());
    engines.clear();
    assert_eq!(
        (remote.check(), remote.abort("late"), remote.note("x", 1.0)),
        (Ok(()), Ok(()), Ok(()))
    );
}

struct Lines;
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
impl log::Log for Lines {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }
    fn log(&self, record: &log::Record) {
        LINES.lock().unwrap().push(format!(
            "{} {} {}",
            record.target(),
            record.level(),
            record.args()
        ));
    }
    fn flush(&self) {}
}

#[test]
fn lines_go_to_the_crate_log() {
    log::set_logger(&Lines).unwrap();
    log::set_max_level(log::LevelFilter::Info);
    let (engine, _) = alone(MOMENTUM, &[1.0]);
    drop(engine);
    let lines = LINES.lock().unwrap();
    assert!(
        lines.iter().any(|line| line.starts_with("outrigger INFO ")),
        "{lines:?}"
    );
}

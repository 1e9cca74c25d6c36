// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::{add, alone, on, MOMENTUM};
use half::bf16;
use outrigger::*;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What `steps` of MOMENTUM make of a weight.
fn momentum(mut w: f32, grads: &[f32]) -> f32 {
    let mut velocity = 0.0;
    for grad in grads {
        velocity = 0.5 * velocity + grad;
        w -= 0.25 * velocity;
    }
    w
}

#[test]
fn steps_have_the_rules_values() {
    let (mut engine, w) = alone(MOMENTUM, &[1.0, -2.0, 4.0]);
    for grad in [1.0, -0.5, 8.0] {
        add(&engine, w, &[grad, 2.0 * grad, 0.0]);
        let report = engine.step().unwrap();
        assert!(report.is_applied());
        assert_eq!(report.grad_norm, f64::from(grad.abs()) * 5.0_f64.sqrt());
    }
    let wanted = [
        momentum(1.0, &[1.0, -0.5, 8.0]),
        momentum(-2.0, &[2.0, -1.0, 16.0]),
        4.0,
    ];
    assert_eq!(engine.read::<f32>(w, Value::Master).unwrap(), wanted);
    assert_eq!(engine.acquire(&[w]).unwrap().get::<f32>(0).unwrap(), wanted);
    assert_eq!(
        engine.read::<f64>(w, Value::ExpAvg).unwrap()[0],
        0.25 - 0.25 + 8.0
    );
    engine.finalize().unwrap();
}

/// Two ranks with other data each: the mean counts. Slots and tensors, from threads of their own.
#[test]
fn ranks_and_threads_add_up() {
    let context = Context::new().unwrap();
    let comms = Comm::threads(&context, 2).unwrap();
    let ends: Vec<Vec<f32>> = thread::scope(|scope| {
        let ranks: Vec<_> = comms
            .into_iter()
            .map(|comm| {
                scope.spawn(move || {
                    let rank = comm.rank() as f32;
                    let mut plan = Plan::new(&comm, MOMENTUM).unwrap();
                    let ids: Vec<_> = (0..8)
                        .map(|i| {
                            plan.parameter(
                                &format!("w{i}"),
                                &Tensor::new(&[i as f32; 5], &[5, 1]).unwrap(),
                            )
                            .unwrap()
                        })
                        .collect();
                    let mut engine = plan.commit().unwrap();
                    let pass = engine.pass(&[]).unwrap();
                    thread::scope(|adders| {
                        for (i, &id) in ids.iter().enumerate() {
                            let pass = &pass;
                            adders.spawn(move || {
                                let grad = [(i + 1) as f32 * (rank + 1.0); 5];
                                if i % 2 == 0 {
                                    let mut slot = pass.slot(id).unwrap();
                                    slot.get_mut::<f32>().unwrap().copy_from_slice(&grad);
                                    slot.add().unwrap();
                                } else {
                                    pass.add_grad(id, &Tensor::new(&grad, &[5, 1]).unwrap())
                                        .unwrap();
                                }
                            });
                        }
                    });
                    pass.end().unwrap();
                    engine.step().unwrap();
                    let read = |&id| engine.read::<f32>(id, Value::Published).unwrap()[3];
                    let ends = ids.iter().map(read).collect();
                    engine.finalize().unwrap();
                    ends
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let wanted: Vec<f32> = (0..8)
        .map(|i| i as f32 - 0.25 * 1.5 * (i + 1) as f32)
        .collect();
    assert_eq!(ends, [wanted.clone(), wanted]);
}

#[test]
fn tensors_have_strides_and_dtypes() {
    let (mut engine, w) = alone(MOMENTUM, &[0.0; 3]);
    let storage = [
        bf16::from_f32(1.0),
        bf16::ZERO,
        bf16::from_f32(3.0),
        bf16::ZERO,
        bf16::from_f32(-5.0),
    ];
    let pass = engine.pass(&[]).unwrap();
    pass.add_grad(w, &Tensor::strided(&storage, &[3], &[2]).unwrap())
        .unwrap();
    pass.add_grad(w, &Tensor::new(&[0.5_f64, 0.0, 0.0], &[3]).unwrap())
        .unwrap();
    pass.end().unwrap();
    engine.step().unwrap();
    assert_eq!(
        engine.read::<f32>(w, Value::Master).unwrap(),
        [-0.375, -0.75, 1.25]
    );
    let published: Vec<bf16> = engine.read(w, Value::Published).unwrap();
    assert_eq!(published[2].to_f32(), 1.25);
}

/// A gradient goes through two engines; its factors are applied once.
#[test]
fn a_chain_carries_its_tag() {
    let scaled = r#"{"optimizer": {"type": "SGD", "params": {"lr": 1}}, "fp16": {"enabled": true, "loss_scale": 256}, "gradient_accumulation_steps": 2}"#;
    let plain =
        r#"{"optimizer": {"type": "SGD", "params": {"lr": 1}}, "gradient_accumulation_steps": 2}"#;
    let ((mut above, top), (mut below, bottom)) = (alone(scaled, &[2.0]), alone(plain, &[3.0]));
    for _ in 0..2 {
        let pass = above.pass(&[Tensor::scalar(&0.25_f32)]).unwrap();
        assert_eq!(pass.scale().unwrap(), 128.0);
        let seed = pass.output_grad::<f32>(0).unwrap()[0];
        assert_eq!(seed, 32.0);
        pass.add_grad(top, &Tensor::new(&[seed], &[1]).unwrap())
            .unwrap();
        let tag = pass.tag().unwrap();
        assert_eq!(tag.loss_scale, 256.0);
        let mut told = [0.0_f32];
        pass.unscale(
            &Tensor::scalar(&seed),
            &mut TensorMut::new(&mut told, &[]).unwrap(),
        )
        .unwrap();
        assert_eq!(told, [0.25]);
        let asked = PassOptions {
            tag: Some(tag),
            ..Default::default()
        };
        let behind = below.pass_with(&[Tensor::scalar(&seed)], &asked).unwrap();
        let grad = behind.output_grad::<f32>(0).unwrap()[0];
        behind
            .add_grad(bottom, &Tensor::new(&[grad], &[1]).unwrap())
            .unwrap();
        behind.end().unwrap();
        pass.end().unwrap();
        let reports = step_many(&mut [&mut above, &mut below], None);
        match reports {
            Ok(reports) => assert!(reports.iter().all(Report::is_applied)),
            Err(Error::State(text)) => {
                assert!(text.contains("window"), "{text}");
                above.step().unwrap();
                below.step().unwrap();
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(above.read::<f32>(top, Value::Master).unwrap(), [1.75]);
    assert_eq!(below.read::<f32>(bottom, Value::Master).unwrap(), [2.75]);
}

#[test]
fn the_host_may_update() {
    let (mut engine, w) = alone(
        r#"{"optimizer": {"type": "Host"}, "gradient_clipping": 1}"#,
        &[1.0, 1.0],
    );
    add(&engine, w, &[3.0, 4.0]);
    let mut reduced = engine.reduce().unwrap();
    assert_eq!(reduced.report().grad_norm, 5.0);
    assert!(reduced.has_grad(w).unwrap());
    let clip = reduced.report().clip_coefficient as f32;
    let grad = reduced.engine().local_read::<f32>(w, Value::Grad).unwrap();
    let master = reduced
        .engine()
        .local_read::<f32>(w, Value::Master)
        .unwrap();
    let updated: Vec<f32> = master
        .iter()
        .zip(&grad)
        .map(|(m, g)| m - g * clip)
        .collect();
    assert!(
        matches!(reduced.engine().acquire(&[w]), Err(Error::State(text)) if text.contains("reduce"))
    );
    reduced.local_write(w, Value::Master, &updated).unwrap();
    assert!(reduced.step().unwrap().is_applied());
    for (got, wanted) in engine
        .acquire(&[w])
        .unwrap()
        .get::<f32>(0)
        .unwrap()
        .iter()
        .zip([0.4_f32, 0.2])
    {
        assert!((got - wanted).abs() < 1e-5, "{got} {wanted}");
    }
}

#[test]
fn a_step_may_be_begun_and_watched() {
    let (mut engine, w) = alone(MOMENTUM, &[1.0]);
    let records = Arc::new(Mutex::new(Vec::new()));
    let kept = records.clone();
    engine
        .on_record(move |record| kept.lock().unwrap().push(record.to_owned()))
        .unwrap();
    engine.note("loss", 0.5).unwrap();
    add(&engine, w, &[1.0]);
    engine.step_begin().unwrap();
    let report = loop {
        if let Some(report) = engine.report(Some(Duration::from_millis(1))).unwrap() {
            break report;
        }
    };
    assert!(report.is_applied());
    let records = records.lock().unwrap();
    assert_eq!(records.len(), 1);
    assert!(
        records[0].contains("\"notes\":{\"loss\":0.5}"),
        "{}",
        records[0]
    );
}

#[test]
fn what_is_asked_is_told() {
    let (mut engine, w) = alone(MOMENTUM, &[1.0, 2.0, 3.0]);
    assert_eq!((engine.parameter_count().unwrap(), w.index()), (1, 0));
    assert_eq!(engine.parameter_id("w").unwrap(), w);
    assert_eq!(
        (
            engine.parameter_name(w).unwrap(),
            engine.parameter_shape(w).unwrap()
        ),
        ("w".into(), vec![3])
    );
    assert_eq!(engine.local_range(w).unwrap(), 0..3);
    engine.set_value(None, "lr", 0.125).unwrap();
    assert_eq!(engine.value(None, "lr").unwrap(), 0.125);
    assert!(engine.config().unwrap().contains("\"momentum\""));
    let memory = engine.memory().unwrap();
    assert_eq!(memory.last().unwrap().purpose, "total");
    assert!(engine.is_boundary().unwrap());
    engine.set_boundary(Boundary::No).unwrap();
    assert!(!engine.is_boundary().unwrap());
    assert_eq!(engine.loss_scale().unwrap(), 1.0);
    let progress = engine.progress().unwrap();
    engine.set_progress(&progress).unwrap();
    assert!(check_config(MOMENTUM, 4).unwrap().contains("stage"));
    assert!(build_info().contains(&version()));
}

#[test]
fn ranks_of_one_process_exchange() {
    let context = Context::new().unwrap();
    let comms = Comm::threads(&context, 2).unwrap();
    thread::scope(|scope| {
        for comm in comms {
            scope.spawn(move || {
                let rank = comm.rank();
                assert_eq!(comm.all_gather(&[rank as u8]).unwrap(), [0, 1]);
                let mut sums = [f64::from(rank) + 1.0];
                comm.all_reduce_sum(&mut sums).unwrap();
                assert_eq!(sums, [3.0]);
                let mine = [vec![rank as u8; 3], vec![rank as u8; 1]];
                let received = if rank == 0 { [3, 3] } else { [1, 1] };
                let got = comm.all_to_all(&[&mine[0], &mine[1]], &received).unwrap();
                assert_eq!(got, [vec![0; received[0]], vec![1; received[1]]]);
                let own = comm.split(Some(rank), 0).unwrap().unwrap();
                assert_eq!(own.size(), 1);
                comm.barrier().unwrap();
            });
        }
    });
    let single = Comm::alone(&context).unwrap();
    let (engine, _) = on(&single, "", &[1.0]);
    drop((single, context)); // a child keeps its parents
    assert_eq!(engine.parameter_count().unwrap(), 1);
}

#[test]
fn passes_keep_dtypes_and_tell_of_overflow() {
    let config = r#"{"optimizer": {"type": "SGD", "params": {"lr": 1}}, "fp16": {"enabled": true, "loss_scale": 1024}}"#;
    let (engine, _) = alone(config, &[1.0]);
    let seeds = [bf16::from_f32(0.5), bf16::from_f32(3e38)];
    let outputs = [Tensor::scalar(&seeds[0]), Tensor::scalar(&seeds[1])];
    let asked = PassOptions {
        keep_dtype: true,
        ..Default::default()
    };
    let pass = engine.pass_with(&outputs, &asked).unwrap();
    assert_eq!(pass.output_grad::<bf16>(0).unwrap()[0].to_f32(), 512.0);
    assert_eq!(pass.seed_overflow().unwrap(), Some(1));
    drop(pass);
    assert_eq!(
        engine.pass(&outputs[..1]).unwrap().seed_overflow().unwrap(),
        None
    );
    assert_eq!(engine.live_passes().unwrap(), 0);
}

/// What an acquire copies is given back when it is dropped.
#[test]
fn acquired_copies_are_freed() {
    let config = r#"{"bf16": {"enabled": true}}"#;
    let (engine, w) = alone(config, &[1.0; 1000]);
    let copies = |engine: &Engine| -> i64 {
        engine
            .memory()
            .unwrap()
            .iter()
            .map(|e| e.resident_bytes)
            .sum()
    };
    let before = copies(&engine);
    let acquired = engine.acquire_float32(&[w]).unwrap();
    assert_eq!(
        (acquired.len(), acquired.shape(0).unwrap()),
        (1, vec![1000])
    );
    assert!(copies(&engine) > before);
    drop(acquired);
    assert_eq!(copies(&engine), before);
}

#[test]
fn groups_have_values_of_their_own() {
    let comm = Comm::alone(&Context::builder().workers(1).build().unwrap()).unwrap();
    let mut plan = Plan::new(&comm, MOMENTUM).unwrap();
    let asked = ParameterOptions {
        group: Some("slow".into()),
        ..Default::default()
    };
    let one = Tensor::scalar(&1.0_f32);
    let slow = plan.parameter_with("slow", Some(&one), &asked).unwrap();
    let frozen = ParameterOptions {
        frozen: true,
        ..Default::default()
    };
    let frozen = plan.parameter_with("frozen", Some(&one), &frozen).unwrap();
    let alias = ParameterOptions {
        alias_of: Some(slow),
        ..Default::default()
    };
    let second = plan.parameter_with("second name", None, &alias).unwrap();
    let mut engine = plan.commit().unwrap();
    engine.set_value(Some("slow"), "lr", 0.5).unwrap();
    engine
        .backward(&[], |pass| pass.add_grad(slow, &one))
        .unwrap();
    engine.step().unwrap();
    assert_eq!(engine.read::<f32>(slow, Value::Master).unwrap(), [0.5]);
    assert_eq!(engine.read::<f32>(second, Value::Master).unwrap(), [0.5]);
    assert!(matches!(
        engine.backward(&[], |pass| pass.add_grad(frozen, &one)),
        Err(Error::State(_))
    ));
    engine.step().unwrap();
    engine.set_trainable(slow, false).unwrap();
    assert!(matches!(
        engine.backward(&[], |pass| pass.add_grad(slow, &one)),
        Err(Error::State(_))
    ));
}

#[test]
fn groups_of_ranks_are_bounded() {
    let context = Context::new().unwrap();
    let asked = CommOptions {
        timeout: Some(0.2),
        ..Default::default()
    };
    let job = format!("outrigger-crate-{}", std::process::id());
    let error = Comm::shared_memory(&context, 0, 2, &job, &asked)
        .err()
        .unwrap();
    assert!(
        matches!(&error, Error::Timeout(text) if text.contains("rank 1")),
        "{error}"
    );
    let comm = Comm::shared_memory(&context, 0, 1, &job, &asked).unwrap();
    let again = comm.duplicate().unwrap();
    drop(comm);
    again.barrier().unwrap();
    assert!(matches!(
        Context::builder().workers(-1).build(),
        Err(Error::Argument(_))
    ));
    assert!(matches!(
        context.load_plugin("no-such-plugin"),
        Err(Error::NotFound(_))
    ));
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::{add, alone, MOMENTUM};
use half::f16;
use outrigger::*;

#[test]
fn a_message_has_what_was_packed() {
    let grad = [f16::from_f32(1.5), f16::from_f32(-2.0), f16::ZERO, f16::ONE];
    let (ids, none) = ([7_i64, -9], [0_f32; 0]);
    let tag = Tag {
        loss_scale: 1024.0,
        accumulation: 4,
        ranks: 2,
    };
    let asked = MessageOptions {
        micro_batch: 3,
        tag: Some(tag),
        attributes: &[("side", "vision"), ("empty", "")],
    };
    let tensors = [
        ("grad", Tensor::strided(&grad, &[2, 2], &[1, 2]).unwrap()),
        ("ids", Tensor::new(&ids, &[2]).unwrap()),
        ("none", Tensor::new(&none, &[0, 5]).unwrap()),
    ];
    let packed = Message::pack(&tensors, &asked).unwrap();
    let sent: Vec<u8> = packed.to_vec();
    let received = Packed::copied(&sent);
    let message = Message::unpack(&received).unwrap();
    assert_eq!(message.micro_batch().unwrap(), 3);
    assert_eq!(message.names().unwrap(), ["ids", "none", "grad"]);
    assert_eq!(
        (message.tag().unwrap(), message.attribute("side").unwrap()),
        (Some(tag), "vision".into())
    );
    assert_eq!(message.get::<i64>("ids").unwrap(), ids);
    assert_eq!(message.shape("none").unwrap(), [0, 5]);
    let transposed = [grad[0], grad[2], grad[1], grad[3]];
    assert_eq!(
        (
            message.shape("grad").unwrap(),
            message.get::<f16>("grad").unwrap()
        ),
        (vec![2, 2], &transposed[..])
    );
    assert!(matches!(message.get::<f32>("grad"), Err(Error::Dtype(_))));
    assert!(
        matches!(message.get::<f32>("grat"), Err(Error::NotFound(text)) if text.contains("grad"))
    );
    assert!(matches!(
        message.attribute("sight"),
        Err(Error::NotFound(_))
    ));
    for at in (0..sent.len()).step_by(7) {
        let mut damaged = sent.clone();
        damaged[at] ^= 4;
        assert!(
            Message::unpack(&Packed::copied(&damaged)).is_err(),
            "byte {at}"
        );
        assert!(
            Message::unpack(&Packed::copied(&sent[..at])).is_err(),
            "cut at {at}"
        );
    }
    let plain = Message::pack(&tensors[..1], &MessageOptions::default()).unwrap();
    assert_eq!(Message::unpack(&plain).unwrap().tag().unwrap(), None);
    let twice = [tensors[0].clone(), tensors[0].clone()];
    assert!(matches!(
        Message::pack(&twice, &MessageOptions::default()),
        Err(Error::Argument(_) | Error::Duplicate(_))
    ));
}

#[test]
fn rows_have_routes() {
    let found = routes(&[5, 1], &[2, 2, 2]).unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|r| (r.source, r.target, r.source_row, r.target_row, r.rows))
        .collect();
    assert_eq!(
        found,
        [
            (0, 0, 0, 0, 2),
            (0, 1, 2, 0, 2),
            (0, 2, 4, 0, 1),
            (1, 2, 0, 1, 1)
        ]
    );
    assert!(matches!(routes(&[5], &[4]), Err(Error::Argument(_))));
}

#[test]
fn a_moment_comes_back() {
    let (mut engine, w) = alone(MOMENTUM, &[1.0, 2.0]);
    let step = |engine: &mut Engine, grad: f32| {
        add(engine, w, &[grad, -grad]);
        engine.step().unwrap();
        engine.read::<f32>(w, Value::Master).unwrap()
    };
    step(&mut engine, 0.5);
    let mut snapshot = Snapshot::new().unwrap();
    assert_eq!(snapshot.info().unwrap().rank, None);
    engine
        .snapshot(&mut snapshot, 0, &[("place", b"row 7"), ("empty", b"")])
        .unwrap();
    let info = snapshot.info().unwrap();
    assert_eq!(
        (info.rank, info.copies, info.micro_steps, info.bytes > 16),
        (Some(0), 1, 1, true)
    );
    let first = step(&mut engine, 3.0);
    step(&mut engine, -1.0);
    engine.restore(&mut [&mut snapshot]).unwrap();
    assert_eq!(step(&mut engine, 3.0), first);
    assert_eq!(snapshot.part("place").unwrap(), b"row 7");
    assert_eq!(snapshot.part("empty").unwrap(), b"");
    assert!(matches!(snapshot.part("plaice"), Err(Error::NotFound(_))));
    assert!(matches!(
        engine.restore(&mut [&mut Snapshot::new().unwrap()]),
        Err(Error::NotFound(_))
    ));
    assert!(matches!(
        engine.snapshot(&mut snapshot, 3, &[]),
        Err(Error::Argument(_))
    ));
}

// SPDX-License-Identifier: Apache-2.0 OR MIT
use half::bf16;
use outrigger::*;

#[test]
fn a_shard_is_updated_where_it_is() {
    let context = Context::new().unwrap();
    let mut rule = Optimizer::new(
        &context,
        r#"{"type": "SGD", "params": {"lr": 0.5, "momentum": 0.5}, "gradient_clipping": 0}"#,
    )
    .unwrap();
    let (mut weights, mut published) = ([1.0_f32, 2.0], [bf16::ZERO; 2]);
    let asked = ShardOptions {
        published: Some(TensorMut::new(&mut published, &[2]).unwrap()),
        ..Default::default()
    };
    let mut shard = Shard::with(&context, &mut weights, asked).unwrap();
    assert!(matches!(
        shard.state::<f32>(Value::ExpAvg),
        Err(Error::NotFound(_))
    ));
    for grad in [[1.0_f32, 0.0], [2.0, -4.0]] {
        let report = rule
            .step(&mut [(&mut shard, Tensor::new(&grad, &[2]).unwrap())])
            .unwrap();
        assert!(report.is_applied());
    } // the gradients are gone: the shard does not point to them
    assert_eq!(shard.state::<f32>(Value::ExpAvg).unwrap(), [2.5, -4.0]);
    assert!(matches!(
        shard.state::<f64>(Value::ExpAvg),
        Err(Error::Dtype(_))
    ));
    assert_eq!(
        (shard.updates().unwrap(), shard.state_bytes().unwrap()),
        (2, 8)
    );
    let mut copy = [0.0_f64; 2];
    shard.read(Value::Master, &mut copy).unwrap();
    assert_eq!(copy, [-0.75, 4.0]);
    drop(shard);
    assert_eq!(weights, [-0.75, 4.0]);
    assert_eq!(published.map(bf16::to_f32), [-0.75, 4.0]);
}

#[test]
fn what_is_loaded_goes_on() {
    let context = Context::new().unwrap();
    let config = r#"{"type": "AdamW", "params": {"lr": 0.1}}"#;
    let mut rule = Optimizer::new(&context, config).unwrap();
    let (mut first, mut second) = ([1.0_f32; 3], [0.0_f32; 3]);
    let grad = [0.5_f32, -1.0, 2.0];
    let mut a = Shard::new(&context, &mut first).unwrap();
    let mut b = Shard::new(&context, &mut second).unwrap();
    rule.step(&mut [(&mut a, Tensor::new(&grad, &[3]).unwrap())])
        .unwrap();
    rule.prepare(&mut [&mut b]).unwrap();
    for value in [Value::Master, Value::ExpAvg, Value::ExpAvgSq] {
        let mut copy = [0.0_f32; 3];
        a.read(value, &mut copy).unwrap();
        b.write(value, &copy).unwrap();
    }
    b.set_updates(a.updates().unwrap()).unwrap();
    let norm = rule
        .norm(&mut [(&mut a, Tensor::new(&grad, &[3]).unwrap())])
        .unwrap();
    assert_eq!(norm, 5.25_f64.sqrt());
    rule.set_value("lr", 0.05).unwrap();
    let mut both = [
        (&mut a, Tensor::new(&grad, &[3]).unwrap()),
        (&mut b, Tensor::new(&grad, &[3]).unwrap()),
    ];
    rule.step(&mut both).unwrap();
    drop((a, b));
    assert_eq!(first, second);
    assert!(first[0] < 0.9);
}

#[test]
fn a_split_master_is_the_float32_one() {
    const COUNT: usize = 300;
    let context = Context::new().unwrap();
    let mut whole = Optimizer::new(&context, r#"{"params": {"lr": 0.01}}"#).unwrap();
    let split = r#"{"params": {"lr": 0.01}, "states": {"master": {"format": "split"}}}"#;
    let mut split = Optimizer::new(&context, split).unwrap();
    let grads: Vec<f32> = (0..COUNT).map(|i| (i as f32).sin()).collect();
    let grads = Tensor::new(&grads, &[COUNT]).unwrap();
    let (mut masters, mut weights, mut remainders) =
        ([1.0_f32; COUNT], [bf16::ONE; COUNT], [0_u16; COUNT]);
    let asked = ShardOptions {
        remainder: Some(TensorMut::new(&mut remainders, &[COUNT]).unwrap()),
        ..Default::default()
    };
    let mut plain = Shard::new(&context, &mut masters).unwrap();
    let mut halves = Shard::with(&context, &mut weights, asked).unwrap();
    for _ in 0..3 {
        assert!(whole
            .step(&mut [(&mut plain, grads.clone())])
            .unwrap()
            .is_applied());
        assert!(split
            .step(&mut [(&mut halves, grads.clone())])
            .unwrap()
            .is_applied());
    }
    drop((plain, halves));
    assert!(remainders.iter().any(|&each| each != 0));
    for i in 0..COUNT {
        let joined =
            (u32::from(weights[i].to_bits()) << 16).wrapping_add(remainders[i] as i16 as u32);
        assert_eq!(f32::from_bits(joined), masters[i], "element {i}");
    }
}

#[test]
fn a_remainder_wants_bfloat16_weights() {
    let context = Context::new().unwrap();
    let (mut weights, mut remainders) = ([1.0_f32; 4], [0_u16; 4]);
    let asked = ShardOptions {
        remainder: Some(TensorMut::new(&mut remainders, &[4]).unwrap()),
        ..Default::default()
    };
    let refused = Shard::with(&context, &mut weights, asked).err();
    assert!(refused.expect("refused").message().contains("remainder"));
}

#[test]
fn rows_make_a_matrix_for_muon() {
    let context = Context::new().unwrap();
    let config = r#"{"type": "Muon", "params": {"lr": 0.5, "adam_lr": 0.25, "nesterov": false}}"#;
    let mut optimizer = Optimizer::new(&context, config).unwrap();
    let gradient = [3.0_f32, 0.0, 0.0, 0.0, -4.0, 0.0];
    let grad = Tensor::new(&gradient, &[6]).unwrap();
    let (mut matrix, mut other, mut third) = ([0.0_f32; 6], [0.0_f32; 6], [0.0_f32; 6]);
    let rows = |rows| ShardOptions {
        rows,
        ..Default::default()
    };
    assert!(matches!(
        Shard::with(&context, &mut third, rows(5)),
        Err(Error::Argument(_))
    ));
    let mut whole = Shard::with(&context, &mut matrix, rows(2)).unwrap();
    let mut flat = Shard::new(&context, &mut other).unwrap();
    optimizer
        .step(&mut [(&mut whole, grad.clone()), (&mut flat, grad)])
        .unwrap();
    assert_eq!(
        (whole.state_bytes().unwrap(), flat.state_bytes().unwrap()),
        (24, 48)
    );
    assert!(matches!(
        whole.state::<f32>(Value::ExpAvgSq),
        Err(Error::NotFound(_))
    ));
    drop((whole, flat));
    // Newton-Schulz of a diagonal matrix.
    let singular = |x: f32| {
        (0..5).fold(x, |x, _| {
            3.4445 * x - 4.7750 * x.powi(3) + 2.0315 * x.powi(5)
        })
    };
    for i in 0..6 {
        let expected = -0.5 * gradient[i].signum() * singular(gradient[i].abs() / 5.0);
        assert!(
            (matrix[i] - expected).abs() < 1e-5,
            "{} {expected}",
            matrix[i]
        );
        let expected = if gradient[i] == 0.0 {
            0.0
        } else {
            -0.25 * gradient[i].signum()
        };
        assert!(
            (other[i] - expected).abs() < 1e-5,
            "{} {expected}",
            other[i]
        );
    }
}

#[test]
fn shards_are_saved_and_go_on() {
    let place = std::env::temp_dir().join(format!("outrigger-rust-shards-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let context = Context::new().unwrap();
    let config = r#"{"type": "AdamW", "params": {"lr": 0.1}}"#;
    let mut rule = Optimizer::new(&context, config).unwrap();
    let (mut first, mut second) = ([1.0_f32, 2.0, -3.0], [0.0_f32; 3]);
    let grad = [0.5_f32, -1.0, 2.0];
    let mut a = Shard::new(&context, &mut first).unwrap();
    let mut b = Shard::new(&context, &mut second).unwrap();
    let step = |rule: &mut Optimizer, shard: &mut Shard| {
        rule.step(&mut [(shard, Tensor::new(&grad, &[3]).unwrap())])
            .unwrap();
        let mut copy = [0.0_f32; 3];
        shard.read(Value::Master, &mut copy).unwrap();
        copy
    };
    let one = step(&mut rule, &mut a);
    let asked = Save {
        parts: &[("place", b"seven")],
        ..Default::default()
    };
    rule.save(&mut [&mut a], &place, "one", &asked).unwrap();
    let mut moment = Snapshot::new().unwrap();
    rule.snapshot(&mut [&mut a], &mut moment, &[]).unwrap();
    let two = step(&mut rule, &mut a);
    assert_ne!(one, two);
    rule.load(&mut [&mut b], &place, None, &Load::default())
        .unwrap();
    assert_eq!(b.updates().unwrap(), 1);
    assert_eq!(step(&mut rule, &mut b), two);
    rule.restore(&mut [&mut b], &moment).unwrap();
    assert_eq!(step(&mut rule, &mut b), two);
    assert!(matches!(
        rule.save(&mut [&mut a, &mut b], &place, "two", &Save::default()),
        Err(Error::Duplicate(_))
    ));
    let some = Load {
        include: &["*"],
        ..Default::default()
    };
    assert!(matches!(
        rule.load(&mut [&mut b], &place, None, &some),
        Err(Error::Unsupported(_))
    ));
    std::fs::remove_dir_all(&place).unwrap();
}

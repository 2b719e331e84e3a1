//! Matrix products of the CPU backend: right, and the same bits at every level, batch and number of threads.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use common::{Noise, Tensor, bits, devices, product, rows};
use pointsman_tensor::backend::{Backend, Norm};
use pointsman_tensor::cpu::{Cpu, Matrix, SimdLevel};
use pointsman_tensor::error::TensorError;
use pointsman_tensor::weights::{TensorType, TensorView};

const KINDS: [TensorType; 11] = TensorType::ALL;

/// Shapes that a panel, a block or a tile of rows does not divide, where the type allows them.
fn shapes(kind: TensorType) -> Vec<(usize, usize)> {
    match kind.block_len() {
        1 => vec![(1, 8), (17, 40), (31, 72), (48, 256)],
        32 => vec![(1, 32), (16, 64), (17, 96), (31, 576), (48, 1536)],
        _ => vec![(1, 256), (17, 512), (31, 1536)],
    }
}

#[test]
fn every_level_gives_the_bits_of_the_reference() {
    let devices = devices(1);
    for kind in KINDS {
        for (n_rows, cols) in shapes(kind) {
            let tensor = Tensor::noise(kind, n_rows, cols, 1);
            for count in [1, 2, 3, 5, 8, 17] {
                let x = Noise(2).values(count * cols);
                let results: Vec<_> =
                    devices.iter().map(|cpu| bits(&product(cpu, &cpu.pack(&tensor.view()).unwrap(), &x))).collect();
                for (cpu, result) in devices.iter().zip(&results) {
                    assert!(*result == results[0], "{kind} [{n_rows}, {cols}], {count} rows, {}", cpu.level());
                }
            }
        }
    }
}

#[test]
fn the_largest_codes_and_activations_fit_all_sums() {
    let devices = devices(1);
    // Where the blocks of each type keep their binary16 scales.
    let scales = |kind| match kind {
        TensorType::Q4_1 | TensorType::Q5_1 | TensorType::Q4K | TensorType::Q5K => &[0, 2][..],
        TensorType::Q6K => &[208],
        _ => &[0],
    };
    for kind in KINDS.into_iter().filter(|kind| kind.block_len() > 1) {
        for fill in [0xff, 0x80, 0x7f, 0x00] {
            let mut tensor = Tensor { kind, rows: 16, cols: 512, data: vec![fill; 16 * kind.row_bytes(512).unwrap()] };
            for block in tensor.data.chunks_mut(kind.block_bytes()) {
                scales(kind).iter().for_each(|at| block[*at..][..2].copy_from_slice(&[0x00, 0x3c]));
            }
            let x = [[1.0; 512], [-1.0; 512], [1.0; 512]].concat();
            let results: Vec<_> =
                devices.iter().map(|cpu| bits(&product(cpu, &cpu.pack(&tensor.view()).unwrap(), &x))).collect();
            for (cpu, result) in devices.iter().zip(&results) {
                assert!(*result == results[0], "{kind} of {fill:#x}, {}", cpu.level());
            }
        }
    }
}

/// Activations as the kernels see them: 32 values share a scale and are rounded to 16 bits.
fn rounded(x: &[f32]) -> Vec<f64> {
    let block = |block: &[f32]| {
        let largest = block.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let scale = if largest < 1e-30 { 0.0 } else { 32767.0 / largest };
        let dx = f64::from(largest / 32767.0);
        block.iter().map(|x| f64::from((x * scale).round_ties_even()) * dx).collect::<Vec<_>>()
    };
    x.chunks(32).flat_map(block).collect()
}

#[test]
fn the_reference_is_close_to_exact_products() {
    let cpu = Cpu::new(1, Some(SimdLevel::Reference)).unwrap();
    for kind in KINDS {
        for (n_rows, cols) in shapes(kind) {
            let tensor = Tensor::noise(kind, n_rows, cols, 3);
            let weights = tensor.view().to_f32();
            let mut x = Noise(4).values(cols);
            x[..cols.min(32)].fill(0.0);
            let out = product(&cpu, &cpu.pack(&tensor.view()).unwrap(), &x);
            let quantised = kind.block_len() > 1;
            let seen = if quantised { rounded(&x) } else { x.iter().map(|x| f64::from(*x)).collect() };
            for (out, w) in out.iter().zip(weights.chunks(cols)) {
                let terms = || w.iter().zip(&seen).map(|(w, x)| f64::from(*w) * x);
                let (exact, size): (f64, f64) = (terms().sum(), terms().map(f64::abs).sum());
                // The parts q * d * x and m * x of a term may be larger than the term itself, at most 33 times (Q6_K).
                let error = (f64::from(*out) - exact).abs();
                assert!(error <= 4e-6 * size + 1e-7, "{kind} [{n_rows}, {cols}]: {out} for {exact}");
                // Rounding the activations costs at most half a step of each block's scale.
                let steps = w.chunks(32).zip(x.chunks(32)).map(|(w, x)| {
                    let largest = x.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                    w.iter().map(|w| f64::from(w.abs() * largest) / 65534.0).sum::<f64>()
                });
                let bound = if quantised { steps.sum::<f64>() } else { 0.0 } + 4e-6 * size + 1e-7;
                let plain: f64 = w.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
                assert!((f64::from(*out) - plain).abs() <= bound * 1.001, "{kind}: {out} for {plain}, bound {bound}");
            }
        }
    }
}

#[test]
fn a_row_does_not_depend_on_its_batch() {
    for cpu in devices(2) {
        for kind in KINDS {
            let (n_rows, cols) = (50, 512);
            let matrix = cpu.pack(&Tensor::noise(kind, n_rows, cols, 5).view()).unwrap();
            let x = Noise(6).values(37 * cols);
            let together = product(&cpu, &matrix, &x);
            for (row, out) in x.chunks(cols).zip(together.chunks(n_rows)) {
                assert!(bits(&product(&cpu, &matrix, row)) == bits(out), "{kind}, {}", cpu.level());
            }
        }
    }
}

/// All operations on rows, as a layer would chain them.
fn layer(cpu: &Cpu, count: usize) -> Vec<u32> {
    let pack = |kind, n_rows, cols, seed| cpu.pack(&Tensor::noise(kind, n_rows, cols, seed).view()).unwrap();
    let [a, b] = [pack(TensorType::Q4_1, 100, 96, 1), pack(TensorType::F16, 40, 96, 2)];
    let [gate, up] = [pack(TensorType::Q8_0, 64, 96, 3), pack(TensorType::Q5_1, 64, 96, 4)];
    let [down, table] = [pack(TensorType::Q4_0, 96, 64, 5), pack(TensorType::Q8_0, 300, 96, 6)];
    let tokens: Vec<u32> = (0..count as u32).map(|i| i * 37 % 300).collect();
    let weight = Noise(7).values(96);
    let norm = Norm { weight: &weight, eps: 1e-5 };

    let [mut x, mut one, mut two, mut three, mut four] = [96, 100, 40, 64, 64].map(|width| cpu.rows(width));
    cpu.embed(&table, &tokens, &mut x);
    cpu.norm_linear(&x, norm, &[&a, &b], &mut [&mut one, &mut two]);
    cpu.norm_linear(&x, norm, &[&gate, &up], &mut [&mut three, &mut four]);
    cpu.swiglu_linear_add(&three, &four, &down, &mut x);
    let mut logits = vec![1.0; 7];
    let wanted: Vec<usize> = (0..count).step_by(2).collect();
    cpu.logits(&x, &wanted, norm, &table, &mut logits);
    assert_eq!(logits.len(), wanted.len() * 300);
    [one.values(), two.values(), x.values(), &logits].into_iter().flat_map(bits).collect()
}

#[test]
fn threads_and_levels_do_not_change_any_operation() {
    for count in [1, 3, 150] {
        let expected = layer(&Cpu::new(1, Some(SimdLevel::Reference)).unwrap(), count);
        for threads in [1, 2, 3] {
            for cpu in devices(threads) {
                assert!(layer(&cpu, count) == expected, "{count} rows, {}", cpu.describe());
            }
        }
    }
}

#[test]
fn operations_on_rows_are_right() {
    let cpu = Cpu::new(2, None).unwrap();
    let tensor = Tensor::noise(TensorType::F32, 24, 32, 8);
    let (matrix, w) = (cpu.pack(&tensor.view()).unwrap(), tensor.view().to_f32());
    let (x, weight) = (Noise(9).values(2 * 32), Noise(10).values(32));
    let times =
        |x: &[f64]| w.chunks(32).map(|w| w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()).collect::<Vec<f64>>();
    let near = |found: &[f32], expected: &[f64]| {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (f64::from(*a) - b).abs() < 1e-5), "{found:?}\n{expected:?}");
    };

    let normed = |x: &[f32]| {
        let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / 32.0;
        x.iter().zip(&weight).map(|(x, w)| f64::from(*x) / (mean + 1e-3).sqrt() * f64::from(*w)).collect::<Vec<_>>()
    };
    let norm = Norm { weight: &weight, eps: 1e-3 };
    let input = rows(&cpu, 32, &x);
    let mut out = cpu.rows(24);
    cpu.norm_linear(&input, norm, &[&matrix], &mut [&mut out]);
    near(out.row(0), &times(&normed(&x[..32])));
    let mut logits = Vec::new();
    cpu.logits(&input, &[1], norm, &matrix, &mut logits);
    near(&logits, &times(&normed(&x[32..])));

    let mut sum = rows(&cpu, 24, &[0.5; 24]);
    let (gate, up) = (rows(&cpu, 32, &x[..32]), rows(&cpu, 32, &x[32..]));
    cpu.swiglu_linear_add(&gate, &up, &matrix, &mut sum);
    let silu = |x: f32| f64::from(x) / (1.0 + (-f64::from(x)).exp());
    let gated: Vec<_> = gate.row(0).iter().zip(up.row(0)).map(|(g, u)| silu(*g) * f64::from(*u)).collect();
    near(sum.row(0), &times(&gated).iter().map(|product| product + 0.5).collect::<Vec<_>>());
}

#[test]
fn embedding_gives_the_rows_of_the_table() {
    for cpu in devices(2) {
        for kind in KINDS {
            let tensor = Tensor::noise(kind, 37, 512, 11);
            let table = cpu.pack(&tensor.view()).unwrap();
            let values = tensor.view().to_f32();
            let mut out = cpu.rows(512);
            cpu.embed(&table, &[36, 0, 5, 5], &mut out);
            for (row, token) in [36, 0, 5, 5].into_iter().enumerate() {
                let expected = &values[token * 512..][..512];
                let close = out.row(row).iter().zip(expected).all(|(a, b)| (a - b).abs() <= 4e-7 * (b.abs() + 1.0));
                assert!(close, "{kind}, row {token}");
            }
        }
    }
}

#[test]
fn refuses_what_it_can_not_pack() {
    let cpu = Cpu::new(2, None).unwrap();
    let refused = |kind, n_rows, cols, data: &[u8]| -> String {
        let view = TensorView::new("t", kind, n_rows, cols, data).unwrap();
        cpu.pack(&view).map(|matrix: Matrix| matrix.bytes()).unwrap_err().to_string()
    };
    assert!(refused(TensorType::F32, 1, 6, &[0; 24]).contains("multiples of 8"));
    let mut damaged = Tensor::noise(TensorType::Q4_1, 40, 64, 1);
    damaged.data[20 * 2 * 33] = 0;
    damaged.data[20 * 2 * 33 + 1] = 0x7c;
    assert!(refused(TensorType::Q4_1, 40, 64, &damaged.data).contains("not finite"));
    let mut floats = vec![0u8; 64];
    floats[4..8].copy_from_slice(&f32::NAN.to_le_bytes());
    assert!(refused(TensorType::F32, 2, 8, &floats).contains("not finite"));
}

#[test]
fn forcing_a_level_that_is_not_there_is_an_error() {
    for level in SimdLevel::ALL {
        let found = SimdLevel::available().any(|available| available == level);
        match Cpu::new(1, Some(level)) {
            Ok(cpu) => assert!(found && cpu.level() == level),
            Err(error) => assert!(!found && matches!(error, TensorError::Unsupported(_))),
        }
    }
    assert_eq!(Cpu::new(1, Some(SimdLevel::Reference)).unwrap().describe(), "cpu, 1 thread, no SIMD");
}

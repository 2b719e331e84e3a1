//! Measures the CPU kernels on the shapes of SmolLM2-135M: `cargo run --release -p pointsman-tensor --example kernels`.
//!
//! Prints, for each shape and number of rows, the rate of reading weights and of multiply-adds; then what a whole model of
//! 30 layers would reach, from all its operations in their order. An argument forces a level: `reference`, `avx2`, `avx512`.

use std::time::Instant;

use pointsman_tensor::backend::{Backend, Heads, KvShape, Norm, Rope, Span};
use pointsman_tensor::cpu::{Cpu, Matrix, Rows, SimdLevel};
use pointsman_tensor::error::TensorError;
use pointsman_tensor::weights::{TensorType, TensorView, quantize_row};

const LAYERS: usize = 30;
const WIDTH: usize = 576;
const INNER: usize = 1536;
const VOCAB: usize = 49152;
const HEADS: Heads = Heads { query: 9, kv: 3, dim: 64 };
const KEYS: usize = HEADS.kv * HEADS.dim;
const BLOCK_TOKENS: usize = 16;

fn main() -> Result<(), TensorError> {
    let level = match std::env::args().nth(1).as_deref() {
        Some("reference") => Some(SimdLevel::Reference),
        Some("avx2") => Some(SimdLevel::Avx2),
        Some("avx512") => Some(SimdLevel::Avx512),
        _ => None,
    };
    for threads in [1, 2] {
        let cpu = Cpu::new(threads, level)?;
        println!("\n{}", cpu.describe());
        matrices(&cpu)?;
        model(&cpu)?;
    }
    Ok(())
}

/// Values that are neither zero nor regular.
fn noise(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 % 1009) as f32 / 504.5 - 1.0) * ((i % 13) as f32 - 6.0) * 0.02).collect()
}

/// The matrix, and the seconds that packing took.
fn pack(cpu: &Cpu, kind: TensorType, rows: usize, cols: usize) -> Result<(Matrix, f64), TensorError> {
    let mut row = Vec::new();
    quantize_row(kind, &noise(cols), &mut row);
    let data = row.repeat(rows);
    let view = TensorView::new("noise", kind, rows, cols, &data)?;
    let start = Instant::now();
    Ok((cpu.pack(&view)?, start.elapsed().as_secs_f64()))
}

fn rows(cpu: &Cpu, width: usize, count: usize) -> Rows {
    let mut rows = cpu.rows(width);
    rows.resize(count);
    rows.values_mut().copy_from_slice(&noise(count * width));
    rows
}

/// Shortest time of `runs`, in seconds.
fn best(runs: usize, mut body: impl FnMut()) -> f64 {
    let time = |body: &mut dyn FnMut()| {
        let start = Instant::now();
        body();
        start.elapsed().as_secs_f64()
    };
    (0..runs).map(|_| time(&mut body)).fold(f64::INFINITY, f64::min)
}

fn matrices(cpu: &Cpu) -> Result<(), TensorError> {
    println!("{:<22}{:>6}{:>12}{:>10}{:>10}", "matrix", "rows", "time us", "GB/s", "GMAC/s");
    let shapes = [
        (TensorType::Q4_1, WIDTH, WIDTH),
        (TensorType::Q4_1, KEYS, WIDTH),
        (TensorType::Q4_1, INNER, WIDTH),
        (TensorType::Q4_1, WIDTH, INNER),
        (TensorType::Q8_0, VOCAB, WIDTH),
        (TensorType::Q4K, INNER, 512),
        (TensorType::Q5K, INNER, 512),
        (TensorType::Q6K, INNER, 512),
        (TensorType::F16, INNER, WIDTH),
    ];
    for (kind, out, width) in shapes {
        let (matrix, _) = pack(cpu, kind, out, width)?;
        for count in [1, 8, 64, 512] {
            if out == VOCAB && count > 8 {
                continue;
            }
            let (x, mut acc) = (rows(cpu, width, count), rows(cpu, out, count));
            let seconds = best(20, || cpu.linear_add(&x, &matrix, &mut acc));
            let rate = |amount: usize| amount as f64 / seconds / 1e9;
            println!(
                "{:<22}{count:>6}{:>12.1}{:>10.1}{:>10.1}",
                format!("{kind} [{out}, {width}]"),
                seconds * 1e6,
                rate(matrix.bytes()),
                rate(out * width * count)
            );
        }
    }
    Ok(())
}

/// One layer's weights, and the buffers of a step.
struct Model {
    layers: Vec<[Matrix; 7]>,
    head: Matrix,
    weight: Vec<f32>,
    rope: Rope,
}

impl Model {
    /// Runs a step of these spans; every layer has its own weights and its own part of the store.
    fn step(&self, cpu: &Cpu, spans: &[Span<'_>], kv: &mut <Cpu as Backend>::Kv, logits: &mut Vec<f32>) {
        let count: usize = spans.iter().map(|span| span.count).sum();
        let norm = Norm { weight: &self.weight, eps: 1e-5 };
        let mut x = cpu.rows(WIDTH);
        let tokens: Vec<u32> = (0..count as u32).map(|i| i * 31 % VOCAB as u32).collect();
        cpu.embed(&self.head, &tokens, &mut x);
        let [mut q, mut out] = [WIDTH, WIDTH].map(|width| cpu.rows(width));
        let [mut k, mut v] = [KEYS, KEYS].map(|width| cpu.rows(width));
        let [mut gate, mut up] = [INNER, INNER].map(|width| cpu.rows(width));
        for (layer, [wq, wk, wv, wo, wgate, wup, wdown]) in self.layers.iter().enumerate() {
            cpu.norm_linear(&x, norm, &[wq, wk, wv], &mut [&mut q, &mut k, &mut v]);
            cpu.rope_append(&self.rope, HEADS, spans, &mut q, &k, &v, kv, layer);
            cpu.attention(HEADS, spans, &q, kv, layer, &mut out);
            cpu.linear_add(&out, wo, &mut x);
            cpu.norm_linear(&x, norm, &[wgate, wup], &mut [&mut gate, &mut up]);
            cpu.swiglu_linear_add(&gate, &up, wdown, &mut x);
        }
        let last: Vec<usize> = spans.iter().map(|span| span.row + span.count - 1).collect();
        cpu.logits(&x, &last, norm, &self.head, logits);
    }
}

fn model(cpu: &Cpu) -> Result<(), TensorError> {
    let mut seconds = 0.0;
    let mut pack = |kind, rows, cols| {
        let (matrix, time) = pack(cpu, kind, rows, cols)?;
        seconds += time;
        Ok::<_, TensorError>(matrix)
    };
    let mut layers = Vec::new();
    for _ in 0..LAYERS {
        let mut q4 = |rows, cols| pack(TensorType::Q4_1, rows, cols);
        let [q, k, v, o] = [q4(WIDTH, WIDTH)?, q4(KEYS, WIDTH)?, q4(KEYS, WIDTH)?, q4(WIDTH, WIDTH)?];
        layers.push([q, k, v, o, q4(INNER, WIDTH)?, q4(INNER, WIDTH)?, q4(WIDTH, INNER)?]);
    }
    let head = pack(TensorType::Q8_0, VOCAB, WIDTH)?;
    println!("packing {} bytes: {seconds:.3} s", cpu.packed_bytes());
    let inverse_frequencies = (0..HEADS.dim / 2).map(|i| 1e5f32.powf(-2.0 * i as f32 / HEADS.dim as f32)).collect();
    let model = Model { layers, head, weight: vec![1.0; WIDTH], rope: Rope { inverse_frequencies } };

    let blocks = 9 * 1024 / BLOCK_TOKENS;
    let mut kv = cpu.kv(KvShape { layers: LAYERS, blocks, block_tokens: BLOCK_TOKENS, heads: HEADS })?;
    let table: Vec<u32> = (0..blocks as u32).collect();
    let mut logits = Vec::new();
    println!("{:<34}{:>10}{:>12}", "model", "ms", "tokens/s");
    let mut report = |name: &str, spans: &[Span<'_>], runs: usize| {
        let seconds = best(runs, || model.step(cpu, spans, &mut kv, &mut logits));
        let count: usize = spans.iter().map(|span| span.count).sum();
        println!("{name:<34}{:>10.2}{:>12.1}", seconds * 1e3, count as f64 / seconds);
    };
    let one = |start: usize, count: usize| [Span { row: 0, count, start, blocks: &table }];
    report("prefill of 512", &one(0, 512), 3);
    report("prefill of 128", &one(0, 128), 5);
    report("decode at 64", &one(64, 1), 30);
    report("decode at 2048", &one(2048, 1), 10);
    report("decode at 8192", &one(8192, 1), 5);
    for sequences in [2, 4, 8, 16] {
        let blocks = table.len() / sequences;
        let spans: Vec<_> = (0..sequences)
            .map(|i| Span { row: i, count: 1, start: 64, blocks: &table[i * blocks..(i + 1) * blocks] })
            .collect();
        report(&format!("decode of {sequences} sequences at 64"), &spans, 15);
    }
    Ok(())
}

//! What the tests of the CPU backend share: repeatable numbers, and tensors made of them.

#![allow(dead_code, reason = "not every test file uses all of it")]

use pointsman_tensor::backend::Backend;
use pointsman_tensor::cpu::{Cpu, Matrix, Rows, SimdLevel};
use pointsman_tensor::weights::{TensorType, TensorView, quantize_row};

/// Repeatable numbers (SplitMix64).
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Within -1..1, mostly small: cubes spread the magnitudes as weights and activations do.
    pub fn value(&mut self) -> f32 {
        let x = (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0;
        x * x * x
    }

    pub fn values(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.value()).collect()
    }
}

/// A tensor of noise as a file would hold it.
pub struct Tensor {
    pub kind: TensorType,
    pub rows: usize,
    pub cols: usize,
    pub data: Vec<u8>,
}

impl Tensor {
    pub fn noise(kind: TensorType, rows: usize, cols: usize, seed: u64) -> Self {
        let mut data = Vec::new();
        quantize_row(kind, &Noise(seed).values(rows * cols), &mut data);
        Self { kind, rows, cols, data }
    }

    pub fn view(&self) -> TensorView<'_> {
        TensorView::new("noise", self.kind, self.rows, self.cols, &self.data).unwrap()
    }
}

/// One device for each level that the machine has, the reference first.
pub fn devices(threads: usize) -> Vec<Cpu> {
    for level in SimdLevel::ALL {
        if !SimdLevel::available().any(|found| found == level) {
            println!("not tested: this machine has no {level}");
        }
    }
    SimdLevel::available().map(|level| Cpu::new(threads, Some(level)).unwrap()).collect()
}

pub fn rows(cpu: &Cpu, width: usize, values: &[f32]) -> Rows {
    let mut rows = cpu.rows(width);
    rows.resize(values.len() / width);
    rows.values_mut().copy_from_slice(values);
    rows
}

/// `x · Wᵀ`.
pub fn product(cpu: &Cpu, matrix: &Matrix, x: &[f32]) -> Vec<f32> {
    let mut out = rows(cpu, matrix.rows(), &vec![0.0; x.len() / matrix.cols() * matrix.rows()]);
    cpu.linear_add(&rows(cpu, matrix.cols(), x), matrix, &mut out);
    out.values().to_vec()
}

/// Bits, since equal must mean equal.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

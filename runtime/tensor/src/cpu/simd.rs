//! Instruction sets, and a vocabulary of eight-lane arithmetic in which every kernel on f32 is written once.
//!
//! A kernel is a [`LaneOp`], generic over [`Lanes`]; [`Isa::run`] compiles it once for plain Rust and once for AVX2, and
//! runs the one that the machine has. Every operation here is exactly rounded and in a fixed order, so all levels give the
//! same bits, and the plain version is the reference of the fast one. Products of quantised matrices, which gain from wider
//! registers and special instructions, are written out for each level instead: [`super::dot`] and [`super::x86`].

use std::fmt;

use half::f16;

use super::x86::{Avx2, Avx512};
use crate::error::TensorError;

/// Lanes of a vector.
pub(crate) const LANES: usize = 8;

/// How far the kernels may go in using this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimdLevel {
    /// Plain Rust, on any machine.
    Reference,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, VL, DQ and VNNI besides.
    Avx512,
}

impl SimdLevel {
    /// All levels, the slowest first.
    pub const ALL: [Self; 3] = [Self::Reference, Self::Avx2, Self::Avx512];

    /// The levels that this machine has.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|level| Isa::new(*level).is_ok())
    }
}

impl fmt::Display for SimdLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Reference => "no SIMD",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512 VNNI",
        })
    }
}

/// A level that this machine has been found to have: the tokens are the proof.
#[derive(Clone, Copy)]
pub(crate) enum Isa {
    Reference,
    Avx2(Avx2),
    Avx512(Avx512),
}

impl Isa {
    /// # Errors
    /// A level that this machine does not have.
    pub(crate) fn new(level: SimdLevel) -> Result<Self, TensorError> {
        match level {
            SimdLevel::Reference => Some(Self::Reference),
            SimdLevel::Avx2 => Avx2::detect().map(Self::Avx2),
            SimdLevel::Avx512 => Avx512::detect().map(Self::Avx512),
        }
        .ok_or_else(|| TensorError::Unsupported(format!("this machine has no {level}")))
    }

    /// The best that this machine has.
    pub(crate) fn best() -> Self {
        SimdLevel::ALL.into_iter().rev().find_map(|level| Self::new(level).ok()).unwrap_or(Self::Reference)
    }

    pub(crate) fn level(self) -> SimdLevel {
        match self {
            Self::Reference => SimdLevel::Reference,
            Self::Avx2(_) => SimdLevel::Avx2,
            Self::Avx512(_) => SimdLevel::Avx512,
        }
    }

    /// Runs a kernel with this level's lanes. AVX-512 uses those of AVX2: wider ones would sum in another order.
    #[inline]
    pub(crate) fn run<O: LaneOp>(self, op: O) -> O::Output {
        match self {
            Self::Reference => op.run(Plain),
            Self::Avx2(isa) => isa.run(op),
            Self::Avx512(isa) => isa.run(op),
        }
    }
}

/// A kernel on eight lanes. `run` and all that it calls must be `#[inline(always)]`, so that they are compiled with the
/// instructions of the level. Closures can not be, so they must not use the lanes.
pub(crate) trait LaneOp {
    type Output;

    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// Eight lanes of f32. A value of this type proves that its instructions are there.
pub(crate) trait Lanes: Copy {
    /// A vector.
    type V: Copy;

    fn splat(self, value: f32) -> Self::V;
    fn load(self, from: &[f32; LANES]) -> Self::V;
    fn load_f16(self, from: &[f16; LANES]) -> Self::V;
    fn store(self, v: Self::V, to: &mut [f32; LANES]);

    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a` where `a > b`, else `b`.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a` where `a < b`, else `b`.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    fn abs(self, v: Self::V) -> Self::V;
    /// To the nearest integer, ties to even.
    fn round(self, v: Self::V) -> Self::V;
    /// Two to the power of integers in `-126..=128`, the last of which is infinity.
    fn pow2(self, n: Self::V) -> Self::V;
    /// `v` where `a >= b`, else zero.
    fn keep_where_ge(self, v: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// `((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7))`.
    fn sum(self, v: Self::V) -> f32;
    /// The largest lane.
    fn max_lane(self, v: Self::V) -> f32;
    /// The nearest binary16 numbers, ties to even.
    fn to_f16(self, v: Self::V) -> [f16; LANES];
    /// The nearest integers, ties to even, of 16 values within `-32767.5..32767.5`.
    fn to_i16(self, v: [Self::V; 2]) -> [i16; 16];

    /// `e^x`, within 2 units in the last place. Zero below -87, and infinite above 88.4, a little before it must be.
    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        // x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts, of which the first has zeros at its end.
        const LN2_HIGH: f32 = 0.693_359_4;
        const LN2_LOW: f32 = -2.121_944_4e-4;
        let floor = self.splat(-87.0);
        let inside = self.max(self.min(x, self.splat(89.0)), floor);
        let n = self.round(self.mul(inside, self.splat(std::f32::consts::LOG2_E)));
        let r = self.fma(n, self.splat(-LN2_HIGH), inside);
        let r = self.fma(n, self.splat(-LN2_LOW), r);
        // The series of e^r to the seventh power; the next term is below 2^-27.
        let mut sum = self.splat(1.0 / 5040.0);
        for factor in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
            sum = self.fma(sum, r, self.splat(factor));
        }
        self.keep_where_ge(self.mul(sum, self.pow2(n)), x, floor)
    }

    /// `x / (1 + e^-x)`.
    #[inline(always)]
    fn silu(self, x: Self::V) -> Self::V {
        let falling = self.exp(self.sub(self.splat(0.0), x));
        self.div(x, self.add(self.splat(1.0), falling))
    }
}

/// Lanes in plain Rust.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

#[inline(always)]
fn each(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Lanes for Plain {
    type V = [f32; LANES];

    #[inline(always)]
    fn splat(self, value: f32) -> Self::V {
        [value; LANES]
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        *from
    }
    #[inline(always)]
    fn load_f16(self, from: &[f16; LANES]) -> Self::V {
        from.map(f16::to_f32)
    }
    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32; LANES]) {
        *to = v;
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        each(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        each(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        each(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        each(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        std::array::from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        each(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        each(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn abs(self, v: Self::V) -> Self::V {
        v.map(f32::abs)
    }
    #[inline(always)]
    fn round(self, v: Self::V) -> Self::V {
        v.map(f32::round_ties_even)
    }
    #[inline(always)]
    fn pow2(self, n: Self::V) -> Self::V {
        n.map(|n| f32::from_bits(((n as i32 + 127) << 23).cast_unsigned()))
    }
    #[inline(always)]
    fn keep_where_ge(self, v: Self::V, a: Self::V, b: Self::V) -> Self::V {
        std::array::from_fn(|i| if a[i] >= b[i] { v[i] } else { 0.0 })
    }
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]))
    }
    #[inline(always)]
    fn max_lane(self, v: Self::V) -> f32 {
        v.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
    #[inline(always)]
    fn to_f16(self, v: Self::V) -> [f16; LANES] {
        v.map(f16::from_f32)
    }
    #[inline(always)]
    fn to_i16(self, v: [Self::V; 2]) -> [i16; 16] {
        std::array::from_fn(|i| v[i / LANES][i % LANES].round_ties_even() as i16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Each<'a>(&'a [f32]);

    impl LaneOp for Each<'_> {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run<L: Lanes>(self, lanes: L) -> Vec<u32> {
            let mut results = Vec::new();
            for chunk in self.0.as_chunks().0 {
                let x = lanes.load(chunk);
                let half = chunk.map(f16::from_f32);
                let vectors = [
                    lanes.exp(x),
                    lanes.silu(x),
                    lanes.round(x),
                    lanes.abs(x),
                    lanes.load_f16(&half),
                    lanes.fma(x, x, lanes.splat(0.1)),
                    lanes.min(x, lanes.splat(0.3)),
                ];
                for v in vectors {
                    let mut out = [0.0; LANES];
                    lanes.store(v, &mut out);
                    results.extend(out.map(f32::to_bits));
                    results.extend([lanes.sum(v).to_bits(), lanes.max_lane(v).to_bits()]);
                }
                let small = lanes.max(lanes.min(x, lanes.splat(32767.0)), lanes.splat(-32767.0));
                results.extend(lanes.to_f16(x).map(|half| u32::from(half.to_bits())));
                results.extend(lanes.to_i16([small, lanes.abs(small)]).map(|code| code as u32));
            }
            results
        }
    }

    fn inputs() -> Vec<f32> {
        let mut values: Vec<f32> = (-4000..4000).map(|i| i as f32 * 0.025).collect();
        values.extend([0.5, 1.5, 2.5, -0.5, -1.5, 0.0, -0.0, 1e-30, -87.0, -87.01, 88.0, 88.1, 1e4, -1e4, -3e38, 3e38]);
        values
    }

    #[test]
    fn all_levels_give_the_same_bits() {
        let values = inputs();
        let expected = Isa::Reference.run(Each(&values));
        for level in SimdLevel::available() {
            assert!(Isa::new(level).unwrap().run(Each(&values)) == expected, "{level}");
        }
    }

    #[test]
    fn exp_and_silu_are_close_to_the_truth() {
        struct Both([f32; LANES]);
        impl LaneOp for Both {
            type Output = ([f32; LANES], [f32; LANES]);
            #[inline(always)]
            fn run<L: Lanes>(self, lanes: L) -> Self::Output {
                let (mut exp, mut silu) = ([0.0; LANES], [0.0; LANES]);
                lanes.store(lanes.exp(lanes.load(&self.0)), &mut exp);
                lanes.store(lanes.silu(lanes.load(&self.0)), &mut silu);
                (exp, silu)
            }
        }
        for chunk in inputs().as_chunks().0 {
            let (exp, silu) = Isa::best().run(Both(*chunk));
            for (x, (exp, silu)) in chunk.iter().zip(exp.into_iter().zip(silu)) {
                let x64 = f64::from(*x);
                if (-87.0..=88.0).contains(x) {
                    assert!((f64::from(exp) / x64.exp() - 1.0).abs() < 2.4e-7, "exp({x}) = {exp}");
                } else if *x < -87.0 {
                    assert_eq!(exp, 0.0);
                }
                let true_silu = x64 / (1.0 + (-x64).exp());
                assert!((f64::from(silu) - true_silu).abs() <= 4e-7 * true_silu.abs() + 1e-34, "silu({x}) = {silu}");
            }
        }
    }
}

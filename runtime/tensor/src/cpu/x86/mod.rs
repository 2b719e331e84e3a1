//! Kernels for x86-64, behind tokens that prove that the machine has the instructions.

mod avx2;
mod avx512;
mod lanes;

use std::arch::is_x86_feature_detected;

use super::dot::Panel;
use super::matrix::PANEL;
use super::simd::LaneOp;

/// This machine has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// This machine has AVX-512 F, BW, VL, DQ and VNNI, and what [`Avx2`] stands for.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        let found =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        found.then_some(Self(()))
    }

    /// Runs a kernel on 256-bit registers.
    #[inline]
    pub(crate) fn run<O: LaneOp>(self, op: O) -> O::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn compiled<O: LaneOp>(isa: Avx2, op: O) -> O::Output {
            op.run(isa)
        }
        // SAFETY: the token is the proof.
        unsafe { compiled(self, op) }
    }

    /// The products of a panel.
    #[inline]
    pub(crate) fn dot(self, panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
        // SAFETY: the token is the proof.
        unsafe { avx2::dot(panel, sums) }
    }
}

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        let found = Avx2::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni");
        found.then_some(Self(()))
    }

    /// Runs a kernel, on 256-bit registers as well.
    #[inline]
    pub(crate) fn run<O: LaneOp>(self, op: O) -> O::Output {
        Avx2(()).run(op)
    }

    /// The products of a panel.
    #[inline]
    pub(crate) fn dot(self, panel: &Panel<'_>, sums: &mut [[f32; PANEL]]) {
        // SAFETY: the token is the proof.
        unsafe { avx512::dot(panel, sums) }
    }
}

//! The lanes of [`crate::cpu::simd`] in 256-bit registers.

use std::arch::x86_64::*;

use half::f16;

use super::Avx2;
use crate::cpu::simd::{LANES, Lanes};

/// Methods that are one intrinsic each.
macro_rules! intrinsics {
    ($($name:ident($($argument:ident),+) = $intrinsic:ident;)+) => {
        $(
            #[inline(always)]
            fn $name(self, $($argument: __m256),+) -> __m256 {
                // SAFETY: the token proves that the machine has the instruction.
                unsafe { $intrinsic($($argument),+) }
            }
        )+
    };
}

impl Lanes for Avx2 {
    type V = __m256;

    intrinsics! {
        add(a, b) = _mm256_add_ps;
        sub(a, b) = _mm256_sub_ps;
        mul(a, b) = _mm256_mul_ps;
        div(a, b) = _mm256_div_ps;
        fma(a, b, c) = _mm256_fmadd_ps;
        max(a, b) = _mm256_max_ps;
        min(a, b) = _mm256_min_ps;
    }

    #[inline(always)]
    fn splat(self, value: f32) -> __m256 {
        // SAFETY: the token proves that the machine has the instruction.
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m256 {
        // SAFETY: 32 readable bytes, at any address; and the token.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn load_f16(self, from: &[f16; LANES]) -> __m256 {
        // SAFETY: 16 readable bytes, at any address; and the token.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn store(self, v: __m256, to: &mut [f32; LANES]) {
        // SAFETY: 32 writable bytes, at any address; and the token.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn abs(self, v: __m256) -> __m256 {
        // SAFETY: the token proves that the machine has the instructions.
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), v) }
    }

    #[inline(always)]
    fn round(self, v: __m256) -> __m256 {
        // SAFETY: the token proves that the machine has the instruction.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v) }
    }

    #[inline(always)]
    fn pow2(self, n: __m256) -> __m256 {
        // SAFETY: the token proves that the machine has the instructions.
        unsafe {
            let exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
            _mm256_castsi256_ps(_mm256_slli_epi32::<23>(exponent))
        }
    }

    #[inline(always)]
    fn keep_where_ge(self, v: __m256, a: __m256, b: __m256) -> __m256 {
        // SAFETY: the token proves that the machine has the instructions.
        unsafe { _mm256_and_ps(v, _mm256_cmp_ps::<_CMP_GE_OQ>(a, b)) }
    }

    #[inline(always)]
    fn sum(self, v: __m256) -> f32 {
        // SAFETY: the token proves that the machine has the instructions.
        unsafe {
            // i + 4, then i + 2, then i + 1.
            let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn max_lane(self, v: __m256) -> f32 {
        // SAFETY: the token proves that the machine has the instructions.
        unsafe {
            let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn to_f16(self, v: __m256) -> [f16; LANES] {
        let mut halves = [f16::ZERO; LANES];
        // SAFETY: 16 writable bytes, at any address; and the token.
        unsafe {
            let packed = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v);
            _mm_storeu_si128(halves.as_mut_ptr().cast(), packed);
        }
        halves
    }

    #[inline(always)]
    fn to_i16(self, [a, b]: [__m256; 2]) -> [i16; 16] {
        let mut codes = [0; 16];
        // SAFETY: 32 writable bytes, at any address; and the token.
        unsafe {
            let packed = _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b));
            // Packing works within halves of the register, which leaves the quarters in the order 0 2 1 3.
            _mm256_storeu_si256(codes.as_mut_ptr().cast(), _mm256_permute4x64_epi64::<0b11_01_10_00>(packed));
        }
        codes
    }
}

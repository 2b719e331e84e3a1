//! The same surface as `x86`, for other machines: tokens that can not exist.

use super::dot::Panel;
use super::matrix::PANEL;
use super::simd::LaneOp;

#[derive(Clone, Copy)]
pub(crate) enum Avx2 {}

#[derive(Clone, Copy)]
pub(crate) enum Avx512 {}

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        None
    }

    pub(crate) fn run<O: LaneOp>(self, _op: O) -> O::Output {
        match self {}
    }

    pub(crate) fn dot(self, _panel: &Panel<'_>, _sums: &mut [[f32; PANEL]]) {
        match self {}
    }
}

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        None
    }

    pub(crate) fn run<O: LaneOp>(self, _op: O) -> O::Output {
        match self {}
    }

    pub(crate) fn dot(self, _panel: &Panel<'_>, _sums: &mut [[f32; PANEL]]) {
        match self {}
    }
}

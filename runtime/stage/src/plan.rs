//! Which layers run on which stage. Called by [`crate::chain`] when a chain is built.
//!
//! Invariant: the ranges of a [`StagePlan`] are not empty, follow one another without gap or overlap, and together are
//! exactly the model's layers. It can not be built otherwise.

use std::ops::Range;

use crate::error::StageError;

/// Contiguous layer ranges, one a stage, that cover a model in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagePlan {
    /// First layer of each stage, then the number of layers: strictly ascending from 0.
    bounds: Vec<usize>,
}

impl StagePlan {
    /// Splits `layers` over `stages` as evenly as whole layers allow: sizes differ by at most one, the longer ranges last.
    ///
    /// # Errors
    /// No stage, or more stages than layers.
    pub fn even(layers: usize, stages: usize) -> Result<Self, StageError> {
        if stages == 0 || stages > layers {
            return Err(StageError::Stages { stages, layers });
        }
        let (size, longer) = (layers / stages, layers % stages);
        let bounds = (0..=stages).map(|stage| stage * size + (stage + longer).saturating_sub(stages)).collect();
        Ok(Self { bounds })
    }

    /// Number of stages, at least one.
    #[must_use]
    pub fn stages(&self) -> usize {
        self.bounds.len() - 1
    }

    /// The layers of each stage, first stage first.
    pub fn ranges(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + ExactSizeIterator {
        self.bounds.windows(2).map(|pair| pair[0]..pair[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_all_layers_in_order_and_differ_by_at_most_one() {
        for layers in 1..40 {
            for stages in 1..=layers {
                let plan = StagePlan::even(layers, stages).unwrap();
                let ranges: Vec<_> = plan.ranges().collect();
                assert_eq!(ranges.len(), stages);
                let covered: Vec<_> = ranges.iter().cloned().flatten().collect();
                assert_eq!(covered, (0..layers).collect::<Vec<_>>(), "{layers} layers, {stages} stages");
                assert!(ranges.is_sorted_by_key(ExactSizeIterator::len), "{ranges:?}");
                assert!(ranges[stages - 1].len() - ranges[0].len() <= 1, "{ranges:?}");
            }
        }
    }

    #[test]
    fn refuses_no_stage_and_more_stages_than_layers() {
        assert!(StagePlan::even(4, 0).is_err());
        assert!(StagePlan::even(0, 1).is_err());
        let error = StagePlan::even(4, 5).unwrap_err().to_string();
        assert_eq!(error, "can not split 4 layers over 5 stages; choose 1 to 4");
    }
}

//! The frames of the decision log: everything that went into a policy and came out of it, in words of 64 bits.
//!
//! ```text
//! word 0   63..56 kind   55..48 arm   31..0 words of the body
//! body     as `write` and `read` say
//! ```
//!
//! An *arm* is 0 for the policy in charge and 1 for its challenger. Written by the slot on the engine's thread, so encoding only
//! appends to a vector; read from files by [`crate::replay`], so decoding trusts nothing.

mod read;
#[cfg(test)]
mod tests;
mod write;

use std::borrow::Borrow;

use pointsman_engine::decision::{Fault, FaultClass};
use pointsman_engine::port::{Pick, Pull};
use pointsman_engine::snapshot::Snapshot;
use pointsman_engine::window::{Ask, Kind};

use crate::artifact::Digest;
use crate::kind::SlotKind;
use crate::versions::v0_1::Saved;
pub(crate) use write::Writer;

const START: u64 = 1;
const APPLY: u64 = 2;
const PICK: u64 = 3;
const PULL: u64 = 4;
const REFUSED: u64 = 5;
const REPLACED: u64 = 6;
const LOST: u64 = 7;
const ASK: u64 = 8;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The fault that ended it, if any.
    pub fault: Option<FaultClass>,
    /// What was answered, as it came from the policy, or the [`fingerprint`] of it where that is several words; 0 with a fault
    /// or for calls without an answer.
    pub answer: u64,
    /// Fuel that the guest used; 0 for the builtin.
    pub fuel: u64,
}

impl Outcome {
    /// How a call ended that took so much fuel.
    pub(crate) fn of(answer: Result<u64, impl Borrow<Fault>>, fuel: u64) -> Self {
        match answer {
            Ok(answer) => Self { fault: None, answer, fuel },
            Err(fault) => Self { fault: Some(fault.borrow().class), answer: 0, fuel },
        }
    }
}

/// One number for an answer of several words: each is mixed in by a rotation and a multiplication with an odd number. It is not
/// meant to withstand somebody who looks for two answers with the same one; those stand in the log themselves.
#[must_use]
pub fn fingerprint(words: &[u64]) -> u64 {
    let mix = |hash: u64, word: &u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    words.iter().fold(words.len() as u64, mix)
}

/// A question of a slot that is asked with a window, and the answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Which question.
    pub kind: Kind,
    /// Its numbers.
    pub ask: Ask,
    /// What there was to choose from.
    pub window: Vec<u64>,
    /// How the call ended.
    pub outcome: Outcome,
    /// The answer.
    pub answer: Vec<u64>,
}

/// The beginning of an arm's stay, or of a new part of it: from here on it can be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The slot.
    pub slot: SlotKind,
    /// The slot's generation.
    pub generation: u64,
    /// The policy's digest; none for the builtin.
    pub digest: Option<Digest>,
    /// Its name.
    pub name: String,
    /// The operator's configuration.
    pub config: String,
    /// The view that `init` was given.
    pub snapshot: Snapshot,
    /// What `init` was given of the policy before it: schema, event number, bytes.
    pub(crate) previous: Option<Saved>,
    /// How `init` ended.
    pub outcome: Outcome,
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// `init`.
    Start(Box<Start>),
    /// `apply`: number of the last event, and two words for each.
    Apply(u64, Vec<u64>, Outcome),
    /// `pick` or `pick-affine`: the question, a word for each overlap (none if it was `pick`), the packed answer.
    Pick(Pick, Option<Vec<u64>>, Outcome),
    /// `pull`: the question, four words for each waiting request, the index.
    Pull(Pull, Vec<u64>, Outcome),
    /// A question with a window.
    Ask(Box<Asked>),
    /// The guard refused the last answer.
    Refused(FaultClass),
    /// The builtin answered the last question instead: the packed answer, or the [`fingerprint`] of it.
    Replaced(u64),
    /// So many frames were dropped here, because the recorder could not keep up.
    Lost(u64),
}

/// One entry and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// 0 for the policy in charge, 1 for its challenger.
    pub arm: u8,
    /// What happened.
    pub body: Body,
}

/// The number of words of the whole frame that begins with `head`.
pub(crate) fn frame_words(head: u64) -> usize {
    (head & 0xffff_ffff) as usize + 1
}

/// The whole frames in words that hold nothing else.
pub(crate) fn split(words: &[u64]) -> impl Iterator<Item = &[u64]> {
    let mut rest = words;
    std::iter::from_fn(move || {
        let (frame, after) = rest.split_at_checked(frame_words(*rest.first()?))?;
        rest = after;
        Some(frame)
    })
}

/// Whether a frame with this head begins an arm that can be replayed from there: arm 0 starts.
pub(crate) fn starts_chunk(head: u64) -> bool {
    head >> 48 == START << 8
}

//! Why did this request go there? The decision is replayed up to its question, and the policy is asked for its scores.
//!
//! Costs nothing on the live path: all of it happens on a copy, from the log.

use pointsman_engine::decision::{FaultClass, RouteDecision};
use pointsman_engine::port::Pick;
use pointsman_engine::snapshot::{ChainView, Snapshot};

use super::{Find, Replay, ReplayError, events, overlaps};
use crate::artifact::Digest;
use crate::host::PolicyHost;
use crate::record::frame::{Body, Frame, Outcome, split};

/// One chain in an explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Considered {
    /// The chain as the policy saw it.
    pub chain: ChainView,
    /// Whether the request fitted.
    pub fits: bool,
    /// Tokens of the prompt that it held.
    pub cached_tokens: u32,
    /// What it was worth to the policy, the lowest being the best; none if it was not considered.
    pub score: Option<f64>,
}

/// One decision, explained.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The question.
    pub ask: Pick,
    /// The slot's generation.
    pub generation: u64,
    /// Who was asked: name, and digest unless it was the builtin.
    pub policy: (String, Option<Digest>),
    /// Whether that was a challenger.
    pub on_trial: bool,
    /// How the call ended.
    pub outcome: Outcome,
    /// Why the guard refused the answer, if it did.
    pub refused: Option<FaultClass>,
    /// What the builtin answered in its place, if it did.
    pub replaced: Option<u64>,
    /// All chains.
    pub chains: Vec<Considered>,
    /// Why there are no scores, if asking for them failed.
    pub no_scores: Option<String>,
}

impl Explanation {
    /// What was done in the end.
    #[must_use]
    pub fn decision(&self) -> Option<RouteDecision> {
        RouteDecision::decode(self.replaced.unwrap_or(self.outcome.answer)).ok()
    }
}

/// Explains the last `pick` in `words`, which [`crate::record::DecisionLog::find`] gave.
///
/// # Errors
/// The policy is not at hand any more.
pub fn explain(host: &PolicyHost, find: Find<'_>, words: &[u64]) -> Result<Option<Explanation>, ReplayError> {
    let frames: Vec<Frame> = split(words).filter_map(|frame| Frame::decode(frame).ok()).collect();
    let Some(last) = frames.iter().rposition(|frame| matches!(frame.body, Body::Pick(..))) else { return Ok(None) };
    let (before, after) = frames.split_at(last);
    let [Frame { arm, body: Body::Pick(ask, overlap, outcome) }, after @ ..] = after else { return Ok(None) };

    let mut replay = Replay::new(host, find);
    let (mut view, mut who) = (None, None);
    for (number, frame) in (0..).zip(before) {
        replay.step(number, frame)?;
        if frame.arm == *arm || matches!(frame.body, Body::Lost(_)) {
            follow(frame, &mut view, &mut who);
        }
    }
    let (Some(view), Some((generation, name, digest))) = (view, who) else { return Ok(None) };
    let overlap = overlap.as_deref().unwrap_or_default();
    let traced = replay.guest(*arm).map(|guest| guest.trace(ask, overlap)).transpose();
    let (scores, no_scores) = match traced {
        Ok(scores) => (scores, None),
        Err(fault) => (None, Some(fault.to_string())),
    };
    let chains = view.chains.iter().map(|chain| Considered {
        chain: *chain,
        fits: chain.takes(ask.reserve),
        cached_tokens: overlaps(overlap).find(|it| it.chain == chain.id).map_or(0, |it| it.tokens),
        score: match &scores {
            Some(scores) => scores.iter().find(|score| score.chain == chain.id.0).map(|score| score.score),
            // The builtin joins the shortest queue.
            None if digest.is_none() => chain.takes(ask.reserve).then_some(chain.busy.into()),
            None => None,
        },
    });
    let find = |pick: fn(&Body) -> Option<u64>| after.iter().find_map(|frame| pick(&frame.body));
    Ok(Some(Explanation {
        ask: *ask,
        generation,
        policy: (name, digest),
        on_trial: *arm == 1,
        outcome: *outcome,
        refused: after.iter().find_map(|frame| match frame.body {
            Body::Refused(class) => Some(class),
            _ => None,
        }),
        replaced: find(|body| match body {
            Body::Replaced(answer) => Some(*answer),
            _ => None,
        }),
        chains: chains.collect(),
        no_scores,
    }))
}

type Who = (u64, String, Option<Digest>);

/// Keeps the arm's view and name.
fn follow(frame: &Frame, view: &mut Option<Snapshot>, who: &mut Option<Who>) {
    match &frame.body {
        Body::Start(start) => {
            *view = Some(start.snapshot.clone());
            *who = Some((start.generation, start.name.clone(), start.digest));
        }
        Body::Apply(seq, words, _) => {
            if let Some(view) = view {
                view.fold(*seq, events(words));
            }
        }
        Body::Lost(_) => *view = None,
        Body::Pick(..) | Body::Pull(..) | Body::Ask(_) | Body::Refused(_) | Body::Replaced(_) => {}
    }
}

//! The `batch` and `cache` slots: questions that come with a window of what there is to choose from, and answers about it.
//!
//! Both cross the border in words, as `sdk/wit/policy/policy.wit` lays them out, and are handled alike: `desk` puts the
//! questions, a [`WindowPolicy`] answers, [`Kind::check`] says whether the answer can be followed, and [`Kind::builtin`] answers
//! when there is no policy or it failed. A policy that is asked so keeps no view: what it may know is in the window.

use crate::builtin;
use crate::decision::{Fault, FaultClass};
use crate::ids::{ChainId, Micros, RequestId};
use crate::limits::{CHAIN_JOBS_MAX, EVICT_WINDOW_MAX};
use crate::snapshot::Snapshot;

/// Which question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `batch.step`: which of the sequences that are ready run in the next micro-batch?
    Step,
    /// `cache.victims`: which cached prefixes are given up?
    Victims,
}

/// A question, without its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Number of the last event that was told.
    pub seq: u64,
    /// Now.
    pub now: Micros,
    /// Fresh random bits, derived from the run's seed and the number of this question; replays exactly.
    pub rnd: u64,
    /// Which chain.
    pub chain: ChainId,
    /// `step`: tokens of prompts that the micro-batch may hold. `victims`: blocks that must become free.
    pub want: u32,
    /// `step`: micro-batches at work on the chain. `victims`: blocks that are free.
    pub have: u32,
}

/// A slot that is asked with a window, as the engine sees it.
///
/// Before each question the engine calls `init` if [`Self::wants_snapshot`] says so, and `apply` if there is something to tell.
/// After any `Err` the builtin answers the same question in the same call.
pub trait WindowPolicy {
    /// True when the policy has not been started yet (fresh, swapped in, or rebuilt after a fault).
    fn wants_snapshot(&self) -> bool;
    /// Whether it can be asked now; one that only wants to be started afresh can.
    fn can_answer(&self) -> bool {
        !self.wants_snapshot()
    }
    /// Starts it.
    ///
    /// # Errors
    /// The policy's fault; it stays as it was.
    fn init(&mut self, snapshot: &Snapshot) -> Result<(), Fault>;
    /// Tells what happened, two words an event; `seq` is the number of the last.
    ///
    /// # Errors
    /// The policy's fault.
    fn apply(&mut self, seq: u64, words: &[u64]) -> Result<(), Fault>;
    /// Asks, and appends the answer to `answer`, which is empty.
    ///
    /// # Errors
    /// The policy's fault.
    fn ask(&mut self, ask: &Ask, window: &[u64], answer: &mut Vec<u64>) -> Result<(), Fault>;
    /// Tells the policy's keeper that the last answer can not be followed.
    fn refused(&mut self, why: &Fault);
    /// Tells the policy's keeper what the builtin answered in its place.
    fn replaced(&mut self, answer: &[u64]) {
        let _ = answer;
    }
    /// Tells the policy's keeper that it held a sequence back for so long that the engine ran it.
    fn stalled(&mut self, request: RequestId) {
        let _ = request;
    }
}

impl Kind {
    /// The function of the contract that puts this question.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Victims => "victims",
        }
    }

    /// Words of one entry of the window.
    #[must_use]
    pub fn words(self) -> usize {
        match self {
            Self::Step => Ready::WORDS,
            Self::Victims => Idle::WORDS,
        }
    }

    /// Most entries of a window, and so words of an answer.
    #[must_use]
    pub fn entries_max(self) -> usize {
        match self {
            Self::Step => CHAIN_JOBS_MAX,
            Self::Victims => EVICT_WINDOW_MAX,
        }
    }

    /// Whether an answer about a window of `entries` can be followed.
    ///
    /// # Errors
    /// An [`FaultClass::Invalid`] fault that says what is wrong.
    pub fn check(self, ask: &Ask, entries: usize, answer: &[u64]) -> Result<(), Fault> {
        match self {
            Self::Step => check_step(ask, entries, answer),
            Self::Victims => check_victims(entries, answer),
        }
    }

    /// The builtin's answer.
    pub fn builtin(self, ask: &Ask, entries: usize, answer: &mut Vec<u64>) {
        match self {
            // Nobody is named: everything goes its usual way.
            Self::Step => {}
            Self::Victims => answer.extend(builtin::victims(entries, ask.want).map(u64::from)),
        }
    }
}

fn check_step(ask: &Ask, entries: usize, answer: &[u64]) -> Result<(), Fault> {
    let mut seen = Seen::default();
    let mut held = 0;
    for &word in answer {
        let order = Order::decode(word).ok_or_else(|| invalid(format!("step: {word:#018x} is no order")))?;
        seen.note(Kind::Step, order.index(), entries)?;
        held += usize::from(matches!(order, Order::Hold(_)));
    }
    if held == entries && ask.have == 0 {
        return Err(invalid(format!("step: all {entries} sequences are held while nothing is in flight")));
    }
    Ok(())
}

fn check_victims(entries: usize, answer: &[u64]) -> Result<(), Fault> {
    let mut seen = Seen::default();
    if answer.is_empty() {
        return Err(invalid(format!("victims: none of {entries} is given up, although room is needed")));
    }
    answer.iter().try_for_each(|&index| seen.note(Kind::Victims, u32::try_from(index).unwrap_or(u32::MAX), entries))
}

/// The indices that an answer has named.
#[derive(Default)]
struct Seen([u64; CHAIN_JOBS_MAX.div_ceil(64)]);

const _: () = assert!(EVICT_WINDOW_MAX <= CHAIN_JOBS_MAX);

impl Seen {
    fn note(&mut self, kind: Kind, index: u32, entries: usize) -> Result<(), Fault> {
        let call = kind.name();
        let place = self.0.get_mut(index as usize / 64).filter(|_| (index as usize) < entries);
        let place = place.ok_or_else(|| invalid(format!("{call}: index {index} of a window of {entries}")))?;
        let bit = 1 << (index % 64);
        if *place & bit != 0 {
            return Err(invalid(format!("{call}: index {index} is named twice")));
        }
        *place |= bit;
        Ok(())
    }
}

fn invalid(detail: String) -> Fault {
    Fault::new(FaultClass::Invalid, detail)
}

/// Two halves of a word of the contract.
#[must_use]
pub fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// A sequence that is ready to run: an entry of the window of [`Kind::Step`].
///
/// The window holds all that are ready on a chain, those that decode first, each group in the order in which they would go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// Whose.
    pub id: RequestId,
    /// Opaque tenant number.
    pub tenant: u32,
    /// Priority class.
    pub class: u32,
    /// Prompt length in tokens.
    pub prompt: u32,
    /// Tokens that are reserved.
    pub reserve: u32,
    /// Tokens whose keys and values are there.
    pub computed: u32,
    /// Tokens that it can run now.
    pub pending: u32,
    /// Time since it arrived.
    pub waited: Micros,
    /// Time by which an answer is wanted, 0 for none.
    pub deadline: Micros,
    /// New tokens so far.
    pub generated: u32,
    /// Micro-batches in a row in which it was passed over.
    pub passed: u32,
}

impl Ready {
    /// Words of one entry.
    pub const WORDS: usize = 8;

    /// The words of the contract.
    #[must_use]
    pub fn words(&self) -> [u64; Self::WORDS] {
        [
            self.id.0,
            pair(self.tenant, self.class),
            pair(self.prompt, self.reserve),
            pair(self.computed, self.pending),
            self.waited.0,
            self.deadline.0,
            pair(self.generated, self.passed),
            0,
        ]
    }
}

/// One end of a chain of idle blocks in the prefix cache: an entry of the window of [`Kind::Victims`].
///
/// The window holds at most [`EVICT_WINDOW_MAX`] ends, least recently used first. To evict an end is to give up that block and,
/// while more blocks are needed, those before it that have been left at the same moment, were started on as often, and that
/// nothing else follows.
/// Whatever is answered is safe: nobody uses these blocks, they may only be missed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Opaque number of the tenant whose prompts it serves, and no other's.
    pub tenant: u32,
    /// Tokens from the beginning of the sequence to the end of the block: what a hit here saves at most.
    pub depth: u32,
    /// When its last sequence left it, on a clock that counts the sequences that have left the chain.
    pub last_use: u64,
    /// Sequences that were started on it.
    pub hits: u64,
}

impl Idle {
    /// Words of one entry.
    pub const WORDS: usize = 4;

    /// The words of the contract.
    #[must_use]
    pub fn words(&self) -> [u64; Self::WORDS] {
        [pair(self.tenant, self.depth), self.last_use, self.hits, 0]
    }
}

/// What a tenant was served since it was told last: the event of the `batch` slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Opaque tenant number.
    pub tenant: u32,
    /// Tokens of prompts that were computed for it.
    pub prompt_tokens: u32,
    /// Tokens that were decoded for it.
    pub new_tokens: u32,
}

impl Served {
    const KIND: u64 = 1;

    /// The two words of the contract.
    #[must_use]
    pub fn words(&self) -> [u64; 2] {
        [Self::KIND << 56 | u64::from(self.tenant), pair(self.prompt_tokens, self.new_tokens)]
    }
}

/// One word of an answer to [`Kind::Step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Run this entry of the window before those that are not named, so many tokens at most; 0 for as many as may be.
    Run {
        /// Its index.
        index: u32,
        /// The most tokens.
        tokens: u32,
    },
    /// Leave this entry out.
    Hold(u32),
}

impl Order {
    const RUN: u64 = 1;
    const HOLD: u64 = 2;

    /// Bits 63..56 are the kind, 55..32 the tokens, 31..0 the index. `None` for any other kind, and for tokens with a hold.
    #[must_use]
    pub fn decode(word: u64) -> Option<Self> {
        let (index, tokens) = (word as u32, (word >> 32) as u32 & 0xff_ffff);
        match word >> 56 {
            Self::RUN => Some(Self::Run { index, tokens }),
            Self::HOLD if tokens == 0 => Some(Self::Hold(index)),
            _ => None,
        }
    }

    /// The inverse of [`Self::decode`].
    #[must_use]
    pub fn encode(self) -> u64 {
        match self {
            Self::Run { index, tokens } => Self::RUN << 56 | u64::from(tokens & 0xff_ffff) << 32 | u64::from(index),
            Self::Hold(index) => Self::HOLD << 56 | u64::from(index),
        }
    }

    fn index(self) -> u32 {
        match self {
            Self::Run { index, .. } | Self::Hold(index) => index,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(have: u32) -> Ask {
        Ask { seq: 0, now: Micros(0), rnd: 0, chain: ChainId(0), want: 2, have }
    }

    #[test]
    fn an_order_for_a_step_is_checked() {
        let run = |index| Order::Run { index, tokens: 0 }.encode();
        let hold = |index| Order::Hold(index).encode();
        let check = |have, answer: &[u64]| Kind::Step.check(&ask(have), 3, answer).is_ok();
        assert!(check(0, &[]) && check(0, &[run(2), run(0), hold(1)]) && check(1, &[hold(0), hold(1), hold(2)]));
        assert!(!check(0, &[hold(0), hold(1), hold(2)]), "nothing would ever come back");
        assert!(!check(1, &[run(3)]) && !check(1, &[run(u32::MAX)]) && !check(1, &[run(1), hold(1)]));
        assert!(!check(1, &[0]) && !check(1, &[3 << 56]) && !check(1, &[hold(0) | 1 << 32]));
        for order in [Order::Run { index: 7, tokens: 0xff_ffff }, Order::Hold(u32::MAX)] {
            assert_eq!(Order::decode(order.encode()), Some(order));
        }
    }

    #[test]
    fn victims_are_checked() {
        let check = |answer: &[u64]| Kind::Victims.check(&ask(0), 3, answer).is_ok();
        assert!(check(&[2]) && check(&[1, 0, 2]));
        assert!(!check(&[]) && !check(&[0, 0]) && !check(&[3]) && !check(&[u64::MAX]) && !check(&[1 << 32]));
    }

    #[test]
    fn the_builtin_is_always_right() {
        for entries in 1..=EVICT_WINDOW_MAX {
            for kind in [Kind::Step, Kind::Victims] {
                let mut answer = Vec::new();
                kind.builtin(&ask(0), entries, &mut answer);
                assert_eq!(kind.check(&ask(0), entries, &answer), Ok(()));
            }
        }
    }
}

//! The frames of the decision log: everything that went into a policy and came out of it, in words of 64 bits.
//!
//! ```text
//! word 0   63..56 kind   55..48 arm   31..0 words of the body
//! body     as `encode` and `Frame::decode` below say
//! ```
//!
//! An *arm* is 0 for the policy in charge and 1 for its challenger. Written by the slot on the engine's thread, so encoding only
//! appends to a vector; read from files by [`crate::replay`], so decoding trusts nothing.

use std::borrow::Borrow;

use pointsman_engine::decision::{Fault, FaultClass};
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Pick, Pull};
use pointsman_engine::snapshot::{ChainView, Snapshot};
use pointsman_engine::window::{Ask, Kind};

use crate::artifact::Digest;
use crate::kind::SlotKind;
use crate::limits::{CONFIG_BYTES_MAX, RESULT_BYTES_MAX};
use crate::versions::v0_1::Saved;

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

/// One number for an answer of several words: FNV-1a over them.
#[must_use]
pub fn fingerprint(words: &[u64]) -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    words.iter().flat_map(|word| word.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, mix)
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

/// Appends frames to a vector of words.
pub(crate) struct Writer<'a>(pub(crate) &'a mut Vec<u64>);

impl Writer<'_> {
    fn frame(&mut self, kind: u64, arm: u8, body: impl FnOnce(&mut Vec<u64>)) {
        let head = self.0.len();
        self.0.push(0);
        body(self.0);
        let words = (self.0.len() - head - 1) as u64;
        self.0[head] = kind << 56 | u64::from(arm) << 48 | words;
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one frame, of which most are borrowed")]
    pub(crate) fn start(
        &mut self,
        arm: u8,
        slot: SlotKind,
        generation: u64,
        digest: Option<Digest>,
        name: &str,
        config: &str,
        snapshot: &Snapshot,
        previous: Option<&Saved>,
        outcome: Outcome,
    ) {
        self.frame(START, arm, |words| {
            words.extend([slot as u64, generation]);
            words.extend(digest.map_or([0; 4], Digest::words));
            push_bytes(words, name.as_bytes());
            push_bytes(words, config.as_bytes());
            let Snapshot { epoch, seq, queued, chains } = snapshot;
            words.extend([*epoch, *seq, u64::from(*queued), chains.len() as u64]);
            words.extend(chains.iter().flat_map(|chain| {
                let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
                let ChainView { id, capacity, busy, free_tokens, open, service } = *chain;
                [pair(id.0, capacity), pair(busy, free_tokens), u64::from(open), service.0]
            }));
            words.push(previous.is_some().into());
            if let Some(Saved { schema, seq, bytes }) = previous {
                push_bytes(words, schema.as_bytes());
                words.push(*seq);
                push_bytes(words, bytes);
            }
            push_outcome(words, outcome);
        });
    }

    pub(crate) fn apply(&mut self, arm: u8, seq: u64, events: &[u64], outcome: Outcome) {
        self.frame(APPLY, arm, |words| {
            words.push(seq);
            push_outcome(words, outcome);
            words.extend(events);
        });
    }

    pub(crate) fn pick(&mut self, arm: u8, ask: &Pick, overlap: Option<&[u64]>, outcome: Outcome) {
        self.frame(PICK, arm, |words| {
            let Pick { id, seq, now, rnd, tenant, class, prompt, reserve, deadline, session, hints } = *ask;
            let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
            words.extend([id.0, seq, now.0, rnd, pair(tenant, class), pair(prompt, reserve), deadline.0, session]);
            words.push(pair(hints, overlap.is_some().into()));
            push_outcome(words, outcome);
            words.extend(overlap.unwrap_or_default());
        });
    }

    pub(crate) fn pull(&mut self, arm: u8, ask: &Pull, waiting: &[u64], outcome: Outcome) {
        self.frame(PULL, arm, |words| {
            let Pull { seq, now, rnd, chain } = *ask;
            words.extend([seq, now.0, rnd, u64::from(chain.0)]);
            push_outcome(words, outcome);
            words.extend(waiting);
        });
    }

    pub(crate) fn ask(&mut self, arm: u8, kind: Kind, ask: &Ask, window: &[u64], outcome: Outcome, answer: &[u64]) {
        self.frame(ASK, arm, |words| {
            let Ask { seq, now, rnd, chain, want, have } = *ask;
            let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
            words.extend([pair(kind as u32, chain.0), seq, now.0, rnd, pair(want, have)]);
            push_outcome(words, outcome);
            words.push(window.len() as u64);
            words.extend(window);
            words.extend(answer);
        });
    }

    pub(crate) fn refused(&mut self, arm: u8, class: FaultClass) {
        self.frame(REFUSED, arm, |words| words.push(class_code(Some(class))));
    }

    pub(crate) fn replaced(&mut self, arm: u8, answer: u64) {
        self.frame(REPLACED, arm, |words| words.push(answer));
    }

    pub(crate) fn lost(&mut self, frames: u64) {
        self.frame(LOST, 0, |words| words.push(frames));
    }
}

fn class_code(class: Option<FaultClass>) -> u64 {
    class.map_or(0, |class| class.index() as u64 + 1)
}

fn push_outcome(words: &mut Vec<u64>, outcome: Outcome) {
    words.extend([class_code(outcome.fault), outcome.answer, outcome.fuel]);
}

/// The length, then eight bytes a word, little-endian, the last one padded with zeros.
fn push_bytes(words: &mut Vec<u64>, bytes: &[u8]) {
    words.push(bytes.len() as u64);
    words.extend(bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    }));
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

impl Frame {
    /// Reads one whole frame.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(words: &[u64]) -> Result<Self, &'static str> {
        let (&head, body) = words.split_first().ok_or("it is empty")?;
        if frame_words(head) != words.len() {
            return Err("its length is wrong");
        }
        let arm = match (head >> 48) & 0xff {
            arm @ 0..=1 => arm as u8,
            _ => return Err("its arm is neither 0 nor 1"),
        };
        let mut body = Reader(body);
        let body = match head >> 56 {
            START => Body::Start(Box::new(body.start()?)),
            APPLY => {
                let (seq, outcome) = (body.word()?, body.outcome()?);
                Body::Apply(seq, body.rest(), outcome)
            }
            PICK => {
                let ((ask, affine), outcome) = (body.pick()?, body.outcome()?);
                let overlap = body.rest();
                Body::Pick(ask, affine.then_some(overlap), outcome)
            }
            PULL => {
                let (seq, now, rnd) = (body.word()?, Micros(body.word()?), body.word()?);
                let ask = Pull { seq, now, rnd, chain: ChainId(body.word()? as u32) };
                let outcome = body.outcome()?;
                Body::Pull(ask, body.rest(), outcome)
            }
            ASK => Body::Ask(Box::new(body.asked()?)),
            REFUSED => Body::Refused(body.class()?.ok_or("it refuses for no reason")?),
            REPLACED => Body::Replaced(body.word()?),
            LOST => Body::Lost(body.word()?),
            _ => return Err("its kind is unknown"),
        };
        Ok(Self { arm, body })
    }
}

/// Takes words off the front of a frame's body.
struct Reader<'a>(&'a [u64]);

const SHORT: &str = "it is too short";

impl Reader<'_> {
    fn word(&mut self) -> Result<u64, &'static str> {
        let (&word, rest) = self.0.split_first().ok_or(SHORT)?;
        self.0 = rest;
        Ok(word)
    }

    fn pair(&mut self) -> Result<(u32, u32), &'static str> {
        self.word().map(|word| ((word >> 32) as u32, word as u32))
    }

    fn rest(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.0).to_vec()
    }

    fn class(&mut self) -> Result<Option<FaultClass>, &'static str> {
        match self.word()? {
            0 => Ok(None),
            code => FaultClass::ALL.get(code as usize - 1).copied().map(Some).ok_or("its fault class is unknown"),
        }
    }

    fn outcome(&mut self) -> Result<Outcome, &'static str> {
        Ok(Outcome { fault: self.class()?, answer: self.word()?, fuel: self.word()? })
    }

    fn bytes(&mut self, max: usize) -> Result<Vec<u8>, &'static str> {
        let len = usize::try_from(self.word()?).ok().filter(|&len| len <= max).ok_or("a text in it is too long")?;
        let (words, rest) = self.0.split_at_checked(len.div_ceil(8)).ok_or(SHORT)?;
        self.0 = rest;
        Ok(words.iter().flat_map(|word| word.to_le_bytes()).take(len).collect())
    }

    fn text(&mut self, max: usize) -> Result<String, &'static str> {
        String::from_utf8(self.bytes(max)?).map_err(|_| "a text in it is not UTF-8")
    }

    /// The question, and whether overlaps follow.
    fn pick(&mut self) -> Result<(Pick, bool), &'static str> {
        let (id, seq, now, rnd) = (RequestId(self.word()?), self.word()?, Micros(self.word()?), self.word()?);
        let ((tenant, class), (prompt, reserve)) = (self.pair()?, self.pair()?);
        let (deadline, session, (hints, affine)) = (Micros(self.word()?), self.word()?, self.pair()?);
        Ok((Pick { id, seq, now, rnd, tenant, class, prompt, reserve, deadline, session, hints }, affine != 0))
    }

    fn snapshot(&mut self) -> Result<Snapshot, &'static str> {
        let (epoch, seq, queued, count) = (self.word()?, self.word()?, self.word()? as u32, self.word()?);
        // Four words each: a count that is a lie runs out of words before it allocates.
        if count > self.0.len() as u64 / 4 {
            return Err(SHORT);
        }
        let mut chain = || -> Result<ChainView, &'static str> {
            let ((id, capacity), (busy, free_tokens)) = (self.pair()?, self.pair()?);
            let (open, service) = (self.word()? != 0, Micros(self.word()?));
            Ok(ChainView { id: ChainId(id), capacity, busy, free_tokens, open, service })
        };
        let chains = (0..count).map(|_| chain()).collect::<Result<_, _>>()?;
        Ok(Snapshot { epoch, seq, chains, queued })
    }

    fn asked(&mut self) -> Result<Asked, &'static str> {
        let (kind, chain) = self.pair()?;
        let kind = [Kind::Step, Kind::Victims].into_iter().find(|known| *known as u32 == kind);
        let kind = kind.ok_or("its question is unknown")?;
        let (seq, now, rnd, (want, have)) = (self.word()?, Micros(self.word()?), self.word()?, self.pair()?);
        let (outcome, len) = (self.outcome()?, self.word()?);
        let len =
            usize::try_from(len).ok().filter(|len| len.is_multiple_of(kind.words())).ok_or("its window is odd")?;
        let (window, answer) = self.0.split_at_checked(len).ok_or(SHORT)?;
        let ask = Ask { seq, now, rnd, chain: ChainId(chain), want, have };
        Ok(Asked { kind, ask, window: window.to_vec(), outcome, answer: answer.to_vec() })
    }

    fn start(&mut self) -> Result<Start, &'static str> {
        let slot = self.word()?;
        let slot = SlotKind::ALL.into_iter().find(|known| *known as u64 == slot).ok_or("its slot is unknown")?;
        let generation = self.word()?;
        let digest = [self.word()?, self.word()?, self.word()?, self.word()?];
        let digest = (digest != [0; 4]).then(|| Digest::from_words(digest));
        let (name, config) = (self.text(CONFIG_BYTES_MAX)?, self.text(CONFIG_BYTES_MAX)?);
        let snapshot = self.snapshot()?;
        let previous = match self.word()? {
            0 => None,
            _ => Some(Saved {
                schema: self.text(RESULT_BYTES_MAX)?,
                seq: self.word()?,
                bytes: self.bytes(RESULT_BYTES_MAX)?,
            }),
        };
        Ok(Start { slot, generation, digest, name, config, snapshot, previous, outcome: self.outcome()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: Outcome = Outcome { fault: None, answer: 0, fuel: 77 };

    fn ask() -> Pick {
        Pick {
            id: RequestId(9),
            seq: 8,
            now: Micros(7),
            rnd: u64::MAX,
            tenant: 6,
            class: 5,
            prompt: 4,
            reserve: u32::MAX,
            deadline: Micros(3),
            session: 2,
            hints: 1,
        }
    }

    fn snapshot() -> Snapshot {
        let chain = |id| ChainView {
            id: ChainId(id),
            capacity: 8,
            busy: id,
            free_tokens: u32::MAX,
            open: id == 1,
            service: Micros(id.into()),
        };
        Snapshot { epoch: 3, seq: 4, chains: (0..3).map(chain).collect(), queued: 5 }
    }

    #[test]
    fn every_kind_is_read_as_it_was_written() {
        let mut words = Vec::new();
        let mut writer = Writer(&mut words);
        let faulty = Outcome { fault: Some(FaultClass::Fuel), answer: 0, fuel: 0 };
        let saved = Saved { schema: "s/1".into(), seq: 4, bytes: (0..13).collect() };
        let digest = Some(Digest::of(b"x"));
        writer.start(1, SlotKind::Batch, 2, digest, "name", "{\"a\": 1}", &snapshot(), Some(&saved), DONE);
        writer.start(0, SlotKind::Route, 2, None, "", "", &snapshot(), None, faulty);
        writer.apply(0, 9, &[1, 2, 3, 4], DONE);
        writer.pick(0, &ask(), None, DONE);
        writer.pick(1, &ask(), Some(&[]), faulty);
        writer.pick(1, &ask(), Some(&[5]), DONE);
        let pull = Pull { seq: 1, now: Micros(2), rnd: 3, chain: ChainId(4) };
        writer.pull(0, &pull, &[1, 2, 3, 4], DONE);
        let step = Ask { seq: 1, now: Micros(2), rnd: 3, chain: ChainId(4), want: 5, have: 6 };
        let window = [1, 2, 3, 4, 5, 6, 7, 8];
        writer.ask(0, Kind::Step, &step, &window, DONE, &[]);
        writer.ask(1, Kind::Victims, &step, &window, faulty, &[1, 0]);
        writer.refused(0, FaultClass::Invalid);
        writer.replaced(1, 1 << 60);
        writer.lost(12);

        let start = |slot, digest, name: &str, config: &str, previous, outcome| {
            let (name, config) = (name.to_owned(), config.to_owned());
            let generation = 2;
            Body::Start(Box::new(Start {
                slot,
                generation,
                digest,
                name,
                config,
                snapshot: snapshot(),
                previous,
                outcome,
            }))
        };
        let asked = |kind, outcome, answer| {
            Body::Ask(Box::new(Asked { kind, ask: step, window: window.to_vec(), outcome, answer }))
        };
        let expected = [
            (1, start(SlotKind::Batch, digest, "name", "{\"a\": 1}", Some(saved), DONE)),
            (0, start(SlotKind::Route, None, "", "", None, faulty)),
            (0, Body::Apply(9, vec![1, 2, 3, 4], DONE)),
            (0, Body::Pick(ask(), None, DONE)),
            (1, Body::Pick(ask(), Some(vec![]), faulty)),
            (1, Body::Pick(ask(), Some(vec![5]), DONE)),
            (0, Body::Pull(pull, vec![1, 2, 3, 4], DONE)),
            (0, asked(Kind::Step, DONE, vec![])),
            (1, asked(Kind::Victims, faulty, vec![1, 0])),
            (0, Body::Refused(FaultClass::Invalid)),
            (1, Body::Replaced(1 << 60)),
            (0, Body::Lost(12)),
        ];
        let mut rest = words.as_slice();
        for (arm, body) in expected {
            let (frame, after) = rest.split_at(frame_words(rest[0]));
            assert_eq!(Frame::decode(frame), Ok(Frame { arm, body }));
            rest = after;
        }
        assert!(rest.is_empty());
    }

    #[test]
    fn damaged_frames_are_errors() {
        let mut words = Vec::new();
        Writer(&mut words).start(0, SlotKind::Route, 2, None, "name", "{}", &snapshot(), None, DONE);
        for len in 0..words.len() {
            assert!(Frame::decode(&words[..len]).is_err());
        }
        for at in 0..words.len() {
            for bit in 0..64 {
                let mut damaged = words.clone();
                damaged[at] ^= 1 << bit;
                // Any answer will do, as long as there is one.
                let _ = Frame::decode(&damaged);
            }
        }
    }
}

//! Reading: trusts nothing.

use pointsman_engine::decision::FaultClass;
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Pick, Pull};
use pointsman_engine::snapshot::{ChainView, Snapshot};
use pointsman_engine::window::{Ask, Kind};

use super::{APPLY, ASK, Asked, Body, Frame, LOST, Outcome, PICK, PULL, REFUSED, REPLACED, START, Start, frame_words};
use crate::artifact::Digest;
use crate::kind::SlotKind;
use crate::limits::{CONFIG_BYTES_MAX, RESULT_BYTES_MAX};
use crate::versions::v0_1::Saved;

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

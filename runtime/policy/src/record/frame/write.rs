//! Writing: appends words to a vector, on the engine's thread.

use pointsman_engine::decision::FaultClass;
use pointsman_engine::port::{Pick, Pull};
use pointsman_engine::snapshot::{ChainView, Snapshot};
use pointsman_engine::window::{Ask, Kind, pair};

use super::{APPLY, ASK, LOST, Outcome, PICK, PULL, REFUSED, REPLACED, START};
use crate::artifact::Digest;
use crate::kind::SlotKind;
use crate::versions::v0_1::Saved;

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

//! The chunks that are kept, their chain of hashes, and the file form of the log.
//!
//! Each frame is followed by two words: the first half of SHA-256 over the hash of the frame before it and the frame's own words,
//! little-endian. The file is a header and then all frames with their hashes:
//!
//! ```text
//! 8 bytes   "PTSMLOG2"
//! 8 bytes   number of the first frame, little-endian
//! 16 bytes  hash before the first frame
//! ...       frames and hashes, in words, little-endian
//! ```

use std::collections::VecDeque;
use std::ops::Range;

use sha2::{Digest as _, Sha256};

use super::frame::{Body, Frame, frame_words, split, starts_chunk};
use crate::limits::RECORD_CHUNK_WORDS;

const MAGIC: &[u8; 8] = b"PTSMLOG2";
const HEADER_BYTES: usize = 32;
/// Words of the hash behind each frame.
const HASH_WORDS: usize = 2;

type Hash = [u8; 16];

struct Chunk {
    first_frame: u64,
    before: Hash,
    /// Frames, each followed by its hash.
    words: Vec<u64>,
}

/// The newest part of the log.
pub(super) struct Ring {
    chunks: VecDeque<Chunk>,
    bytes_max: usize,
    bytes: usize,
    last: Hash,
    frames_total: u64,
    lost_total: u64,
}

impl Ring {
    pub fn new(bytes_max: usize) -> Self {
        let last = Hash::default();
        Self { chunks: VecDeque::new(), bytes_max, bytes: 0, last, frames_total: 0, lost_total: 0 }
    }

    pub fn frames_total(&self) -> u64 {
        self.frames_total
    }

    pub fn lost_total(&self) -> u64 {
        self.lost_total
    }

    /// Appends whole frames.
    pub fn append(&mut self, batch: &[u64]) {
        split(batch).for_each(|frame| self.append_frame(frame));
    }

    fn append_frame(&mut self, frame: &[u64]) {
        if let Ok(Frame { body: Body::Lost(frames), .. }) = Frame::decode(frame) {
            self.lost_total += frames;
        }
        let full = self.chunks.back().is_none_or(|chunk| chunk.words.len() >= RECORD_CHUNK_WORDS / 2);
        if full && starts_chunk(frame[0]) {
            self.chunks.push_back(Chunk { first_frame: self.frames_total, before: self.last, words: Vec::new() });
            while self.bytes > self.bytes_max && self.chunks.len() > 2 {
                self.bytes -= self.chunks.pop_front().map_or(0, |chunk| 8 * chunk.words.len());
            }
        }
        // Before the first start there is nothing that could be replayed.
        let Some(chunk) = self.chunks.back_mut() else { return };
        self.last = link(self.last, frame);
        let (hash, _) = self.last.as_chunks::<8>();
        chunk.words.extend(frame);
        chunk.words.extend(hash.iter().map(|half| u64::from_le_bytes(*half)));
        self.frames_total += 1;
        self.bytes += 8 * (frame.len() + HASH_WORDS);
    }

    pub fn export(&self) -> LogFile {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.bytes);
        bytes.extend(MAGIC);
        let first = self.chunks.front();
        bytes.extend(first.map_or(self.frames_total, |chunk| chunk.first_frame).to_le_bytes());
        bytes.extend(first.map_or(self.last, |chunk| chunk.before));
        for chunk in &self.chunks {
            bytes.extend(chunk.words.iter().flat_map(|word| word.to_le_bytes()));
        }
        LogFile(bytes)
    }

    /// The frames of the last two chunks.
    pub fn newest(&self) -> Vec<Frame> {
        let from = self.chunks.len().saturating_sub(2);
        let frames = self.chunks.range(from..).flat_map(|chunk| ranges(&chunk.words).map(|at| &chunk.words[at]));
        frames.filter_map(|frame| Frame::decode(frame).ok()).collect()
    }

    /// The frames, without hashes, of the chunk that decides about `request`, up to and including what settles the decision.
    pub fn find(&self, request: u64) -> Option<Vec<u64>> {
        self.chunks.iter().rev().find_map(|chunk| {
            let frames: Vec<Range<usize>> = ranges(&chunk.words).collect();
            let about = |range: &Range<usize>| {
                let frame = &chunk.words[range.clone()];
                is_pick_about(frame, request)
            };
            let mut last = frames.iter().rposition(about)?;
            let settles = |range: &Range<usize>| {
                matches!(
                    Frame::decode(&chunk.words[range.clone()]),
                    Ok(Frame { body: Body::Refused(_) | Body::Replaced(_), .. })
                )
            };
            while frames.get(last + 1).is_some_and(settles) {
                last += 1;
            }
            Some(frames[..=last].iter().flat_map(|range| chunk.words[range.clone()].iter().copied()).collect())
        })
    }
}

/// A cheap look before decoding: kind and request.
fn is_pick_about(frame: &[u64], request: u64) -> bool {
    frame.get(1) == Some(&request) && matches!(Frame::decode(frame), Ok(Frame { body: Body::Pick(..), .. }))
}

/// Where the frames are in words that hold frames and hashes.
fn ranges(words: &[u64]) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let from = at;
        let to = from + frame_words(*words.get(from)?);
        at = to + HASH_WORDS;
        Some(from..to)
    })
}

fn link(before: Hash, frame: &[u64]) -> Hash {
    let mut sha = Sha256::new();
    sha.update(before);
    let mut bytes = [0; 256];
    for words in frame.chunks(bytes.len() / 8) {
        for (place, word) in bytes.chunks_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        sha.update(&bytes[..8 * words.len()]);
    }
    let digest = sha.finalize();
    std::array::from_fn(|at| digest[at])
}

/// A log as a file: what [`super::DecisionLog::export`] gives and `policy replay` reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile(pub Vec<u8>);

/// The first place at which a log is not what was recorded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("frame {frame} is damaged: {why}")]
pub struct Damage {
    /// The number of the frame.
    pub frame: u64,
    /// What is wrong.
    pub why: String,
}

impl LogFile {
    /// All frames with their numbers, each checked against the chain before it is given out. Ends after the first damage.
    pub fn frames(&self) -> impl Iterator<Item = Result<(u64, Frame), Damage>> {
        let header = self.0.split_at_checked(HEADER_BYTES).filter(|(header, _)| header.starts_with(MAGIC));
        let mut bad_header = header.is_none();
        let (header, mut rest) = header.unwrap_or((&[0; HEADER_BYTES], &[]));
        let mut number = u64::from_le_bytes(std::array::from_fn(|at| header[8 + at]));
        let mut last: Hash = std::array::from_fn(|at| header[16 + at]);
        std::iter::from_fn(move || {
            if std::mem::take(&mut bad_header) {
                let why = "the file is no decision log of this version, which begins with PTSMLOG2";
                return Some(Err(Damage { frame: 0, why: why.into() }));
            }
            if rest.is_empty() {
                return None;
            }
            let outcome = next(&mut rest, &mut last).map(|frame| (number, frame));
            let outcome = outcome.map_err(|why| {
                rest = &[];
                Damage { frame: number, why: why.to_owned() }
            });
            number += 1;
            Some(outcome)
        })
    }
}

/// Takes one frame and its hash off the front.
fn next(rest: &mut &[u8], last: &mut Hash) -> Result<Frame, &'static str> {
    const SHORT: &str = "the file ends in the middle of it";
    let head = rest.first_chunk::<8>().ok_or(SHORT)?;
    let len = 8 * frame_words(u64::from_le_bytes(*head));
    let (frame, after) = rest.split_at_checked(len).ok_or(SHORT)?;
    let (hash, after) = after.split_first_chunk::<16>().ok_or(SHORT)?;
    let words: Vec<u64> = frame.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    *last = link(*last, &words);
    if last != hash {
        return Err("its hash does not follow from what stands here");
    }
    *rest = after;
    Frame::decode(&words)
}

//! A sequence on blocks that another one has written: what the engine's prefix cache relies on.

use std::sync::Arc;

use pointsman_engine::ids::BlockId;
use pointsman_engine::port::{Logits, SeqSlice};
use pointsman_tensor::backend::Backend;
use pointsman_tensor::cpu::Cpu;
use pointsman_tensor::weights::TensorType;

use crate::harness::{BLOCK_TOKENS, Harness, load, slice, table, tokens};
use crate::naive::Naive;
use crate::tiny::Tiny;

/// Tokens that both sequences begin with: two whole blocks.
const SHARED: usize = 2 * BLOCK_TOKENS;
/// Tokens of the second sequence, a few of which are decoded one by one.
const LENGTH: usize = SHARED + 19;
const PROMPT: usize = SHARED + 13;

/// The second sequence's tokens.
fn second() -> Vec<u32> {
    [&tokens(0, SHARED)[..], &tokens(1, LENGTH - SHARED)].concat()
}

/// A slice of the second sequence, its first blocks being those of the first.
fn sharing(start: usize, tokens: &[u32], logits: Logits) -> SeqSlice {
    let (first, own) = (table(0), table(1));
    let blocks: Vec<BlockId> = first[..2].iter().chain(&own[2..]).copied().collect();
    SeqSlice { blocks: blocks.into(), ..slice(1, start, tokens, logits) }
}

/// Logits of the second sequence from the end of what is shared, computed alone.
fn alone<B: Backend>(mut harness: Harness<B>) -> Vec<f32> {
    let tokens = second();
    harness.run(vec![slice(1, 0, &tokens[..SHARED], Logits::None)]).unwrap();
    let mut all = harness.run(vec![slice(1, SHARED, &tokens[SHARED..PROMPT], Logits::All)]).unwrap();
    for at in PROMPT..LENGTH {
        all.extend(harness.run(vec![slice(1, at, &tokens[at..=at], Logits::Last)]).unwrap());
    }
    all
}

/// The same on the first sequence's blocks. That one ran in pieces and in company, and goes on decoding beside it, until
/// it ends and another sequence takes the blocks that were its own.
fn shared<B: Backend>(mut harness: Harness<B>) -> Vec<f32> {
    let (first, other, tokens) = (tokens(0, SHARED + 8), tokens(2, SHARED), second());
    let company = slice(2, 0, &other, Logits::None);
    harness.run(vec![slice(0, 0, &first[..7], Logits::None), company]).unwrap();
    harness.run(vec![slice(0, 7, &first[7..SHARED + 5], Logits::None)]).unwrap();
    let decode = |at: usize| slice(0, at, &first[at..=at], Logits::None);
    let prompt = sharing(SHARED, &tokens[SHARED..PROMPT], Logits::All);
    let mut all = harness.run(vec![decode(SHARED + 5), prompt]).unwrap();
    for at in PROMPT..LENGTH {
        let mut slices = vec![sharing(at, &tokens[at..=at], Logits::Last)];
        match at - PROMPT {
            since @ 0..2 => slices.push(decode(SHARED + 6 + since)),
            2 => {
                let after: Vec<BlockId> = table(3)[..2].iter().chain(&table(0)[2..]).copied().collect();
                slices.push(SeqSlice { blocks: after.into(), ..slice(3, 0, &other, Logits::None) });
            }
            _ => {}
        }
        all.extend(harness.run(slices).unwrap());
    }
    all
}

fn blocks_of_another_serve_as_well<B: Backend>(kind: TensorType, backend: B, what: &str) {
    let backend = Arc::new(backend);
    let model = load(&Tiny::new(kind), &*backend);
    for stages in 1..=3 {
        let (alone, shared) =
            (alone(Harness::new(&model, &backend, stages)), shared(Harness::new(&model, &backend, stages)));
        let bits = |logits: &[f32]| logits.iter().map(|logit| logit.to_bits()).collect::<Vec<_>>();
        assert!(bits(&alone) == bits(&shared), "{what}, {kind}, {stages} stages");
        assert!(alone.iter().all(|logit| logit.is_finite()), "{what}, {kind}, {stages} stages");
    }
}

#[test]
fn logits_on_shared_blocks_are_those_of_the_sequence_alone_to_the_bit() {
    blocks_of_another_serve_as_well(TensorType::F32, Naive::default(), "naive device");
    for kind in [TensorType::F32, TensorType::Q4_1, TensorType::Q8_0] {
        blocks_of_another_serve_as_well(kind, Cpu::new(2, None).unwrap(), "cpu");
    }
}

//! The graph itself: right, and the same however it is cut.

use std::sync::Arc;

use pointsman_engine::port::Logits;
use pointsman_tensor::backend::Backend;
use pointsman_tensor::cpu::Cpu;
use pointsman_tensor::weights::TensorType;

use crate::harness::{Harness, load, rows, slice, tokens};
use crate::naive::Naive;
use crate::reference;
use crate::tiny::{Tiny, VOCAB};

fn cpu() -> Cpu {
    Cpu::new(2, None).unwrap()
}

/// Largest difference of any logit from the reference, over the largest logit.
fn error_of<B: Backend>(tiny: &Tiny, backend: B) -> f64 {
    let backend = Arc::new(backend);
    let tokens = tokens(0, 23);
    let expected = reference::logits(tiny, &tokens);
    let mut harness = Harness::new(&load(tiny, &*backend), &backend, 2);
    let logits = harness.run(vec![slice(0, 0, &tokens, Logits::All)]).unwrap();
    let scale = expected.iter().flatten().fold(0.0, |max, x| f64::max(max, x.abs()));
    assert!(scale > 0.5, "the tiny model says something: {scale}");
    let differences = rows(&logits).concat().into_iter().zip(expected.into_iter().flatten());
    differences.map(|(found, expected)| (f64::from(found) - expected).abs() / scale).fold(0.0, f64::max)
}

#[test]
fn equals_the_reference() {
    let tied = Tiny::new(TensorType::F32);
    let mut untied = Tiny::new(TensorType::F32);
    untied.add("output.weight", TensorType::F32, VOCAB, tied.tensor("token_embd.weight").cols);
    for tiny in [tied, untied] {
        let error = error_of(&tiny, Naive::default());
        assert!(error < 1e-6, "naive device: {error}");
        // Keys and values are kept in f16.
        let error = error_of(&tiny, cpu());
        assert!(error < 1e-3, "cpu: {error}");
    }
}

/// Two prompts, one of them in chunks that do not fit blocks, then decoding of both in one batch. All logits in order.
fn story<B: Backend>(tiny: &Tiny, backend: B, stages: usize) -> Vec<f32> {
    let backend = Arc::new(backend);
    let mut harness = Harness::new(&load(tiny, &*backend), &backend, stages);
    let (a, b) = (tokens(0, 30), tokens(1, 30));
    let mut all = harness.run(vec![slice(0, 0, &a[..7], Logits::None), slice(1, 0, &b[..11], Logits::Last)]).unwrap();
    all.extend(harness.run(vec![slice(1, 11, &b[11..12], Logits::Last), slice(0, 7, &a[7..20], Logits::All)]).unwrap());
    for at in 20..30 {
        let steps = vec![slice(0, at, &a[at..=at], Logits::Last), slice(1, at - 8, &b[at - 8..at - 7], Logits::Last)];
        all.extend(harness.run(steps).unwrap());
    }
    all
}

fn assert_same_bits(left: &[f32], right: &[f32], what: &str) {
    assert_eq!(left.len(), right.len(), "{what}");
    let differs = left.iter().zip(right).position(|(left, right)| left.to_bits() != right.to_bits());
    assert_eq!(differs, None, "{what}");
    assert!(left.iter().all(|logit| logit.is_finite()), "{what}");
}

#[test]
fn any_number_of_stages_gives_the_same_bits() {
    for kind in [TensorType::F32, TensorType::Q4_1] {
        let tiny = Tiny::new(kind);
        let one = story(&tiny, cpu(), 1);
        for stages in 2..=4 {
            assert_same_bits(&one, &story(&tiny, cpu(), stages), &format!("{kind}, {stages} stages"));
        }
    }
}

/// Checks with one device that neither the rest of the batch nor the chunks of a prompt change a sequence's logits.
fn batches_and_chunks_do_not_matter<B: Backend>(tiny: &Tiny, backend: B) {
    let backend = Arc::new(backend);
    let model = load(tiny, &*backend);
    let sequences: Vec<Vec<u32>> = (0..4).map(|n| tokens(n, 12 + 5 * n)).collect();
    let whole = |n: usize, logits| slice(n, 0, &sequences[n], logits);

    let mut harness = Harness::new(&model, &backend, 2);
    let alone: Vec<_> = (0..4).map(|n| harness.run(vec![whole(n, Logits::All)]).unwrap()).collect();
    let mut harness = Harness::new(&model, &backend, 2);
    let together = harness.run((0..4).map(|n| whole(n, Logits::All)).collect()).unwrap();
    assert_same_bits(&alone.concat(), &together, "in one batch");

    let mut harness = Harness::new(&model, &backend, 2);
    let mut chunked = vec![Vec::new(); 4];
    for start in (0..27).step_by(3) {
        let chunk = |n: usize| slice(n, start, &sequences[n][start..(start + 3).min(sequences[n].len())], Logits::All);
        let running: Vec<usize> = (0..4).filter(|&n| start < sequences[n].len()).collect();
        let logits = harness.run(running.iter().map(|&n| chunk(n)).collect()).unwrap();
        let mut rows = rows(&logits).into_iter();
        for n in running {
            chunked[n].extend(rows.by_ref().take(chunk(n).tokens.len()).flatten().copied());
        }
    }
    assert_same_bits(&alone.concat(), &chunked.concat(), "in chunks");
}

#[test]
fn neither_the_batch_nor_the_chunks_change_a_sequence() {
    batches_and_chunks_do_not_matter(&Tiny::new(TensorType::F32), Naive::default());
    batches_and_chunks_do_not_matter(&Tiny::new(TensorType::F32), cpu());
    batches_and_chunks_do_not_matter(&Tiny::new(TensorType::Q8_0), cpu());
}

#[test]
fn logits_come_as_asked_in_the_order_of_the_slices() {
    let tiny = Tiny::new(TensorType::F32);
    let backend = Arc::new(Naive::default());
    let model = load(&tiny, &*backend);
    let prompts: Vec<Vec<u32>> = (0..3).map(|n| tokens(n, 5)).collect();
    let run = |asked: [Logits; 3]| {
        let slices = (0..3).map(|n| slice(n, 0, &prompts[n], asked[n])).collect();
        Harness::new(&model, &backend, 3).run(slices).unwrap()
    };
    let all = run([Logits::All; 3]);
    let all = rows(&all);
    let some = run([Logits::Last, Logits::None, Logits::All]);
    assert_eq!(rows(&some), [all[4], all[10], all[11], all[12], all[13], all[14]]);
    assert!(run([Logits::None; 3]).is_empty());
}

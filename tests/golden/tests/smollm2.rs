//! SmolLM2 against llama.cpp's tokens and log-probs for the same weights, in `golden.json`; `make.py` beside it writes that
//! file.

#![expect(clippy::unwrap_used, reason = "a surprise is a failed test")]

use pointsman_golden::{Runner, best, default_model, log_prob};
use pointsman_tensor::weights::Gguf;
use serde::Deserialize;

/// The oracle's two best log-probs may lie closer than this where we choose the other one: both keep keys and values in 16
/// bits, and sum in other orders.
const GAP_MAX: f32 = 0.05;

/// Tokens that end an answer; the oracle was told to go on.
const END_TOKENS: [u32; 2] = [0, 2];

#[derive(Deserialize)]
struct Golden {
    prompt: String,
    prompt_tokens: Vec<u32>,
    tokens: Vec<u32>,
    /// For each step the two best tokens with their log-probs.
    best: Vec<[(u32, f32); 2]>,
}

fn goldens() -> Vec<Golden> {
    serde_json::from_str(include_str!("../golden.json")).unwrap()
}

#[test]
fn greedy_tokens_are_the_oracles_or_differ_at_a_toss_up() {
    let gguf = Gguf::open(&default_model()).unwrap();
    for golden in goldens() {
        let mut runner = Runner::new(&gguf, 1);
        let mut logits = runner.step(0, &golden.prompt_tokens);
        let positions = golden.prompt_tokens.len() as u32..;
        for (at, (step, expected)) in positions.zip(golden.tokens.iter().enumerate()) {
            let token = best(&logits, &END_TOKENS);
            if token != *expected {
                let gap = golden.best[step][0].1 - golden.best[step][1].1;
                assert!(
                    gap < GAP_MAX,
                    "{:?}, step {step}: {token} instead of {expected}, a gap of {gap}",
                    golden.prompt
                );
                println!("{:?} differs at step {step}, gap {gap}", golden.prompt);
                break;
            }
            logits = runner.step(at, &[token]);
        }
    }
}

#[test]
fn log_probs_are_close_to_the_oracles() {
    let gguf = Gguf::open(&default_model()).unwrap();
    for golden in goldens() {
        let mut runner = Runner::new(&gguf, 1);
        let mut logits = runner.step(0, &golden.prompt_tokens);
        let positions = golden.prompt_tokens.len() as u32..;
        let mut worst: f32 = 0.0;
        for (at, (expected, best)) in positions.zip(golden.tokens.iter().zip(&golden.best)) {
            // The oracle's own path is forced, so that one toss-up does not end the comparison.
            worst = worst.max((log_prob(&logits, best[0].0) - best[0].1).abs());
            logits = runner.step(at, &[*expected]);
        }
        println!("{:?}: largest difference {worst:.4}", golden.prompt);
        assert!(worst < 0.05, "{:?}: a log-prob differs by {worst}", golden.prompt);
    }
}

#[test]
fn paris_has_the_published_log_prob() {
    let gguf = Gguf::open(&default_model()).unwrap();
    let logits = Runner::new(&gguf, 1).step(0, &[504, 3575, 282, 4649, 314]);
    let paris = log_prob(&logits, 7042);
    assert!((paris + 0.26).abs() < 0.02, "log-prob of Paris is {paris}");
}

#[test]
fn stages_change_no_bit() {
    let gguf = Gguf::open(&default_model()).unwrap();
    let prompt = &goldens()[1].prompt_tokens;
    let one = Runner::new(&gguf, 1).step(0, prompt);
    for stages in [2, 3, 30] {
        let more = Runner::new(&gguf, stages).step(0, prompt);
        assert!(one.iter().zip(&more).all(|(a, b)| a.to_bits() == b.to_bits()), "{stages} stages differ from one");
    }
}

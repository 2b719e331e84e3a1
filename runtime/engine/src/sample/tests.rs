//! Sampling against a plain implementation that sorts everything, and its statistics with fixed seeds.

use super::*;
use crate::request::{ModelLimits, RawRequest, Sampling};

fn request(vocab: usize, raw: RawRequest) -> Request {
    let limits = ModelLimits { context_tokens: 1000, vocab: vocab as u32 };
    Request::check(
        RawRequest { prompt: if raw.prompt.is_empty() { vec![0] } else { raw.prompt.clone() }, ..raw },
        limits,
    )
    .unwrap()
}

fn sampled(vocab: usize, sampling: Sampling) -> Request {
    request(vocab, RawRequest { sampling, ..RawRequest::default() })
}

/// A row with many ties, now and then with values that are not finite.
fn row(seed: u64, vocab: usize, spoilt: bool) -> Vec<f32> {
    let coarse = if seed.is_multiple_of(3) { 2.0 } else { 1000.0 };
    (0..vocab as u64)
        .map(|i| match (spoilt, random::bits(seed, 2 * i) % 8) {
            (true, 0) => f32::NAN,
            (true, 1) => f32::INFINITY,
            (true, 2) => f32::NEG_INFINITY,
            _ => ((random::unit(seed, 2 * i + 1) * 12.0 * coarse).floor() / coarse - 6.0) as f32,
        })
        .collect()
}

/// Everything sorted, everything in 64 bits.
fn reference(row: &[f32], s: &Sampling, unit: f64) -> TokenId {
    let mut kept: Vec<(TokenId, f64)> =
        (0..).zip(row).filter(|(_, v)| v.is_finite()).map(|(id, &v)| (id, f64::from(v))).collect();
    kept.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if s.is_greedy() {
        return kept[0].0;
    }
    let peak = kept[0].1;
    kept.iter_mut().for_each(|(_, value)| *value = ((*value - peak) / f64::from(s.temperature)).exp());
    if s.top_k > 0 {
        kept.truncate(s.top_k as usize);
    }
    let total: f64 = kept.iter().map(|kept| kept.1).sum();
    let mut sum = 0.0;
    let reached = kept.iter().position(|kept| {
        sum += kept.1;
        sum >= f64::from(s.top_p) * total
    });
    if s.top_p < 1.0 {
        kept.truncate(reached.unwrap() + 1);
    }
    kept.retain(|kept| kept.1 >= f64::from(s.min_p));
    kept.sort_by_key(|kept| kept.0);
    let mut target = unit * kept.iter().map(|kept| kept.1).sum::<f64>();
    kept.iter()
        .find(|kept| {
            target -= kept.1;
            target < 0.0
        })
        .unwrap()
        .0
}

#[test]
fn draws_what_the_plain_implementation_draws() {
    let mut scratch = Scratch::default();
    for case in 0..1500_u64 {
        let pick = |n: u64, values: &[f32]| values[random::bits(case, n) as usize % values.len()];
        let vocab = [1, 7, 64, 1500, 5000][random::bits(case, 0) as usize % 5];
        let sampling = Sampling {
            temperature: pick(1, &[0.0, 0.1, 0.7, 1.0, 2.0]),
            top_p: pick(2, &[1.0, 1.0, 0.031_7, 0.513_7, 0.951_3, 0.999_3]),
            top_k: pick(3, &[0.0, 0.0, 1.0, 3.0, 40.0, 4000.0]) as u32,
            min_p: pick(4, &[0.0, 0.0, 0.051_3, 0.331_7, 1.0]),
            seed: case,
            ..Sampling::default()
        };
        let row = row(case, vocab, random::bits(case, 5).is_multiple_of(4));
        if !row.iter().any(|value| value.is_finite()) {
            continue;
        }
        let request = sampled(vocab, sampling);
        let mut sampler = Sampler::new(&request);
        for index in 0..3 {
            let drawn = sampler.next(&request, &row, &mut scratch).unwrap();
            let expected = reference(&row, &request.raw().sampling, random::unit(case, index));
            assert_eq!(drawn.id, expected, "case {case}, {:?}", request.raw().sampling);
        }
    }
}

#[test]
fn frequencies_follow_the_softmax() {
    let row = [0.0, 1.0, 2.0, f32::NEG_INFINITY, -1.0, 1.5, f32::NAN, 0.5];
    let temperature = 0.8;
    let mut scratch = Scratch::default();
    let draws = 20_000;
    let mut counts = [0_u32; 8];
    for seed in 0..draws {
        let request = sampled(row.len(), Sampling { temperature, seed, ..Sampling::default() });
        counts[Sampler::new(&request).next(&request, &row, &mut scratch).unwrap().id as usize] += 1;
    }
    let weights = row.map(|v| if v.is_finite() { f64::from(v / temperature).exp() } else { 0.0 });
    let total: f64 = weights.iter().sum();
    let mut chi = 0.0;
    for (&count, weight) in counts.iter().zip(weights) {
        let expected = weight / total * draws as f64;
        if expected == 0.0 {
            assert_eq!(count, 0);
        } else {
            chi += (f64::from(count) - expected).powi(2) / expected;
        }
    }
    // 5 degrees of freedom: 20.5 is exceeded once in a thousand.
    assert!(chi < 20.5, "{chi} {counts:?}");
}

#[test]
fn greedy_takes_the_best_finite_value_and_the_lowest_id_on_ties() {
    let greedy = |row: &[f32]| {
        let request = sampled(row.len(), Sampling { temperature: 0.0, ..Sampling::default() });
        Sampler::new(&request).next(&request, row, &mut Scratch::default()).map(|drawn| drawn.id)
    };
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    assert_eq!(greedy(&[1.0, 3.0, 3.0, 2.0]), Ok(1));
    assert_eq!(greedy(&[nan, -5.0, nan, -5.0]), Ok(1));
    assert_eq!(greedy(&[inf, -5.0, nan, -4.0]), Ok(3));
    assert_eq!(greedy(&[nan, inf, -inf]), Err(NoFiniteLogit));
    assert_eq!(greedy(&[f32::MIN, f32::MIN]), Ok(0));
    // Ties across the blocks of the search.
    let mut wide = vec![0.0; 5000];
    (wide[1100], wide[4000]) = (1.0, 1.0);
    assert_eq!(greedy(&wide), Ok(1100));
}

#[test]
fn adjusts_in_the_documented_order() {
    // Token 0 is in the prompt; 1 is generated twice; 2 is biased; 3 stops.
    let sampling = Sampling {
        temperature: 0.0,
        repetition_penalty: 2.0,
        presence_penalty: 0.5,
        frequency_penalty: 0.25,
        logit_bias: vec![(2, 1.0), (1, -0.125), (2, 1.0)],
        ..Sampling::default()
    };
    let raw =
        RawRequest { prompt: vec![0], stop_tokens: vec![3], min_new_tokens: 3, sampling, ..RawRequest::default() };
    let request = request(5, raw);
    let mut tally = Tally::new(&request);
    let mut out = Vec::new();
    tally.count(1);
    tally.count(1);
    assert!(tally.adjust(request.raw(), 2, &[-4.0, 3.0, 0.0, 9.0, 1.0], &mut out));
    assert_eq!(out, [-8.0, 3.0 / 2.0 - 0.5 - 0.5 - 0.125, 2.0, f32::NEG_INFINITY, 1.0]);
    // With three tokens drawn the stop token may come.
    assert!(tally.adjust(request.raw(), 3, &[0.0, 0.0, 0.0, 9.0, 0.0], &mut out));
    assert_eq!(out[3], 9.0);
}

#[test]
fn masking_every_token_is_an_error() {
    let raw = RawRequest { stop_tokens: vec![0, 1], min_new_tokens: 1, ..RawRequest::default() };
    let request = request(2, raw);
    let drawn = Sampler::new(&request).next(&request, &[1.0, 2.0], &mut Scratch::default());
    assert_eq!(drawn, Err(NoFiniteLogit));
}

#[test]
fn logprobs_are_those_of_the_raw_row() {
    let row = [1.0, 2.0, f32::NAN, 2.0, -1.0, f32::NEG_INFINITY];
    let total = [1.0_f64, 2.0, 2.0, -1.0].map(f64::exp).iter().sum::<f64>().ln();
    let of = |value: f64| (value - total) as f32;
    let close = |a: f32, b: f32| (a - b).abs() < 1e-6;
    let sampling = Sampling { temperature: 0.0, logit_bias: vec![(4, 50.0)], ..Sampling::default() };
    let request = request(6, RawRequest { logprobs: Some(3), sampling, ..RawRequest::default() });
    let drawn = Sampler::new(&request).next(&request, &row, &mut Scratch::default()).unwrap();
    let logprob = drawn.logprob.unwrap();
    assert_eq!(drawn.id, 4);
    assert!(close(logprob.chosen, of(-1.0)), "{logprob:?}");
    assert_eq!(logprob.top.iter().map(|top| top.0).collect::<Vec<_>>(), [1, 3, 0]);
    assert!(logprob.top.iter().zip([2.0, 2.0, 1.0]).all(|(top, value)| close(top.1, of(value))));
    // More than there are finite values; tokens without one.
    let mut scratch = Scratch::default();
    assert_eq!(super::logprob(&row, 0, 20, &mut scratch).unwrap().top.len(), 4);
    assert_eq!(super::logprob(&row, 2, 0, &mut scratch).unwrap().chosen, f32::NEG_INFINITY);
    assert_eq!(super::logprob(&row, 5, 0, &mut scratch).unwrap().chosen, f32::NEG_INFINITY);
    assert_eq!(super::logprob(&[f32::NAN; 4], 0, 0, &mut scratch), Err(NoFiniteLogit));
}

#[test]
fn ranks_like_a_full_sort() {
    for case in 0..100 {
        let vocab = [3, 65, 1000, 4000][case as usize % 4];
        let row = row(case, vocab, case % 5 == 0);
        let mut expected: Vec<(TokenId, f32)> = (0..).zip(row.iter().copied()).filter(|(_, v)| v.is_finite()).collect();
        expected.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let (mut buffer, mut ranked) = (Vec::new(), Vec::new());
        let Ok((row, _)) = rank::finite(&row, &mut buffer) else { continue };
        for count in [0, 1, 2, 20, 64, 500, 5000] {
            rank::best(row, count, &mut ranked);
            ranked.sort_unstable_by_key(Ranked::key);
            let ids: Vec<_> = ranked.iter().map(|ranked| (ranked.id, ranked.value)).collect();
            assert_eq!(ids, expected[..count.min(expected.len())], "case {case}, {count} of {vocab}");
        }
    }
}

//! The Llama graph as a textbook has it: one whole sequence at a time, in f64, without device, cache or batch.

use crate::tiny::{DIM, HEADS, KV_HEADS, LAYERS, NORM_EPS, ROPE_BASE, Tiny};

type Vector = Vec<f64>;

/// The logits after each token of the sequence.
pub fn logits(model: &Tiny, tokens: &[u32]) -> Vec<Vector> {
    let embedding = matrix(model, "token_embd.weight");
    let mut xs: Vec<Vector> = tokens.iter().map(|&token| embedding[token as usize].clone()).collect();
    for layer in 0..LAYERS {
        let weight = |tensor: &str| matrix(model, &format!("blk.{layer}.{tensor}.weight"));
        let project = |name: &str, xs: &[Vector]| {
            let weight = weight(name);
            xs.iter().map(|x| times(&weight, x)).collect::<Vec<_>>()
        };
        let normed = norms(&xs, &weight("attn_norm")[0]);
        let rotated =
            |rows: Vec<Vector>| rows.into_iter().enumerate().map(|(at, row)| rotate(&row, at)).collect::<Vec<_>>();
        let (queries, keys) = (rotated(project("attn_q", &normed)), rotated(project("attn_k", &normed)));
        let mixed = attend(&queries, &keys, &project("attn_v", &normed));
        add(&mut xs, &project("attn_output", &mixed));

        let normed = norms(&xs, &weight("ffn_norm")[0]);
        let (gates, ups) = (project("ffn_gate", &normed), project("ffn_up", &normed));
        let inner: Vec<Vector> = gates.iter().zip(&ups).map(|(gate, up)| swiglu(gate, up)).collect();
        add(&mut xs, &project("ffn_down", &inner));
    }
    let head = if model.has("output.weight") { matrix(model, "output.weight") } else { embedding };
    norms(&xs, &matrix(model, "output_norm.weight")[0]).iter().map(|x| times(&head, x)).collect()
}

fn matrix(model: &Tiny, name: &str) -> Vec<Vector> {
    let tensor = model.tensor(name);
    tensor.values.chunks(tensor.cols).map(|row| row.iter().copied().map(f64::from).collect()).collect()
}

fn times(matrix: &[Vector], x: &[f64]) -> Vector {
    matrix.iter().map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
}

fn add(xs: &mut [Vector], ys: &[Vector]) {
    for (x, y) in xs.iter_mut().flatten().zip(ys.iter().flatten()) {
        *x += y;
    }
}

fn norms(xs: &[Vector], weight: &[f64]) -> Vec<Vector> {
    let norm = |x: &Vector| {
        let root = (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64 + NORM_EPS).sqrt();
        x.iter().zip(weight).map(|(x, weight)| x / root * weight).collect()
    };
    xs.iter().map(norm).collect()
}

fn rotate(row: &[f64], position: usize) -> Vector {
    let mut out = Vector::new();
    for (pair, values) in row.chunks(2).enumerate() {
        let angle = position as f64 / ROPE_BASE.powf((2 * (pair % (DIM / 2))) as f64 / DIM as f64);
        out.push(values[0] * angle.cos() - values[1] * angle.sin());
        out.push(values[0] * angle.sin() + values[1] * angle.cos());
    }
    out
}

fn attend(queries: &[Vector], keys: &[Vector], values: &[Vector]) -> Vec<Vector> {
    let one = |at: usize| {
        let mut out = vec![0.0; HEADS * DIM];
        for head in 0..HEADS {
            let (own, shared) = (head * DIM, head / (HEADS / KV_HEADS) * DIM);
            let score = |past: usize| (0..DIM).map(|i| queries[at][own + i] * keys[past][shared + i]).sum::<f64>();
            let weights: Vector = (0..=at).map(|past| (score(past) / (DIM as f64).sqrt()).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for (past, weight) in weights.iter().enumerate() {
                for i in 0..DIM {
                    out[own + i] += weight / sum * values[past][shared + i];
                }
            }
        }
        out
    };
    (0..queries.len()).map(one).collect()
}

fn swiglu(gate: &[f64], up: &[f64]) -> Vector {
    gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect()
}

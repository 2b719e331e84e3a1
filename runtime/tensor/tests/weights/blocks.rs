//! Each format against golden values, and its encoder against its decoder.

use pointsman_tensor::weights::{TensorType, TensorView, dequantize_row, quantize_row, unpack_k_scales};

/// Made by `blocks.py`, which describes it.
const GOLDEN: &str = include_str!("blocks.txt");

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Deterministic values in -1..1 that look random.
fn noise(count: usize) -> Vec<f32> {
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn decode(kind: TensorType, row: &[u8]) -> Vec<f32> {
    let mut values = vec![f32::NAN; row.len() / kind.block_bytes() * kind.block_len()];
    dequantize_row(kind, row, &mut values);
    values
}

fn encode(kind: TensorType, values: &[f32]) -> Vec<u8> {
    let mut row = Vec::new();
    quantize_row(kind, values, &mut row);
    row
}

#[test]
fn every_format_decodes_to_the_golden_bits() {
    let mut seen = Vec::new();
    for line in GOLDEN.lines() {
        let [name, block, values] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let kind = TensorType::ALL.into_iter().find(|kind| kind.name() == name).unwrap();
        let got: String = decode(kind, &bytes(block)).iter().map(|x| format!("{:08x}", x.to_bits())).collect();
        assert_eq!(got, values, "{kind}");
        seen.push(kind);
    }
    assert!(TensorType::ALL.iter().all(|kind| seen.contains(kind)), "golden values cover {seen:?} only");
}

#[test]
fn encoding_errs_by_at_most_half_a_step() {
    let values = noise(2048);
    for kind in TensorType::ALL {
        // Values span 2. The K formats round their groups' scales and minima too, so they get a whole step and a bit.
        let step = match kind {
            TensorType::F32 => 0.0,
            TensorType::F16 => 1.0 / 2048.0,
            TensorType::BF16 => 1.0 / 256.0,
            TensorType::Q4_0 => 1.0 / 7.9,
            TensorType::Q4_1 => 2.0 / 14.9,
            TensorType::Q5_0 => 1.0 / 15.9,
            TensorType::Q5_1 => 2.0 / 30.9,
            TensorType::Q8_0 => 1.0 / 126.9,
            TensorType::Q4K => 2.2 * 2.0 / 15.0,
            TensorType::Q5K => 2.2 * 2.0 / 31.0,
            TensorType::Q6K => 2.2 * 1.0 / 32.0,
        };
        // The symmetric formats have no code for the counterpart of their extreme, which costs up to a whole step.
        let steps = if matches!(kind, TensorType::Q4_0 | TensorType::Q5_0) { 1.0 } else { 0.5 };
        let back = decode(kind, &encode(kind, &values));
        let worst = values.iter().zip(&back).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        assert!(worst <= step * steps, "{kind}: worst error {worst}, allowed {}", step * steps);
    }
}

#[test]
fn decoded_blocks_encode_to_the_same_values() {
    for kind in TensorType::ALL {
        // Values that lie on the grid of the format come back as they are, except that the K formats' second level of
        // scales may choose another grid.
        if kind.block_len() == 256 {
            continue;
        }
        let grid = decode(kind, &encode(kind, &noise(256)));
        let again = decode(kind, &encode(kind, &grid));
        let worst = grid.iter().zip(&again).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-3, "{kind}: {worst}");
    }
}

#[test]
fn blocks_of_equal_values_survive() {
    for kind in TensorType::ALL {
        for value in [0.0, 1.0, -1.0] {
            let back = decode(kind, &encode(kind, &[value; 256]));
            assert!(back.iter().all(|x| (x - value).abs() <= 0.01), "{kind}: {value} came back as {:?}", &back[..4]);
        }
    }
}

#[test]
fn values_that_are_not_finite_give_whole_blocks() {
    for kind in TensorType::ALL {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            assert_eq!(encode(kind, &[value; 256]).len(), 256 / kind.block_len() * kind.block_bytes());
        }
    }
}

#[test]
fn k_scales_unpack_all_six_bits() {
    // Groups 4..8 are scattered over three bytes each: one bit at a time shows where each goes.
    let mut scales = [0; 12];
    scales[3] = 0b1000_0001;
    scales[7] = 0b0110_0000;
    scales[11] = 0b1001_0110;
    assert_eq!(unpack_k_scales(&scales)[3], (1, 32));
    assert_eq!(unpack_k_scales(&scales)[7], (0b10_0110, 0b01_1001));
}

#[test]
fn views_give_rows_and_refuse_wrong_lengths() {
    let values = noise(96);
    let data = encode(TensorType::Q8_0, &values);
    let view = TensorView::new("w", TensorType::Q8_0, 3, 32, &data).unwrap();
    assert_eq!(view.row(1), &data[34..68]);
    assert_eq!(view.to_f32(), decode(TensorType::Q8_0, &data));
    for (rows, cols, phrase) in [
        (2, 32, "has 102 bytes, but Q8_0 [2, 32] needs 68"),
        (3, 33, "rows of 33 values, which is not a multiple of the 32 of a Q8_0 block"),
        (0, 32, "has no values"),
        (1, 0, "has no values"),
        (usize::MAX, 32, "too large to exist"),
    ] {
        let error = TensorView::new("w", TensorType::Q8_0, rows, cols, &data).unwrap_err().to_string();
        assert!(error.starts_with("tensor \"w\" ") && error.contains(phrase), "{error}");
    }
}

#[test]
fn types_are_named_also_when_they_are_refused() {
    for kind in TensorType::ALL {
        assert_eq!(TensorType::from_ggml_id(kind.ggml_id()).unwrap(), kind);
    }
    for (id, phrase) in [(16, "IQ2_XXS is not supported"), (10, "Q2_K is not supported"), (77, "type 77 is unknown")] {
        let error = TensorType::from_ggml_id(id).unwrap_err().to_string();
        assert!(error.starts_with(phrase) || error.contains(phrase), "{error}");
        assert!(error.contains("Q4_0, Q4_1, Q5_0"), "{error}");
    }
}

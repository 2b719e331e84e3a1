//! Files that no graph may run with, and what the refusal says.

use pointsman_stage::{Model, ModelCard, StageError};
use pointsman_tensor::backend::Heads;
use pointsman_tensor::weights::{TensorType, Value};

use crate::naive::Naive;
use crate::tiny::Tiny;

fn tiny() -> Tiny {
    Tiny::new(TensorType::F32)
}

fn load(tiny: &Tiny) -> Result<Model<Naive>, StageError> {
    Model::load(&tiny.gguf(), &Naive::default(), &mut |_, _| ())
}

#[test]
fn reads_the_card() {
    let card = ModelCard::from_gguf(&tiny().gguf()).unwrap();
    let expected = ModelCard {
        architecture: "llama",
        name: "Tiny".into(),
        context_length: 64,
        embedding_length: 64,
        layers: 4,
        feed_forward_length: 160,
        heads: Heads { query: 4, kv: 2, dim: 16 },
        norm_eps: 1e-5,
        rope_base: 10_000.0,
        rope_divisor: 1.0,
        vocab: 288,
    };
    assert_eq!(card, expected);
    let scaled = tiny().set("llama.rope.scaling.type", "linear").set("llama.rope.scaling.factor", 4.0_f32);
    assert_eq!(ModelCard::from_gguf(&scaled.gguf()).unwrap().rope_divisor, 4.0);
    let untyped = tiny().set("llama.rope.scale_linear", 2.0_f32);
    assert_eq!(ModelCard::from_gguf(&untyped.gguf()).unwrap().rope_divisor, 2.0);
    let dense = tiny().set("llama.expert_count", 0_u32);
    assert!(ModelCard::from_gguf(&dense.gguf()).is_ok());
}

#[test]
fn tells_progress_up_to_all_bytes() {
    let mut steps = Vec::new();
    let model = Model::load(&tiny().gguf(), &Naive::default(), &mut |done, total| steps.push((done, total))).unwrap();
    let bytes: u64 = tiny().tensors.iter().map(|tensor| 4 * tensor.values.len() as u64).sum();
    assert_eq!(model.weight_bytes(), bytes);
    assert_eq!(steps.len(), tiny().tensors.len());
    assert!(steps.is_sorted() && steps.iter().all(|step| step.1 == bytes));
    assert_eq!(steps.last(), Some(&(bytes, bytes)));
}

#[test]
fn refuses_metadata_that_no_graph_can_run_with() {
    let broken: Vec<(&str, Value, &str)> = vec![
        ("general.architecture", "mamba".into(), "architecture 'mamba' is not supported yet; supported: llama"),
        ("llama.block_count", 0_u32.into(), "metadata 'llama.block_count' is 0, outside 1 to 1024"),
        (
            "llama.embedding_length",
            u32::MAX.into(),
            "metadata 'llama.embedding_length' is 4294967295, outside 1 to 1048576",
        ),
        (
            "llama.attention.head_count_kv",
            3_u32.into(),
            "metadata 'llama.attention.head_count_kv' is 3, which does not divide the 4 query heads",
        ),
        (
            "llama.attention.head_count",
            64_u32.into(),
            "metadata 'llama.attention.head_count' is 64, which does not cut the 64 of the embedding into heads of even size",
        ),
        (
            "llama.attention.key_length",
            32_u32.into(),
            "metadata 'llama.attention.key_length' is 32, but only 16, the size of a head, is supported yet",
        ),
        (
            "llama.rope.dimension_count",
            8_u32.into(),
            "metadata 'llama.rope.dimension_count' is 8, but only 16, the size of a head, is supported yet",
        ),
        (
            "llama.rope.scaling.type",
            "yarn".into(),
            "metadata 'llama.rope.scaling.type' is 'yarn', but only none and linear are supported yet",
        ),
        ("llama.rope.freq_base", f32::NAN.into(), "metadata 'llama.rope.freq_base' is NaN; it must be above 0"),
        (
            "llama.attention.layer_norm_rms_epsilon",
            (-1.0_f32).into(),
            "metadata 'llama.attention.layer_norm_rms_epsilon' is -1; it must be above 0",
        ),
        (
            "llama.expert_count",
            8_u32.into(),
            "metadata 'llama.expert_count' may change the model's graph and is not supported yet",
        ),
        (
            "llama.logit_scale",
            2.0_f32.into(),
            "metadata 'llama.logit_scale' may change the model's graph and is not supported yet",
        ),
    ];
    for (key, value, message) in broken {
        assert_eq!(load(&tiny().set(key, value)).err().unwrap().to_string(), message);
    }
    let wrong_type = load(&tiny().set("llama.block_count", "four")).err().unwrap().to_string();
    assert!(wrong_type.contains("llama.block_count"), "{wrong_type}");
    for key in ["llama.context_length", "llama.attention.layer_norm_rms_epsilon", "llama.attention.head_count"] {
        assert_eq!(load(&tiny().without(key)).err().unwrap().to_string(), format!("metadata '{key}' is missing"));
    }
    assert!(load(&tiny().without("llama.attention.head_count_kv")).is_err(), "then 4 KV heads are expected");
}

#[test]
fn refuses_tensors_that_are_missing_misshapen_or_left_over() {
    for name in ["token_embd.weight", "blk.3.ffn_down.weight", "output_norm.weight"] {
        let message = load(&tiny().without(name)).err().unwrap().to_string();
        assert!(message.contains(name), "{message}");
    }

    let mut misshapen = tiny().without("blk.1.attn_k.weight");
    misshapen.add("blk.1.attn_k.weight", TensorType::F32, 64, 64);
    let message = "tensor 'blk.1.attn_k.weight' is [64, 64] (rows, columns), but the metadata asks for [32, 64]";
    assert_eq!(load(&misshapen).err().unwrap().to_string(), message);

    for name in ["blk.0.attn_q.bias", "blk.4.attn_norm.weight", "blk.0.ffn_gate_inp.weight"] {
        let mut extra = tiny();
        extra.add(name, TensorType::F32, 1, 64);
        let message = format!(
            "tensor '{name}' has no place in the llama graph; the model needs a feature that is not supported yet"
        );
        assert_eq!(load(&extra).err().unwrap().to_string(), message);
    }

    let mut factors = tiny();
    factors.add("rope_freqs.weight", TensorType::F32, 1, 8);
    assert!(load(&factors).is_ok());
    factors.tensors.last_mut().unwrap().values[3] = 0.0;
    assert_eq!(
        load(&factors).err().unwrap().to_string(),
        "metadata 'rope_freqs.weight' holds 0; a factor must be above 0"
    );
}

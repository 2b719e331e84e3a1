//! A Llama of a hundred thousand random weights, which tests may damage before it becomes a file.

use pointsman_tensor::weights::{Gguf, GgufWriter, TensorType, Value};

pub const LAYERS: usize = 4;
pub const HEADS: usize = 4;
pub const KV_HEADS: usize = 2;
pub const DIM: usize = 16;
pub const VOCAB: usize = 288;
pub const CONTEXT: usize = 64;
pub const ROPE_BASE: f64 = 10_000.0;
pub const NORM_EPS: f64 = 1e-5;
const WIDTH: usize = HEADS * DIM;
const INNER: usize = 160;

pub struct Tensor {
    pub name: String,
    pub kind: TensorType,
    pub rows: usize,
    pub cols: usize,
    pub values: Vec<f32>,
}

pub struct Tiny {
    pub metadata: Vec<(String, Value)>,
    pub tensors: Vec<Tensor>,
}

impl Tiny {
    /// Always the same weights; matrices are stored as `kind`, and the embedding is the head as well.
    pub fn new(kind: TensorType) -> Self {
        let number = |key: &str, value: usize| (format!("llama.{key}"), Value::from(value as u32));
        let metadata = vec![
            ("general.architecture".into(), "llama".into()),
            ("general.name".into(), "Tiny".into()),
            number("block_count", LAYERS),
            number("context_length", CONTEXT),
            number("embedding_length", WIDTH),
            number("feed_forward_length", INNER),
            number("attention.head_count", HEADS),
            number("attention.head_count_kv", KV_HEADS),
            number("rope.dimension_count", DIM),
            ("llama.rope.freq_base".into(), Value::from(ROPE_BASE as f32)),
            ("llama.attention.layer_norm_rms_epsilon".into(), Value::from(NORM_EPS as f32)),
        ];
        let mut tiny = Self { metadata, tensors: Vec::new() };
        tiny.add("token_embd.weight", kind, VOCAB, WIDTH);
        tiny.add("output_norm.weight", TensorType::F32, 1, WIDTH);
        for layer in 0..LAYERS {
            let mut add =
                |name: &str, kind, rows, cols| tiny.add(&format!("blk.{layer}.{name}.weight"), kind, rows, cols);
            add("attn_norm", TensorType::F32, 1, WIDTH);
            add("attn_q", kind, WIDTH, WIDTH);
            add("attn_k", kind, KV_HEADS * DIM, WIDTH);
            add("attn_v", kind, KV_HEADS * DIM, WIDTH);
            add("attn_output", kind, WIDTH, WIDTH);
            add("ffn_norm", TensorType::F32, 1, WIDTH);
            add("ffn_gate", kind, INNER, WIDTH);
            add("ffn_up", kind, INNER, WIDTH);
            add("ffn_down", kind, WIDTH, INNER);
        }
        tiny
    }

    /// Adds a tensor of random values: around 1 for a vector, else such that a product keeps the size of its input.
    pub fn add(&mut self, name: &str, kind: TensorType, rows: usize, cols: usize) {
        let mut state =
            name.bytes().fold(0x9e37_79b9_u64, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x100_0193));
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        let scale = (3.0 / cols as f32).sqrt();
        let values =
            (0..rows * cols).map(|_| if rows == 1 { 1.0 + 0.3 * random() } else { scale * random() }).collect();
        self.tensors.push(Tensor { name: name.into(), kind, rows, cols, values });
    }

    /// Sets a metadata entry, in place of an earlier one.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.metadata.retain(|(existing, _)| existing != key);
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Removes a tensor or a metadata entry.
    pub fn without(mut self, name: &str) -> Self {
        self.metadata.retain(|(key, _)| key != name);
        self.tensors.retain(|tensor| tensor.name != name);
        self
    }

    pub fn has(&self, name: &str) -> bool {
        self.tensors.iter().any(|tensor| tensor.name == name)
    }

    pub fn tensor(&self, name: &str) -> &Tensor {
        self.tensors.iter().find(|tensor| tensor.name == name).unwrap()
    }

    pub fn gguf(&self) -> Gguf {
        let mut writer = GgufWriter::default();
        for (key, value) in &self.metadata {
            writer.metadata(key, value.clone());
        }
        for tensor in &self.tensors {
            writer.tensor_f32(&tensor.name, tensor.kind, tensor.rows, tensor.cols, &tensor.values).unwrap();
        }
        Gguf::parse(writer.finish()).unwrap()
    }
}

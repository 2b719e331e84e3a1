//! From a model's name or path to its file and what it says about itself; the `pointsman model` commands.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::bail;
use pointsman_api::text::VocabularySource;
use pointsman_stage::ModelCard;
use pointsman_tensor::kv::bytes_per_token;
use pointsman_tensor::weights::{Gguf, Metadata};
use serde_json::json;

use crate::cli::ModelCommand;
use crate::fetch::{KNOWN, KnownModel};

/// A model's file and the name to serve it under.
pub struct Located {
    /// The GGUF file.
    pub path: PathBuf,
    /// The known name, or the file's name without its ending.
    pub name: String,
}

/// Finds a model by path, then by name (fetching it if needed).
///
/// # Errors
/// Neither a file nor a known name; a fetch that failed.
pub fn locate(word: &str) -> anyhow::Result<Located> {
    let path = Path::new(word);
    if path.is_file() {
        let name = path.file_stem().map_or_else(|| word.to_owned(), |stem| stem.to_string_lossy().into_owned());
        return Ok(Located { path: path.to_owned(), name });
    }
    if let Some(known) = KnownModel::find(word) {
        return Ok(Located { path: known.fetch()?, name: known.name.to_owned() });
    }
    if word.starts_with("hf:") {
        bail!("{word}: fetching from a hub is not supported yet; fetch the GGUF file yourself and pass its path");
    }
    let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
    bail!("{word} is neither a file nor a known model; known models: {}", names.join(", "))
}

/// The vocabulary of a GGUF file, as the text layer wants it.
///
/// # Errors
/// A key that is missing or of a wrong type.
pub fn vocabulary(metadata: &Metadata) -> anyhow::Result<VocabularySource> {
    let owned = |strings: Vec<&str>| strings.into_iter().map(str::to_owned).collect();
    let id = |key| metadata.opt_u32(key);
    Ok(VocabularySource {
        model: metadata.str("tokenizer.ggml.model")?.to_owned(),
        pre: metadata.opt_str("tokenizer.ggml.pre")?.unwrap_or("default").to_owned(),
        tokens: owned(metadata.strings("tokenizer.ggml.tokens")?),
        token_types: metadata.opt_i32s("tokenizer.ggml.token_type")?.unwrap_or_default(),
        merges: owned(metadata.opt_strings("tokenizer.ggml.merges")?.unwrap_or_default()),
        bos: id("tokenizer.ggml.bos_token_id")?,
        eos: id("tokenizer.ggml.eos_token_id")?,
        ends: [id("tokenizer.ggml.eot_token_id")?, id("tokenizer.ggml.eom_token_id")?].into_iter().flatten().collect(),
        add_bos: metadata.opt_bool("tokenizer.ggml.add_bos_token")?,
        chat_template: metadata.opt_str("tokenizer.chat_template")?.map(str::to_owned),
    })
}

/// Runs a `model` command.
///
/// # Errors
/// As the command's own.
pub fn run(command: ModelCommand) -> anyhow::Result<()> {
    match command {
        ModelCommand::Pull { name, json } => pull(&name, json),
        ModelCommand::List { json } => list(json),
        ModelCommand::Inspect { model, json } => inspect(&model, json),
    }
}

fn pull(name: &str, as_json: bool) -> anyhow::Result<()> {
    let located = locate(name)?;
    if as_json {
        println!("{}", json!({ "name": located.name, "path": located.path }));
    } else {
        println!("{}", located.path.display());
    }
    Ok(())
}

fn list(as_json: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for known in &KNOWN {
        let cached = known.is_cached().then(|| known.path()).transpose()?;
        rows.push(json!({ "name": known.name, "bytes": known.bytes, "license": known.license, "path": cached }));
        if !as_json {
            let place = cached.map_or_else(|| "not fetched".into(), |path| path.display().to_string());
            println!("{}  {} MB  {}  {place}", known.name, known.bytes / 1_000_000, known.license);
        }
    }
    if as_json {
        println!("{}", json!({ "models": rows }));
    }
    Ok(())
}

fn inspect(word: &str, as_json: bool) -> anyhow::Result<()> {
    let located = locate(word)?;
    let gguf = Gguf::open(&located.path)?;
    let card = ModelCard::from_gguf(&gguf)?;
    let mut types: BTreeMap<&str, (usize, u64)> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let entry = types.entry(tensor.kind.name()).or_default();
        *entry = (entry.0 + 1, entry.1 + tensor.data.len() as u64);
    }
    let kv = bytes_per_token(card.layers, card.heads);
    if as_json {
        let tensors: Vec<_> = types
            .iter()
            .map(|(kind, (count, bytes))| json!({ "type": kind, "count": count, "bytes": bytes }))
            .collect();
        let heads = json!({ "query": card.heads.query, "kv": card.heads.kv, "dim": card.heads.dim });
        println!(
            "{}",
            json!({ "path": located.path, "name": card.name, "architecture": card.architecture, "layers": card.layers,
                    "embedding_length": card.embedding_length, "feed_forward_length": card.feed_forward_length,
                    "heads": heads, "vocab": card.vocab, "context_length": card.context_length,
                    "kv_bytes_per_token": kv, "tensors": tensors })
        );
        return Ok(());
    }
    println!("{} ({})", card.name, located.path.display());
    println!(
        "  graph    {}, {} layers of width {}, inner width {}",
        card.architecture, card.layers, card.embedding_length, card.feed_forward_length
    );
    println!(
        "  heads    {} for queries, {} for keys and values, {} wide",
        card.heads.query, card.heads.kv, card.heads.dim
    );
    println!("  context  {} tokens, vocabulary {}", card.context_length, card.vocab);
    println!("  kv       {kv} bytes a token in f16");
    for (kind, (count, bytes)) in types {
        println!("  {kind:8} {count} tensors, {:.1} MB", bytes as f64 / 1e6);
    }
    Ok(())
}

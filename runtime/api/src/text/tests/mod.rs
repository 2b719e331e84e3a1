//! Tests of the text layer on a small vocabulary that is made here.

mod stream;
mod template;
mod tokenizer;

use std::sync::{Arc, LazyLock};

use super::bytes::ALPHABET;
use super::{Tokenizer, VocabularySource};

/// The first id past the bytes, whose ids are their values.
const FIRST_MERGED: u32 = 256;
const IM_START: &str = "<|im_start|>";
const IM_END: &str = "<|im_end|>";

/// All bytes, a few merges, the token `xyz` that no merge leads to, two control tokens and a user-defined one.
fn source() -> VocabularySource {
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ w", "1 2", "Ġ Ġ"].map(str::to_owned).to_vec();
    let mut tokens: Vec<String> = ALPHABET.iter().map(char::to_string).collect();
    tokens.extend(merges.iter().map(|merge| merge.replace(' ', "")));
    tokens.extend(["xyz", IM_START, IM_END, "<tool>"].map(str::to_owned));
    let mut token_types = vec![1; tokens.len() - 3];
    token_types.extend([3, 3, 4]);
    let id = |text: &str| (0..).zip(&tokens).find(|(_, token)| *token == text).map(|(id, _)| id);
    let (bos, eos) = (id(IM_START), id(IM_END));
    VocabularySource {
        model: "gpt2".into(),
        pre: "smollm".into(),
        tokens,
        token_types,
        merges,
        bos,
        eos,
        ends: Vec::new(),
        add_bos: Some(false),
        chat_template: None,
    }
}

fn tokenizer() -> Arc<Tokenizer> {
    static SHARED: LazyLock<Arc<Tokenizer>> = LazyLock::new(|| Arc::new(Tokenizer::new(source()).unwrap()));
    Arc::clone(&SHARED)
}

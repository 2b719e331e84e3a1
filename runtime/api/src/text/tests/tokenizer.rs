//! Encoding and decoding, and what is refused.

use proptest::prelude::*;

use super::super::{EncodeOptions, ModelText, TextError, Tokenizer, VocabularySource};
use super::{FIRST_MERGED, IM_END, IM_START, source, tokenizer};

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };

fn id(text: &str) -> u32 {
    (0..).zip(source().tokens).find(|(_, token)| token == text).unwrap().0
}

fn encode(tokenizer: &Tokenizer, text: &str, options: EncodeOptions) -> Vec<u32> {
    tokenizer.encode(text, options, usize::MAX).unwrap()
}

fn refusal(change: impl FnOnce(&mut VocabularySource)) -> TextError {
    let mut source = source();
    change(&mut source);
    Tokenizer::new(source).err().unwrap()
}

#[test]
fn merges_apply_by_rank_within_pieces() {
    let tokenizer = tokenizer();
    assert_eq!(encode(&tokenizer, "hello", PLAIN), [id("hello")]);
    assert_eq!(encode(&tokenizer, "hell", PLAIN), [id("hell")]);
    assert_eq!(encode(&tokenizer, "a w", PLAIN), [97, id("Ġw")]);
    assert_eq!(encode(&tokenizer, "    w", PLAIN), [id("ĠĠ"), 32, id("Ġw")]);
    assert_eq!(encode(&tokenizer, "", EncodeOptions::PROMPT), [0u32; 0]);
}

#[test]
fn the_pre_tokenizer_decides_what_may_merge() {
    let with = |pre: &str| Tokenizer::new(VocabularySource { pre: pre.into(), ..source() }).unwrap();
    assert_eq!(encode(&with("smollm"), "12", PLAIN), [49, 50]);
    assert_eq!(encode(&with("gpt-2"), "12", PLAIN), [id("12")]);
    // A piece that is a token as a whole needs no merges in this family only.
    assert_eq!(encode(&with("llama-bpe"), "xyz", PLAIN), [id("xyz")]);
    assert_eq!(encode(&with("smaug-bpe"), "xyz", PLAIN), [120, 121, 122]);
}

#[test]
fn control_tokens_are_read_only_when_asked_for() {
    let tokenizer = tokenizer();
    let text = format!("{IM_START}hello{IM_END}");
    assert_eq!(encode(&tokenizer, &text, EncodeOptions::PROMPT), [id(IM_START), id("hello"), id(IM_END)]);
    assert_eq!(encode(&tokenizer, IM_END, PLAIN), IM_END.bytes().map(u32::from).collect::<Vec<_>>());
    assert_eq!(encode(&tokenizer, "a<tool>b", PLAIN), [97, id("<tool>"), 98]);
}

#[test]
fn bos_is_added_once_where_the_model_wants_it() {
    let with = |add_bos, pre: &str| Tokenizer::new(VocabularySource { add_bos, pre: pre.into(), ..source() }).unwrap();
    let bos = id(IM_START);
    let wanted = with(Some(true), "smollm");
    assert_eq!(encode(&wanted, "a", EncodeOptions::PROMPT), [bos, 97]);
    assert_eq!(encode(&wanted, "a", PLAIN), [97]);
    assert_eq!(encode(&wanted, &format!("{IM_START}a"), EncodeOptions::PROMPT), [bos, 97]);
    assert_eq!(encode(&with(None, "smollm"), "a", EncodeOptions::PROMPT), [97]);
    assert_eq!(encode(&with(None, "llama-bpe"), "a", EncodeOptions::PROMPT), [bos, 97]);
}

#[test]
fn decoding_hides_or_spells_control_tokens() {
    let tokenizer = tokenizer();
    let ids = [id(IM_START), id("hello"), id("<tool>"), id("Ġw"), id(IM_END)];
    assert_eq!(tokenizer.decode(&ids, false).unwrap(), "hello<tool> w");
    assert_eq!(tokenizer.decode(&ids, true).unwrap(), "<|im_start|>hello<tool> w<|im_end|>");
    assert_eq!(tokenizer.decode(&[0xF0, 0x9F], false).unwrap(), "\u{FFFD}");
    let vocab = tokenizer.vocab_size();
    assert_eq!(tokenizer.decode(&[vocab], false), Err(TextError::UnknownToken { id: vocab, vocab }));
}

#[test]
fn tokens_know_their_bytes_and_kind() {
    let tokenizer = tokenizer();
    assert_eq!(tokenizer.token_bytes(id("Ġw")), b" w");
    assert_eq!((tokenizer.token_bytes(id(IM_END)), tokenizer.raw_bytes(id(IM_END))), (&[][..], IM_END.as_bytes()));
    assert_eq!(tokenizer.token_text(0x9F), "\u{FFFD}");
    assert_eq!(tokenizer.raw_bytes(u32::MAX), b"");
    assert!(tokenizer.is_special(id(IM_END)) && !tokenizer.is_special(id("<tool>")) && !tokenizer.is_special(u32::MAX));
    assert_eq!((tokenizer.bos_text(), tokenizer.eos_text()), (IM_START.to_owned(), IM_END.to_owned()));
}

#[test]
fn end_tokens_are_those_of_the_file_and_those_known_by_their_text() {
    assert_eq!(tokenizer().end_tokens(), [id(IM_END)]);
    let mut mistyped = source();
    mistyped.token_types[id(IM_END) as usize] = 1;
    (mistyped.eos, mistyped.ends) = (Some(5), vec![7, 5]);
    let tokenizer = Tokenizer::new(mistyped).unwrap();
    assert_eq!(tokenizer.end_tokens(), [5, 7, id(IM_END)]);
    assert!(tokenizer.is_special(id(IM_END)));
}

#[test]
fn a_text_that_can_not_fit_is_refused_by_its_length() {
    let tokenizer = tokenizer();
    let max = tokenizer.max_prompt_bytes(10);
    assert_eq!(max, 10 * IM_START.len());
    let text = "x".repeat(max + 1);
    assert_eq!(tokenizer.encode(&text, PLAIN, max), Err(TextError::TooLong { bytes: max + 1, max }));
    assert_eq!(tokenizer.encode(&text[1..], PLAIN, max).unwrap().len(), max);
    assert_eq!(tokenizer.encode(&IM_START.repeat(10), EncodeOptions::PROMPT, max).unwrap().len(), 10);
}

#[test]
fn a_byte_without_a_token_is_dropped_and_nothing_merges_across_it() {
    let mut source = source();
    source.tokens[1] = "unused".into();
    let tokenizer = Tokenizer::new(source).unwrap();
    assert_eq!(encode(&tokenizer, "!\u{1}!\u{1}\u{1}", PLAIN), [33, 33]);
    assert_eq!(encode(&tokenizer, "\u{1}", PLAIN), [0u32; 0]);
}

#[test]
fn unsupported_kinds_are_refused_by_name() {
    let error = refusal(|source| source.model = "llama".into()).to_string();
    assert!(error.contains("\"llama\"") && error.contains("gpt2"), "{error}");
    let error = refusal(|source| source.pre = "tekken".into()).to_string();
    assert!(error.contains("\"tekken\"") && error.contains("smollm") && error.contains("qwen2"), "{error}");
}

#[test]
fn a_vocabulary_that_contradicts_itself_is_refused() {
    assert!(matches!(refusal(|source| source.tokens.clear()), TextError::Vocabulary(_)));
    assert!(matches!(refusal(|source| source.token_types.truncate(3)), TextError::Vocabulary(_)));
    assert!(matches!(refusal(|source| source.eos = Some(9999)), TextError::UnknownToken { id: 9999, .. }));
    assert!(matches!(refusal(|source| source.bos = Some(9999)), TextError::UnknownToken { id: 9999, .. }));
    for merge in ["h", "", "h q u", "q u", "<|im_start|> <|im_start|>"] {
        let error = refusal(|source| source.merges.push(merge.into()));
        assert!(matches!(error, TextError::Vocabulary(_)), "{merge:?}: {error}");
    }
}

#[test]
fn a_model_without_a_usable_template_still_has_a_tokenizer() {
    let with = |template: Option<&str>| {
        ModelText::new(VocabularySource { chat_template: template.map(str::to_owned), ..source() }).unwrap()
    };
    assert_eq!(with(None).template().err(), Some(TextError::NoTemplate));
    assert!(matches!(with(Some("{% if %}")).template(), Err(TextError::TemplateSyntax(_))));
    assert!(with(Some("{{ messages }}")).template().is_ok());
    assert_eq!(u32::try_from(source().tokens.len()), Ok(with(None).tokenizer().vocab_size()));
    assert!(id("hello") > FIRST_MERGED);
}

proptest! {
    #[test]
    fn any_text_comes_back(text in "\\PC*|[ a-z0-9'\\n\\t]*|(<\\|im_end\\|>|<tool>|hello| |\u{1F600})*", parse_special: bool) {
        let tokenizer = tokenizer();
        let options = EncodeOptions { add_special: false, parse_special };
        let ids = encode(&tokenizer, &text, options);
        prop_assert_eq!(tokenizer.decode(&ids, true).unwrap(), text);
    }
}

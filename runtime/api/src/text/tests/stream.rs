//! Whole characters, stop strings, and the entries that travel with tokens.

use proptest::prelude::*;

use super::super::{Detokenizer, Piece, STOP_BYTES_MAX, STOPS_MAX, StopMatcher, StopStrings, TextError, TextStream};
use super::tokenizer;

fn stops(stops: &[&str]) -> StopStrings {
    StopStrings::new(stops).unwrap()
}

/// Pushes the chunks; returns the pieces, the last one from `finish`, and whether it stopped.
fn matched<S: AsRef<str>>(strings: &[&str], chunks: &[S]) -> (Vec<String>, bool) {
    let mut matcher = StopMatcher::new(&stops(strings));
    let mut emits: Vec<_> = chunks.iter().map(|chunk| matcher.push(chunk.as_ref())).collect();
    emits.push(matcher.finish());
    let stopped = emits.iter().any(|emit| emit.stopped);
    (emits.into_iter().map(|emit| emit.text).collect(), stopped)
}

/// The rule in one line: the text up to the first place where any stop string occurs.
fn naive(strings: &[&str], text: &str) -> (String, bool) {
    let first = strings.iter().filter_map(|stop| text.find(stop)).min();
    (text[..first.unwrap_or(text.len())].to_owned(), first.is_some())
}

fn streamed(strings: &[&str], ids: &[u32]) -> (String, Vec<usize>, bool, Vec<Piece<usize>>) {
    let mut stream = TextStream::new(tokenizer(), &stops(strings));
    let mut pieces: Vec<_> = ids.iter().enumerate().map(|(entry, &id)| stream.push(id, entry)).collect();
    pieces.push(stream.finish());
    let text = pieces.iter().map(|piece| piece.text.as_str()).collect();
    let entries = pieces.iter().flat_map(|piece| &piece.tokens).map(|token| token.entry).collect();
    let stopped = pieces.iter().any(|piece| piece.stopped);
    (text, entries, stopped, pieces)
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

#[test]
fn an_unfinished_character_waits_and_ends_as_one_replacement() {
    let mut detokenizer = Detokenizer::default();
    assert_eq!(detokenizer.push(b" \xF0\x9F\x98"), " ");
    assert_eq!((detokenizer.pending(), detokenizer.push(b"\x80")), (3, "😀".to_owned()));
    assert_eq!((detokenizer.push(b"\xF0\x9F"), detokenizer.finish()), (String::new(), "\u{FFFD}".to_owned()));
    assert_eq!(detokenizer.push(b"\xFFa\xC3"), "\u{FFFD}a");
    assert_eq!(detokenizer.push(b"b"), "\u{FFFD}b");
}

#[test]
fn a_failed_match_is_let_go() {
    let text = " L P Q R S T U";
    assert_eq!(
        matched(&["Q R X", "zzz"], &[" L P", " Q", " R", " S", " T U"]).0,
        [" L P", " ", "", "Q R S", " T U", ""]
    );
    assert_eq!(matched(&["U V"], &[text]), (vec![" L P Q R S T ".to_owned(), "U".to_owned()], false));
}

#[test]
fn the_stop_that_begins_first_wins() {
    let chunks = [" L", " P", " Q", " R", " S", " T", " U"];
    let (pieces, stopped) = matched(&["R S", "Q R S T"], &chunks);
    assert_eq!((pieces.concat().as_str(), stopped), (" L P ", true));
    // The longer one fails, or the text ends: the shorter one was complete.
    assert_eq!(matched(&["R S", "Q R S X"], &chunks).0.concat(), " L P Q ");
    assert_eq!(
        matched(&["R S", "Q R S T"], &chunks[..5]),
        (vec![" L".into(), " P".into(), " ".into(), "".into(), "".into(), "Q ".into()], true)
    );
}

#[test]
fn a_stop_may_begin_and_end_inside_a_chunk() {
    assert_eq!(matched(&["Pari"], &[" Paris", " is"]), (vec![" ".into(), String::new(), String::new()], true));
    assert_eq!(matched(&["é"], &["caf", "é!"]).0.concat(), "caf");
    assert_eq!(matched(&["\n", "Alice:"], &["Hi Al", "ice", ": x"]).0.concat(), "Hi ");
}

#[test]
fn stop_strings_are_bounded() {
    let refused = |stops: &[String]| matches!(StopStrings::new(stops), Err(TextError::Stop(_)));
    assert!(refused(&[String::new()]));
    assert!(refused(&vec!["x".to_owned(); STOPS_MAX + 1]) && !refused(&vec!["x".to_owned(); STOPS_MAX]));
    assert!(refused(&["x".repeat(STOP_BYTES_MAX + 1)]) && !refused(&["x".repeat(STOP_BYTES_MAX)]));
    assert!(!refused(&[]));
}

#[test]
fn an_entry_comes_back_with_its_last_byte() {
    let (text, entries, _, pieces) = streamed(&[], &bytes("a😀b"));
    assert_eq!((text.as_str(), entries), ("a😀b", vec![0, 1, 2, 3, 4, 5]));
    let counts: Vec<_> = pieces.iter().map(|piece| piece.tokens.len()).collect();
    assert_eq!(counts, [1, 0, 0, 0, 4, 1, 0]);
    let offsets: Vec<_> = pieces.iter().flat_map(|piece| &piece.tokens).map(|token| token.offset).collect();
    assert_eq!(offsets, [0, 1, 1, 1, 1, 2]);
}

#[test]
fn an_entry_waits_for_text_that_may_begin_a_stop() {
    let (text, entries, stopped, pieces) = streamed(&["bcd"], &bytes("abcx"));
    assert_eq!((text.as_str(), entries, stopped), ("abcx", vec![0, 1, 2, 3], false));
    let counts: Vec<_> = pieces.iter().map(|piece| piece.tokens.len()).collect();
    assert_eq!(counts, [1, 0, 0, 3, 0]);
}

#[test]
fn a_stop_returns_every_entry_and_ends_the_stream() {
    let (text, entries, stopped, pieces) = streamed(&["bc"], &bytes("abcd"));
    assert_eq!((text.as_str(), entries, stopped), ("a", vec![0, 1, 2], true));
    assert_eq!(pieces[3], Piece { text: String::new(), tokens: Vec::new(), stopped: true });
}

#[test]
fn control_tokens_add_no_text_but_keep_their_entry() {
    let tokenizer = tokenizer();
    let end = tokenizer.end_tokens()[0];
    let (text, entries, ..) = streamed(&[], &[97, end, 0xF0, end, 98]);
    assert_eq!((text.as_str(), entries), ("a\u{FFFD}b", vec![0, 1, 2, 3, 4]));
}

#[test]
fn an_unfinished_character_at_the_end_returns_its_entry() {
    let (text, entries, ..) = streamed(&["\u{FFFD}x"], &[32, 0xF0, 0x9F, 0x98]);
    assert_eq!((text.as_str(), entries), (" \u{FFFD}", vec![0, 1, 2, 3]));
}

/// Bytes that are often, but not always, text.
fn messy_bytes() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        any::<u8>().prop_map(|byte| vec![byte]),
        any::<char>().prop_map(|character| character.to_string().into_bytes()),
        "[a-c]{1,3}".prop_map(String::into_bytes),
        any::<(char, u8)>().prop_map(|(character, cut)| {
            let bytes = character.to_string().into_bytes();
            bytes[..1 + cut as usize % bytes.len()].to_vec()
        }),
    ];
    proptest::collection::vec(part, 0..20).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn pieces_join_to_the_one_shot_decode(bytes in messy_bytes(), sizes in proptest::collection::vec(1usize..6, 1..40)) {
        let mut detokenizer = Detokenizer::default();
        let (mut joined, mut rest) = (String::new(), bytes.as_slice());
        for size in sizes.iter().cycle() {
            let (chunk, later) = rest.split_at((*size).min(rest.len()));
            joined.push_str(&detokenizer.push(chunk));
            prop_assert!(detokenizer.pending() < 4);
            rest = later;
            if rest.is_empty() { break; }
        }
        joined.push_str(&detokenizer.finish());
        prop_assert_eq!(joined, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn stops_are_found_as_by_a_search_of_the_whole(
        chunks in proptest::collection::vec("[abé]{0,4}", 0..12),
        strings in proptest::collection::vec("[abé]{1,5}", 0..5),
    ) {
        let strings: Vec<&str> = strings.iter().map(String::as_str).collect();
        let (pieces, stopped) = matched(&strings, &chunks);
        prop_assert_eq!((pieces.concat(), stopped), naive(&strings, &chunks.concat()));
    }

    #[test]
    fn less_than_one_stop_string_is_held_back(text in "[ab]{0,40}", string in "[ab]{1,5}") {
        let mut matcher = StopMatcher::new(&stops(&[&string]));
        let mut sent = 0;
        for (at, character) in text.char_indices() {
            let emit = matcher.push(character.encode_utf8(&mut [0; 4]));
            if emit.stopped { break; }
            sent += emit.text.len();
            prop_assert!(at + 1 - sent < string.len());
        }
    }

    #[test]
    fn a_stream_gives_each_entry_once_and_the_text_of_the_rule(
        bytes in messy_bytes(),
        strings in proptest::collection::vec("[abc\u{FFFD}]{1,3}", 0..3),
    ) {
        let strings: Vec<&str> = strings.iter().map(String::as_str).collect();
        let ids: Vec<u32> = bytes.iter().copied().map(u32::from).collect();
        let (text, entries, stopped, pieces) = streamed(&strings, &ids);
        prop_assert_eq!((text, stopped), naive(&strings, &String::from_utf8_lossy(&bytes)));
        let pushed = pieces.iter().position(|piece| piece.stopped).map_or(ids.len(), |at| (at + 1).min(ids.len()));
        prop_assert_eq!(entries, (0..pushed).collect::<Vec<_>>());
    }
}

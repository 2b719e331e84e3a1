//! Settings of a policy: a flat JSON object of whole numbers, booleans and words.
//!
//! Called by a policy's `init`. Strict, so that a slip of the operator is refused at once and by name: a setting that
//! is unknown, given twice, of the wrong kind or out of range. A word is one of a policy's choices, in small letters
//! and hyphens. There are no other strings, no fractions, lists or nested objects.

use std::ops::RangeInclusive;

use crate::policy::InitError;

/// What JSON takes for white space.
const WHITE: [char; 4] = [' ', '\t', '\n', '\r'];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value<'a> {
    Number(u64),
    Switch(bool),
    Word(&'a str),
}

/// The settings that the operator gave; made by [`knobs`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knobs<'a> {
    given: Vec<(&'a str, Value<'a>)>,
}

/// Reads a configuration: empty, or one JSON object whose names are among `valid`.
///
/// ```
/// let knobs = pointsman_sdk::knobs(r#"{"depth": 3, "order": "fair"}"#, &["depth", "order", "strict"]).unwrap();
/// assert_eq!(knobs.number("depth", 1..=8, 2), Ok(3));
/// assert_eq!(knobs.choice("order", &["fifo", "fair"], "fifo"), Ok("fair"));
/// assert_eq!(knobs.switch("strict", true), Ok(true));
/// ```
///
/// # Errors
/// [`InitError::BadConfig`] for text of any other form, a name that is unknown or given twice, or a value that is
/// neither a whole number nor a boolean nor a word.
pub fn knobs<'a>(config: &'a str, valid: &[&str]) -> Result<Knobs<'a>, InitError> {
    let text = config.trim_matches(WHITE);
    if text.is_empty() {
        return Ok(Knobs::default());
    }
    let body = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
    let body = body.ok_or_else(|| bad("it must be empty or a JSON object".to_owned()))?.trim_matches(WHITE);
    let mut given: Vec<(&str, Value<'_>)> = Vec::new();
    // No name or value that is allowed holds a comma.
    for pair in body.split(',').filter(|_| !body.is_empty()) {
        let (name, text) = name_and_value(pair).ok_or_else(|| {
            bad(format!("`{}` must be a name in quotes, a colon and a value", pair.trim_matches(WHITE)))
        })?;
        if !valid.contains(&name) {
            return Err(bad(format!("unknown setting \"{name}\"; there are: {}", valid.join(", "))));
        }
        if given.iter().any(|(other, _)| *other == name) {
            return Err(bad(format!("setting \"{name}\" is given twice")));
        }
        let value = value(text).ok_or_else(|| {
            bad(format!("setting \"{name}\" must be a whole number below 2^64, true, false or a word, not `{text}`"))
        })?;
        given.push((name, value));
    }
    Ok(Knobs { given })
}

impl Knobs<'_> {
    /// The whole number under this name, `default` when it is not given.
    ///
    /// # Errors
    /// [`InitError::BadConfig`] when it is no number or outside `range`.
    pub fn number(&self, name: &str, range: RangeInclusive<u64>, default: u64) -> Result<u64, InitError> {
        match self.value(name) {
            None => Ok(default),
            Some(Value::Number(number)) if range.contains(&number) => Ok(number),
            Some(_) => {
                let (from, to) = (range.start(), range.end());
                Err(bad(format!("setting \"{name}\" must be a whole number from {from} to {to}")))
            }
        }
    }

    /// The boolean under this name, `default` when it is not given.
    ///
    /// # Errors
    /// [`InitError::BadConfig`] when it is no boolean.
    pub fn switch(&self, name: &str, default: bool) -> Result<bool, InitError> {
        match self.value(name) {
            None => Ok(default),
            Some(Value::Switch(on)) => Ok(on),
            Some(_) => Err(bad(format!("setting \"{name}\" must be true or false"))),
        }
    }

    /// The word under this name, as it stands among `words`; `default` when it is not given.
    ///
    /// # Errors
    /// [`InitError::BadConfig`] when it is none of `words`.
    pub fn choice<'w>(&self, name: &str, words: &[&'w str], default: &'w str) -> Result<&'w str, InitError> {
        match self.value(name) {
            None => Ok(default),
            Some(given) => {
                let found = words.iter().find(|word| given == Value::Word(word));
                found.copied().ok_or_else(|| bad(format!("setting \"{name}\" must be one of: {}", words.join(", "))))
            }
        }
    }

    fn value(&self, name: &str) -> Option<Value<'_>> {
        self.given.iter().find(|(other, _)| *other == name).map(|&(_, value)| value)
    }
}

/// Splits `"name": value`.
fn name_and_value(pair: &str) -> Option<(&str, &str)> {
    let (name, rest) = pair.trim_matches(WHITE).strip_prefix('"')?.split_once('"')?;
    let value = rest.trim_start_matches(WHITE).strip_prefix(':')?;
    Some((name, value.trim_matches(WHITE)))
}

fn value(text: &str) -> Option<Value<'_>> {
    match text {
        "true" => Some(Value::Switch(true)),
        "false" => Some(Value::Switch(false)),
        _ if text.starts_with('"') => {
            let word = text.strip_prefix('"')?.strip_suffix('"')?;
            let plain = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            plain.then_some(Value::Word(word))
        }
        _ => {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let plain = digits && (text == "0" || !text.starts_with('0'));
            text.parse().ok().filter(|_| plain).map(Value::Number)
        }
    }
}

fn bad(why: String) -> InitError {
    InitError::BadConfig(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: [&str; 2] = ["depth", "strict"];

    fn refused(config: &str) -> String {
        match knobs(config, &VALID) {
            Err(InitError::BadConfig(why)) => why,
            other => panic!("{config}: {other:?}"),
        }
    }

    #[test]
    fn nothing_given_means_defaults() {
        for config in ["", " \n", "{}", " { \t} "] {
            let knobs = knobs(config, &VALID).unwrap();
            assert_eq!(knobs.number("depth", 1..=8, 2), Ok(2));
            assert_eq!(knobs.switch("strict", true), Ok(true));
        }
    }

    #[test]
    fn reads_numbers_and_booleans() {
        let knobs = knobs("{ \"strict\" :\tfalse,\r\n\"depth\":18446744073709551615 }", &VALID).unwrap();
        assert_eq!(knobs.number("depth", 0..=u64::MAX, 2), Ok(u64::MAX));
        assert_eq!(knobs.switch("strict", true), Ok(false));
        assert_eq!(super::knobs("{\"depth\":0}", &VALID).unwrap().number("depth", 0..=8, 2), Ok(0));
    }

    #[test]
    fn unknown_and_repeated_names_are_refused_by_name() {
        assert_eq!(refused("{\"depth\":1,\"dept\":2}"), "unknown setting \"dept\"; there are: depth, strict");
        assert_eq!(refused("{\"Depth\":1}"), "unknown setting \"Depth\"; there are: depth, strict");
        assert_eq!(refused("{\"depth\":1, \"depth\":1}"), "setting \"depth\" is given twice");
    }

    #[test]
    fn the_range_and_the_kind_are_checked() {
        let knobs = knobs("{\"depth\":9,\"strict\":1}", &VALID).unwrap();
        let range = "setting \"depth\" must be a whole number from 1 to 8";
        assert_eq!(knobs.number("depth", 1..=8, 2), Err(bad(range.to_owned())));
        assert_eq!(knobs.switch("strict", true), Err(bad("setting \"strict\" must be true or false".to_owned())));
        let knobs = super::knobs("{\"depth\":true}", &VALID).unwrap();
        assert_eq!(knobs.number("depth", 1..=8, 2), Err(bad(range.to_owned())));
    }

    #[test]
    fn values_of_other_kinds_are_refused_by_name() {
        let others = ["-1", "+1", "1.0", "1e3", "01", "00", "\"1\"", "null", "True", "[1]", "{}", "", "1 2", "1}"];
        for value in others.iter().chain(&["18446744073709551616", "1_000", "0x1"]) {
            let why = refused(&format!("{{\"depth\": {value}}}"));
            let wanted = "setting \"depth\" must be a whole number below 2^64, true, false or a word";
            assert!(why.starts_with(wanted), "{value}: {why}");
        }
    }

    #[test]
    fn words_are_read_and_checked() {
        let knobs = knobs("{\"depth\": \"a-b\", \"strict\" : \"fair\"}", &VALID).unwrap();
        assert_eq!(knobs.choice("strict", &["fifo", "fair"], "fifo"), Ok("fair"));
        assert_eq!(knobs.choice("other", &["fifo", "fair"], "fifo"), Ok("fifo"));
        let one_of = bad("setting \"depth\" must be one of: a, b".to_owned());
        assert_eq!(knobs.choice("depth", &["a", "b"], "a"), Err(one_of.clone()));
        assert!(knobs.number("depth", 1..=8, 2).is_err() && knobs.switch("strict", true).is_err());
        let number = super::knobs("{\"depth\":1}", &VALID).unwrap();
        assert_eq!(number.choice("depth", &["a", "b"], "a"), Err(one_of));
        for word in ["\"\"", "\"A\"", "\"a b\"", "\"a", "\"", "\"a\\u0062\"", "\"a\"b\"", "\"ä\""] {
            refused(&format!("{{\"depth\": {word}}}"));
        }
    }

    #[test]
    fn other_text_is_refused() {
        let others =
            ["depth", "{", "}", "[]", "1", "{depth:1}", "{\"depth\"}", "{\"depth\" 1}", "{\"depth\":1,}", "{,}"];
        for text in
            others.iter().chain(&["{\"depth:1}", "{\"depth\":1 \"strict\":true}", "\"depth\":1", "{}{}", "{{}}"])
        {
            refused(text);
        }
    }
}

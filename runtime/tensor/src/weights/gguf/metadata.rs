//! Metadata of a model file: named, typed values, read once and copied out of the file.
//!
//! A getter without `opt_` needs its key; one with it returns `None` if the key is absent. Either way, a value of another
//! type is an error. Integers of any width and sign are accepted where they fit, since writers differ in which they use.

use std::collections::btree_map::{self, BTreeMap};

use super::ARRAY_DEPTH_MAX;
use super::array::{Numbers, Strings};
use super::reader::Reader;
use super::value::{Value, ValueType};
use crate::error::TensorError;

/// The metadata entries of a model file, ordered by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: BTreeMap<String, Value>,
}

/// Getters for one type: with the key required, and optional.
macro_rules! getters {
    ($($doc:literal: $name:ident, $optional:ident -> $out:ty, expects $expected:literal, $read:expr;)*) => {$(
        #[doc = $doc]
        ///
        /// # Errors
        /// The key is missing, or its value has another type or is out of range.
        pub fn $name(&self, key: &str) -> Result<$out, TensorError> {
            self.$optional(key)?.ok_or_else(|| TensorError::metadata(key, concat!("is missing; expected ", $expected)))
        }

        #[doc = $doc]
        /// `None` if the key is absent.
        ///
        /// # Errors
        /// The value has another type or is out of range.
        pub fn $optional(&self, key: &str) -> Result<Option<$out>, TensorError> {
            self.read(key, $expected, $read)
        }
    )*};
}

impl Metadata {
    getters! {
        "An unsigned number.": u32, opt_u32 -> u32, expects "a u32", Value::integer;
        "A real number.": f32, opt_f32 -> f32, expects "an f32", Value::float;
        "A switch.": bool, opt_bool -> bool, expects "a bool", Value::bool;
        "A text.": str, opt_str -> &str, expects "a string", Value::str;
        "A list of texts, such as the vocabulary.": strings, opt_strings -> Vec<&str>,
            expects "an array of strings", |value| Some(value.strings()?.iter().collect());
        "A list of unsigned numbers.": u32s, opt_u32s -> Vec<u32>,
            expects "an array of u32", |value| value.numbers()?.iter().map(|x| x.integer()).collect();
        "A list of signed numbers, such as token types.": i32s, opt_i32s -> Vec<i32>,
            expects "an array of i32", |value| value.numbers()?.iter().map(|x| x.integer()).collect();
        "A list of real numbers, such as token scores.": f32s, opt_f32s -> Vec<f32>,
            expects "an array of f32", |value| value.numbers()?.iter().map(|x| x.float()).collect();
    }

    /// The value of any type under `key`.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.entries.get(key)
    }

    /// All entries, ordered by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(key, value)| (&**key, value))
    }

    /// Sets `key`, in place of an earlier value.
    pub(super) fn set(&mut self, key: &str, value: Value) {
        self.entries.insert(key.into(), value);
    }

    /// Reads `count` entries.
    pub(super) fn parse(reader: &mut Reader<'_>, count: usize) -> Result<Self, TensorError> {
        let mut entries = BTreeMap::new();
        for _ in 0..count {
            let offset = reader.offset();
            let key = reader.name("a metadata key")?;
            let what = format!("metadata key {key:?}");
            let kind = value_type(reader, &what)?;
            match entries.entry(key.to_owned()) {
                btree_map::Entry::Vacant(entry) => entry.insert(value(reader, &what, kind, 0)?),
                btree_map::Entry::Occupied(_) => {
                    return Err(TensorError::format(offset, format!("{what} occurs twice")));
                }
            };
        }
        Ok(Self { entries })
    }

    fn read<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, TensorError> {
        let Some(value) = self.entries.get(key) else { return Ok(None) };
        let read = read(value);
        read.map(Some).ok_or_else(|| TensorError::metadata(key, format!("holds {value}; expected {expected}")))
    }
}

fn value_type(reader: &mut Reader<'_>, what: &str) -> Result<ValueType, TensorError> {
    let offset = reader.offset();
    let id = reader.u32(what)?;
    ValueType::from_id(id)
        .ok_or_else(|| TensorError::format(offset, format!("{what} has the type {id}, which does not exist")))
}

/// A value of type `kind`, inside `depth` arrays.
fn value(reader: &mut Reader<'_>, what: &str, kind: ValueType, depth: usize) -> Result<Value, TensorError> {
    match kind {
        ValueType::String => reader.string(what).map(|text| Value::String(text.into())),
        ValueType::Array => array(reader, what, depth + 1),
        _ => {
            let size = kind.size().unwrap_or_default() as u64;
            let offset = reader.offset();
            Value::decode(kind, reader.take(size, what)?)
                .ok_or_else(|| TensorError::format(offset, format!("{what} is not a valid {kind}")))
        }
    }
}

fn array(reader: &mut Reader<'_>, what: &str, depth: usize) -> Result<Value, TensorError> {
    if depth > ARRAY_DEPTH_MAX {
        return Err(reader.error(format!("{what} nests arrays more than {ARRAY_DEPTH_MAX} deep")));
    }
    let kind = value_type(reader, what)?;
    let count_offset = reader.offset();
    let count = reader.u64(what)?;
    // The least that this many values take: a string its length, an array its type and length.
    let size = kind.size().unwrap_or(if kind == ValueType::String { 8 } else { 12 });
    let bytes = count.saturating_mul(size as u64);
    if bytes > reader.left() {
        let message = format!("{what} declares {count} {kind} values, more than the file has room for");
        return Err(TensorError::format(count_offset, message));
    }
    match kind {
        ValueType::String => {
            let mut strings = Strings::default();
            for _ in 0..count {
                strings.push(reader.string(what)?);
            }
            Ok(Value::Strings(strings))
        }
        ValueType::Array => {
            (0..count).map(|_| array(reader, what, depth + 1)).collect::<Result<_, _>>().map(Value::Arrays)
        }
        _ => {
            let offset = reader.offset();
            Numbers::new(kind, reader.take(bytes, what)?)
                .map(Value::Numbers)
                .map_err(|position| TensorError::format(offset + position, format!("{what} holds an invalid {kind}")))
        }
    }
}

//! Arrays of metadata, in one allocation each: a vocabulary has a hundred thousand strings, scores and types.

use super::value::{Value, ValueType};

/// An array of numbers or bools, as it lies in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    kind: ValueType,
    bytes: Vec<u8>,
}

impl Numbers {
    /// `bytes` are whole values of `kind`. Any bits are a number, but not any byte is a bool: `Err` is the position of the
    /// first that is not.
    pub(super) fn new(kind: ValueType, bytes: &[u8]) -> Result<Self, usize> {
        match bytes.iter().position(|byte| kind == ValueType::Bool && *byte > 1) {
            Some(position) => Err(position),
            None => Ok(Self { kind, bytes: bytes.to_vec() }),
        }
    }

    /// From the bytes of each value.
    pub(super) fn collect<const N: usize>(kind: ValueType, values: impl Iterator<Item = [u8; N]>) -> Self {
        Self { kind, bytes: values.flatten().collect() }
    }

    /// Type of the values.
    #[must_use]
    pub fn kind(&self) -> ValueType {
        self.kind
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kind.size().map_or(0, |size| self.bytes.len() / size)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The values in order.
    pub fn iter(&self) -> impl Iterator<Item = Value> {
        let size = self.kind.size().unwrap_or(1);
        self.bytes.chunks_exact(size).filter_map(|bytes| Value::decode(self.kind, bytes))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// An array of strings in one buffer, since a vocabulary has a hundred thousand short ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    ends: Vec<usize>,
}

impl Strings {
    /// Appends a string.
    pub fn push(&mut self, string: &str) {
        self.text.push_str(string);
        self.ends.push(self.text.len());
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let string = &self.text[start..*end];
            start = *end;
            string
        })
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let mut all = Self::default();
        strings.into_iter().for_each(|string| all.push(string.as_ref()));
        all
    }
}

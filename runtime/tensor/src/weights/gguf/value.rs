//! Metadata values: thirteen types, among them arrays of any of them.

use std::fmt;

use super::array::{Numbers, Strings};

/// Types of metadata values, with the numbers that GGUF gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names say it all")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    pub(super) fn from_id(id: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == id)
    }

    /// Bytes of a value; `None` for strings and arrays.
    pub(super) fn size(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        })
    }
}

/// A metadata value. Arrays have three forms, by what they hold.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the names of the scalars say it all")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    U64(u64),
    I64(i64),
    F64(f64),
    /// An array of numbers or of bools.
    Numbers(Numbers),
    /// An array of strings.
    Strings(Strings),
    /// An array of arrays.
    Arrays(Vec<Value>),
}

impl Value {
    /// Its type.
    #[must_use]
    pub fn kind(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
            Self::Numbers(_) | Self::Strings(_) | Self::Arrays(_) => ValueType::Array,
        }
    }

    pub(super) fn bool(&self) -> Option<bool> {
        if let Self::Bool(value) = self { Some(*value) } else { None }
    }

    pub(super) fn str(&self) -> Option<&str> {
        if let Self::String(value) = self { Some(value) } else { None }
    }

    pub(super) fn numbers(&self) -> Option<&Numbers> {
        if let Self::Numbers(array) = self { Some(array) } else { None }
    }

    pub(super) fn strings(&self) -> Option<&Strings> {
        if let Self::Strings(array) = self { Some(array) } else { None }
    }

    /// A number or bool of exactly the bytes of its type; `None` for other types, other lengths, and a bool that is
    /// neither 0 nor 1.
    pub(super) fn decode(kind: ValueType, bytes: &[u8]) -> Option<Self> {
        Some(match kind {
            ValueType::U8 => Self::U8(u8::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I8 => Self::I8(i8::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::U32 => Self::U32(u32::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I32 => Self::I32(i32::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::F32 => Self::F32(f32::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::U64 => Self::U64(u64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::I64 => Self::I64(i64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::F64 => Self::F64(f64::from_le_bytes(bytes.try_into().ok()?)),
            ValueType::Bool => Self::Bool(match bytes {
                [0] => false,
                [1] => true,
                _ => return None,
            }),
            ValueType::String | ValueType::Array => return None,
        })
    }

    /// The value as an integer type, if it is an integer of any type and fits.
    pub(super) fn integer<T: TryFrom<i128>>(&self) -> Option<T> {
        let wide = match *self {
            Self::U8(x) => i128::from(x),
            Self::I8(x) => i128::from(x),
            Self::U16(x) => i128::from(x),
            Self::I16(x) => i128::from(x),
            Self::U32(x) => i128::from(x),
            Self::I32(x) => i128::from(x),
            Self::U64(x) => i128::from(x),
            Self::I64(x) => i128::from(x),
            _ => return None,
        };
        T::try_from(wide).ok()
    }

    /// The value as an f32, if it is an f32 or an f64; the latter is rounded.
    pub(super) fn float(&self) -> Option<f32> {
        match *self {
            Self::F32(x) => Some(x),
            Self::F64(x) => Some(x as f32),
            _ => None,
        }
    }
}

/// Type, and the value where it is short: for error messages and listings.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Self::U8(x) => write!(f, "{kind} {x}"),
            Self::I8(x) => write!(f, "{kind} {x}"),
            Self::U16(x) => write!(f, "{kind} {x}"),
            Self::I16(x) => write!(f, "{kind} {x}"),
            Self::U32(x) => write!(f, "{kind} {x}"),
            Self::I32(x) => write!(f, "{kind} {x}"),
            Self::U64(x) => write!(f, "{kind} {x}"),
            Self::I64(x) => write!(f, "{kind} {x}"),
            Self::F32(x) => write!(f, "{kind} {x}"),
            Self::F64(x) => write!(f, "{kind} {x}"),
            Self::Bool(x) => write!(f, "{kind} {x}"),
            Self::String(text) if text.len() <= 64 => write!(f, "{kind} {text:?}"),
            Self::String(text) => write!(f, "{kind} of {} bytes", text.len()),
            Self::Numbers(array) => write!(f, "{kind} of {} {}", array.len(), array.kind()),
            Self::Strings(array) => write!(f, "{kind} of {} {}", array.len(), ValueType::String),
            Self::Arrays(array) => write!(f, "{kind} of {} {kind}", array.len()),
        }
    }
}

/// `From` for a scalar and for a slice of it.
macro_rules! from_scalar {
    ($($scalar:ty => $variant:ident),*) => {$(
        impl From<$scalar> for Value {
            fn from(value: $scalar) -> Self {
                Self::$variant(value)
            }
        }

        impl From<&[$scalar]> for Value {
            fn from(values: &[$scalar]) -> Self {
                Self::Numbers(Numbers::collect(ValueType::$variant, values.iter().map(|value| value.to_le_bytes())))
            }
        }
    )*};
}

from_scalar!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32);
from_scalar!(u64 => U64, i64 => I64, f32 => F32, f64 => F64);

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&[bool]> for Value {
    fn from(values: &[bool]) -> Self {
        Self::Numbers(Numbers::collect(ValueType::Bool, values.iter().map(|value| [u8::from(*value)])))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::String(value.into())
    }
}

impl From<&[&str]> for Value {
    fn from(values: &[&str]) -> Self {
        Self::Strings(values.iter().collect())
    }
}

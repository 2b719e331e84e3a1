//! The door for JSON: the bytes of a body become [`Fields`], and those become typed values, once.
//!
//! Called by every handler that reads JSON. A field's name stands next to its type and default in the code that takes
//! it; what nobody took is left over and reported to the client as ignored. Rules:
//! - A body is JSON whatever its content type says, since `curl -d` claims to send a form. An encoded one is refused.
//! - `null` is the same as an absent field. A field given twice is an error.
//! - Errors name the place: line and column in the body for broken JSON, the field for a wrong type.

use std::collections::BTreeMap;
use std::fmt;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header;
use futures_util::StreamExt;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::{ApiError, Class};
use crate::limits::{BODY_READ_MAX, DISCARD_BYTES_MAX, JSON_BYTES_MAX};

/// Reads a JSON body of up to [`JSON_BYTES_MAX`].
pub(crate) async fn read_json(request: Request) -> Result<Bytes, ApiError> {
    let body = read_body(request, JSON_BYTES_MAX).await?;
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(ApiError::new(Class::Malformed, "the body is empty; send a JSON object"));
    }
    Ok(body)
}

/// Reads a whole body of up to `bytes_max`. A longer one is read on and thrown away, up to a point, because a client
/// that still writes when the connection closes sees a broken pipe in place of the refusal.
pub(crate) async fn read_body(request: Request, bytes_max: usize) -> Result<Bytes, ApiError> {
    let encoding = request.headers().get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(ApiError::new(
            Class::MediaType,
            "encoded bodies are not read; send the body without content-encoding",
        ));
    }
    match tokio::time::timeout(BODY_READ_MAX, collect(request.into_body(), bytes_max)).await {
        Ok(body) => body,
        Err(_) => {
            let message = format!("the body did not arrive within {} s", BODY_READ_MAX.as_secs());
            Err(ApiError::new(Class::BodyTimeout, message))
        }
    }
}

async fn collect(body: Body, bytes_max: usize) -> Result<Bytes, ApiError> {
    let mut chunks = body.into_data_stream();
    let (mut held, mut seen) = (Vec::new(), 0usize);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|e| ApiError::new(Class::Malformed, format!("the body broke off: {e}")))?;
        seen = seen.saturating_add(chunk.len());
        if seen <= bytes_max {
            held.extend_from_slice(&chunk);
        } else if seen > DISCARD_BYTES_MAX {
            break;
        }
    }
    if seen > bytes_max {
        return Err(ApiError::new(Class::BodyTooLarge, format!("the body is larger than {bytes_max} bytes")));
    }
    Ok(held.into())
}

/// The fields of a JSON object, each still as text until it is taken.
pub(crate) struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// Splits a body into its fields, which checks the syntax of the whole.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, ApiError> {
        let text = std::str::from_utf8(body).map_err(|e| {
            ApiError::new(Class::Malformed, format!("the body is not UTF-8: byte {} is wrong", e.valid_up_to()))
        })?;
        serde_json::from_str(text)
            .map_err(|e| ApiError::new(Class::Malformed, format!("the body is not a JSON object: {e}")))
    }

    /// Takes a field; `None` if it is absent or null.
    pub(crate) fn take<T: Deserialize<'a>>(&mut self, name: &str) -> Result<Option<T>, ApiError> {
        let Some(raw) = self.0.remove(name) else { return Ok(None) };
        let mut json = serde_json::Deserializer::from_str(raw.get());
        serde_path_to_error::deserialize(&mut json).map_err(|e| {
            let param = match e.path().to_string() {
                path if path == "." => name.to_owned(),
                path if path.starts_with('[') => format!("{name}{path}"),
                path => format!("{name}.{path}"),
            };
            // Line and column count from the start of the field here, which helps nobody.
            let reason = e.into_inner().to_string();
            let reason = reason.rfind(" at line ").map_or(reason.as_str(), |end| &reason[..end]);
            ApiError::invalid(&param, format!("{param}: {reason}"))
        })
    }

    /// The first byte of a field's text, which tells its JSON type; `None` if it is absent.
    pub(crate) fn first_byte(&self, name: &str) -> Option<u8> {
        self.0.get(name).and_then(|raw| raw.get().bytes().next())
    }

    /// Like [`Self::first_byte`], for the first element of an array; `None` if it is empty or no array.
    pub(crate) fn first_byte_inside(&self, name: &str) -> Option<u8> {
        let inside = self.0.get(name)?.get().strip_prefix('[')?;
        inside.bytes().find(|byte| !byte.is_ascii_whitespace()).filter(|&byte| byte != b']')
    }

    /// Refuses a field that asks for something, that is, one that is there and neither null, false, nor empty.
    pub(crate) fn refuse(&mut self, name: &str, why: &str) -> Result<(), ApiError> {
        let empty = match self.first_byte(name) {
            None | Some(b'n' | b'f') => true,
            Some(b'[') => self.take::<Vec<IgnoredAny>>(name)?.is_none_or(|list| list.is_empty()),
            Some(_) => self.0.get(name).is_some_and(|raw| raw.get() == "\"\""),
        };
        self.0.remove(name);
        if empty { Ok(()) } else { Err(ApiError::unsupported(name, format!("{name}: {why}"))) }
    }

    /// The names that are left.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format_args!("the field {name:?} is given twice")));
                    }
                    fields.insert(name, map.next_value()?);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::Fields;

    fn message(body: &[u8]) -> String {
        Fields::parse(body).map(|_| ()).unwrap_err().body()
    }

    #[test]
    fn broken_json_is_placed_by_line_and_column() {
        assert!(message(b"{:").contains("line 1 column 2"));
        assert!(message(b"{\n \"a\": NaN}").contains("line 2"));
        assert!(message(b"[]").contains("expected an object"));
        assert!(message(b"\xef\xbb\xbf{}").contains("line 1 column 1"));
        assert!(message(b"{\"a\":\"\xff\"}").contains("byte 6"));
        assert!(message(br#"{"a":1,"a":2}"#).contains("given twice"));
        assert!(message("[".repeat(100_000).as_bytes()).contains("expected an object"));
        assert!(message(format!("{{\"a\":{}", "[".repeat(100_000)).as_bytes()).contains("EOF"));
    }

    #[test]
    fn wrong_types_name_their_field() {
        let mut fields = Fields::parse(br#"{"a":"hot","b":[1,2.5],"c":1e999,"d":"\ud83d","e":null}"#).unwrap();
        assert!(fields.take::<f64>("a").unwrap_err().body().contains(r#""param":"a""#));
        assert!(fields.take::<Vec<u32>>("b").unwrap_err().body().contains(r#""param":"b[1]""#));
        assert!(fields.take::<f64>("c").unwrap_err().body().contains("out of range"));
        assert!(fields.take::<String>("d").unwrap_err().body().contains(r#""param":"d""#));
        assert_eq!(fields.take::<f64>("e").unwrap(), None);
        assert_eq!(fields.take::<f64>("absent").unwrap(), None);
        assert_eq!(fields.names().count(), 0);
    }

    #[test]
    fn empty_wishes_are_not_refused() {
        let body = br#"{"tools":[],"audio":null,"store":false,"suffix":"x","functions":[1]}"#;
        let mut fields = Fields::parse(body).unwrap();
        for name in ["tools", "audio", "store", "absent"] {
            fields.refuse(name, "no").unwrap();
        }
        assert!(fields.refuse("suffix", "no").is_err());
        assert!(fields.refuse("functions", "no").is_err());
    }
}

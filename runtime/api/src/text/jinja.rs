//! Where the template engine differs from Jinja2 as chat templates expect it: white space, what values print as, `tojson`,
//! a few functions and methods, and a tag that only training uses.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value, escape_formatter};
use minijinja_contrib::pycompat;
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// The message of a template's `raise_exception`, as the source of the engine's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Raised(pub String);

/// An environment without templates.
pub(super) fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_debug(true); // names what was undefined
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_formatter(|out, state, value| match value.kind() {
        ValueKind::None => Ok(out.write_str("None")?),
        ValueKind::Bool => Ok(out.write_str(if value.is_true() { "True" } else { "False" })?),
        _ => escape_formatter(out, state, value),
    });
    environment.set_unknown_method_callback(method);
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raised by the template").with_source(Raised(message)))
    });
    Ok(environment)
}

/// Python methods; those that the compatibility layer lacks first.
fn method(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), method, args) {
        (Some(text), "removeprefix", [prefix]) => {
            Ok(prefix.as_str().and_then(|prefix| text.strip_prefix(prefix)).unwrap_or(text).into())
        }
        (Some(text), "removesuffix", [suffix]) => {
            Ok(suffix.as_str().and_then(|suffix| text.strip_suffix(suffix)).unwrap_or(text).into())
        }
        _ => pycompat::unknown_method_callback(state, value, method, args),
    }
}

/// JSON as Python writes it: nothing escaped for HTML, order kept, a space after `,` and `:`.
fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    let ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    if ensure_ascii == Some(true) {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson(ensure_ascii=true) is not supported"));
    }
    match indent {
        None => to_json(value, OneLine),
        Some(indent) => to_json(value, PrettyFormatter::with_indent(" ".repeat(indent.min(16)).as_bytes())),
    }
}

fn to_json(value: &Value, formatter: impl Formatter) -> Result<String, Error> {
    let bad = |message: String| Error::new(ErrorKind::BadSerialization, message);
    let mut json = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut json, formatter)).map_err(|error| bad(error.to_string()))?;
    String::from_utf8(json).map_err(|error| bad(error.to_string()))
}

struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(&mut self, writer: &mut W, first: bool) -> std::io::Result<()> {
        writer.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, writer: &mut W) -> std::io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Replaces `{% generation %}` and `{% endgeneration %}`, which mark what a model is trained on, by an `if` that is always
/// taken; so white space control and line numbers stay as they are.
pub(super) fn without_generation_tags(template: &str) -> String {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open + 2);
        text.push_str(before);
        rest = tag;
        let Some(close) = tag.find("%}") else { break };
        let signs = ['-', '+'];
        let statement = match tag[..close].trim_matches(|c: char| signs.contains(&c)).trim() {
            "generation" => " if true ",
            "endgeneration" => " endif ",
            _ => continue,
        };
        text.extend(tag[..close].chars().next().filter(|sign| signs.contains(sign)));
        text.push_str(statement);
        text.extend(tag[..close].chars().last().filter(|sign| signs.contains(sign)));
        rest = &tag[close..];
    }
    text.push_str(rest);
    text
}

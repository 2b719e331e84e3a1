//! A model's chat template: Jinja, set up as the Python library that the templates are written for sets it up.
//!
//! The template comes with the model and is not trusted: it gets data, no functions that reach outside, and a budget of
//! work ("fuel", which instructions, bytes written and values made all draw on). What Jinja2 has and the engine lacks is
//! added in [`jinja`](super::jinja).

use std::error::Error as _;

use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, Value};
use serde::{Deserialize, Serialize};

use super::error::TextError;
use super::jinja::{self, Raised};
use super::strftime::strftime;

/// Work that one rendering may do: some 20 ms. A chat of a hundred messages needs a few thousand units, every 64 bytes
/// written one more.
const FUEL: u64 = 500_000;
const NAME: &str = "chat";

/// Who speaks. Other roles are refused by whoever parses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions.
    System,
    /// Instructions, in newer clients' words; a template that does not know the role sees `system`.
    Developer,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// The result of a tool call.
    Tool,
}

impl Role {
    /// As templates spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Developer => "developer",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// One message as templates see it. Fields that are `None` are not defined there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Message {
    /// Who speaks.
    #[serde(skip)]
    pub role: Role,
    /// The text: parts joined, empty when there is none.
    pub content: String,
    /// The speaker's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The assistant's tool calls, with `function.arguments` as an object rather than as JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<serde_json::Value>,
    /// Which call a tool's result belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// A message of text alone.
    #[must_use]
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), name: None, tool_calls: None, tool_call_id: None }
    }
}

/// What a template gets besides the messages.
#[derive(Clone, Debug, Default)]
pub struct RenderOptions {
    /// Tool definitions, as the request gives them.
    pub tools: Option<serde_json::Value>,
    /// End with the beginning of the assistant's answer.
    pub add_generation_prompt: bool,
    /// Further variables (`chat_template_kwargs`); those named above and the messages win over them.
    pub extra: serde_json::Map<String, serde_json::Value>,
    /// Unix time in seconds for `strftime_now`.
    pub now: u64,
    /// Refuse messages of more bytes than this in all, before any work is done.
    pub max_bytes: usize,
}

#[derive(Serialize)]
struct Rendered<'m> {
    role: &'static str,
    #[serde(flatten)]
    message: &'m Message,
}

/// A compiled chat template. Immutable; share it.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    knows_developer: bool,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Compiles a template. `bos` and `eos` are the texts of these tokens, empty if there are none.
    ///
    /// # Errors
    /// [`TextError::TemplateSyntax`].
    pub fn new(template: &str, bos: &str, eos: &str) -> Result<Self, TextError> {
        let compile = || {
            let mut environment = jinja::environment()?;
            environment.set_fuel(Some(FUEL));
            environment.add_template_owned(NAME, jinja::without_generation_tags(template))?;
            Ok(environment)
        };
        let environment = compile().map_err(|error| TextError::TemplateSyntax(describe(&error)))?;
        let knows_developer = template.contains("developer");
        Ok(Self { environment, knows_developer, bos: bos.to_owned(), eos: eos.to_owned() })
    }

    /// The prompt for these messages.
    ///
    /// # Errors
    /// [`TextError::TooLong`]; [`TextError::Refused`] with the template's own words when it rejects the messages;
    /// [`TextError::Template`] when it fails or does too much work.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String, TextError> {
        let bytes = messages.iter().map(|message| message.content.len()).sum();
        if bytes > options.max_bytes {
            return Err(TextError::TooLong { bytes, max: options.max_bytes });
        }
        let rendered: Vec<_> =
            messages.iter().map(|message| Rendered { role: self.role(message.role), message }).collect();
        let now = options.now;
        let strftime_now = Value::from_function(move |format: &str| {
            strftime(now, format).map_err(|message| minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        let ours = [
            ("messages", Serde(&rendered).into()),
            ("tools", Serde(&options.tools).into()),
            ("add_generation_prompt", options.add_generation_prompt.into()),
            ("bos_token", self.bos.as_str().into()),
            ("eos_token", self.eos.as_str().into()),
            ("strftime_now", strftime_now),
        ];
        let extra = options.extra.iter().map(|(name, value)| (name.as_str(), Value::from(Serde(value))));
        let context = Value::from_pairs(extra.chain(ours));
        let template = self.environment.get_template(NAME);
        template.and_then(|template| template.render(context)).map_err(|error| failure(&error))
    }

    fn role(&self, role: Role) -> &'static str {
        match role {
            Role::Developer if !self.knows_developer => Role::System.as_str(),
            role => role.as_str(),
        }
    }
}

/// Tells the template's own refusal from its failures.
fn failure(error: &minijinja::Error) -> TextError {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(Raised(message)) = inner.downcast_ref() {
            return TextError::Refused(message.clone());
        }
        cause = inner.source();
    }
    TextError::Template { message: describe(error), line: error.line().unwrap_or(1) }
}

fn describe(error: &minijinja::Error) -> String {
    match (error.kind(), error.detail(), error.line()) {
        (ErrorKind::OutOfFuel, ..) => "it does too much work for these messages".to_owned(),
        (ErrorKind::SyntaxError, Some(detail), Some(line)) => format!("syntax error at line {line}: {detail}"),
        (kind, Some(detail), _) => format!("{kind}: {detail}"),
        (kind, None, _) => kind.to_string(),
    }
}

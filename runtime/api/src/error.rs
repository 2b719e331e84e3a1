//! The one table from a fault to its HTTP answer. Every error that leaves the server is an [`ApiError`].
//!
//! The body is OpenAI's: `{"error":{"message","type","param","code"}}`, all four always present, the last two nullable
//! strings. A client's mistake is never a 5xx, since clients repeat those. Refusals that pass with time carry `Retry-After`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pointsman_engine::request::Reject;
use serde::Serialize;

use crate::service::SwapError;
use crate::text::TextError;

/// What kind of fault it is: a row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The body is not what its endpoint reads at all.
    Malformed,
    /// A field has a wrong type or value.
    InvalidValue,
    /// A field asks for something that this server does not do.
    Unsupported,
    /// Prompt and answer do not fit into the context.
    ContextLength,
    /// Prompt and answer do not fit into any chain's KV store.
    KvCapacity,
    /// The chat template refused the messages, or there is none.
    ChatTemplate,
    /// Another model than the served one was named.
    ModelNotFound,
    /// No such route, slot or policy.
    NotFound,
    /// The route exists, for other methods.
    MethodNotAllowed,
    /// The body is over its limit.
    BodyTooLarge,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body has an encoding that is not read.
    MediaType,
    /// A token is needed, and it is missing or wrong.
    Unauthenticated,
    /// Not allowed from there.
    Forbidden,
    /// `If-Match` names another generation.
    Conflict,
    /// A policy did not pass verification.
    PolicyRefused,
    /// The central queue is full.
    QueueFull,
    /// The routing policy turned the request away.
    PolicyRejected,
    /// The model is being loaded.
    Loading,
    /// The server is shutting down.
    Draining,
    /// Something can not be done now.
    Unavailable,
    /// The server ended the request before its time.
    Cancelled,
    /// A device failed.
    EngineFailed,
    /// A handler panicked.
    Internal,
}

impl Class {
    /// Status, `type`, `code` and the seconds of `Retry-After`.
    fn row(self) -> (StatusCode, &'static str, Option<&'static str>, Option<u32>) {
        use StatusCode as S;
        const REQUEST: &str = "invalid_request_error";
        const OVERLOAD: &str = "rate_limit_error";
        const AWAY: &str = "unavailable_error";
        const SERVER: &str = "server_error";
        match self {
            Self::Malformed => (S::BAD_REQUEST, REQUEST, None, None),
            Self::InvalidValue => (S::BAD_REQUEST, REQUEST, Some("invalid_value"), None),
            Self::Unsupported => (S::BAD_REQUEST, REQUEST, Some("unsupported_parameter"), None),
            Self::ContextLength => (S::BAD_REQUEST, REQUEST, Some("context_length_exceeded"), None),
            Self::KvCapacity => (S::BAD_REQUEST, REQUEST, Some("kv_capacity_exceeded"), None),
            Self::ChatTemplate => (S::BAD_REQUEST, REQUEST, Some("chat_template_error"), None),
            Self::ModelNotFound => (S::NOT_FOUND, "not_found_error", Some("model_not_found"), None),
            Self::NotFound => (S::NOT_FOUND, "not_found_error", Some("not_found"), None),
            Self::MethodNotAllowed => (S::METHOD_NOT_ALLOWED, REQUEST, Some("method_not_allowed"), None),
            Self::BodyTooLarge => (S::PAYLOAD_TOO_LARGE, REQUEST, Some("body_too_large"), None),
            Self::BodyTimeout => (S::REQUEST_TIMEOUT, REQUEST, Some("body_timeout"), None),
            Self::MediaType => (S::UNSUPPORTED_MEDIA_TYPE, REQUEST, Some("unsupported_media_type"), None),
            Self::Unauthenticated => (S::UNAUTHORIZED, "authentication_error", Some("invalid_token"), None),
            Self::Forbidden => (S::FORBIDDEN, "permission_error", Some("forbidden"), None),
            Self::Conflict => (S::PRECONDITION_FAILED, REQUEST, Some("generation_conflict"), None),
            Self::PolicyRefused => (S::UNPROCESSABLE_ENTITY, REQUEST, Some("policy_refused"), None),
            Self::QueueFull => (S::TOO_MANY_REQUESTS, OVERLOAD, Some("queue_full"), Some(1)),
            Self::PolicyRejected => (S::TOO_MANY_REQUESTS, OVERLOAD, Some("policy_rejected"), Some(1)),
            Self::Loading => (S::SERVICE_UNAVAILABLE, AWAY, Some("loading"), Some(1)),
            Self::Draining => (S::SERVICE_UNAVAILABLE, AWAY, Some("draining"), Some(5)),
            Self::Unavailable => (S::SERVICE_UNAVAILABLE, AWAY, Some("unavailable"), Some(1)),
            Self::Cancelled => (S::SERVICE_UNAVAILABLE, AWAY, Some("cancelled"), Some(1)),
            Self::EngineFailed => (S::INTERNAL_SERVER_ERROR, SERVER, Some("engine_failed"), None),
            Self::Internal => (S::INTERNAL_SERVER_ERROR, SERVER, Some("internal"), None),
        }
    }
}

/// A fault, ready to be sent: as a response, or as the last event of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    class: Class,
    param: Option<String>,
    message: String,
}

impl ApiError {
    /// A fault that concerns no single field.
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, param: None, message: shortened(message.into()) }
    }

    /// `param` has a wrong type or value.
    pub(crate) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Class::InvalidValue, message).about(param)
    }

    /// `param` asks for something that this server does not do.
    pub(crate) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Class::Unsupported, message).about(param)
    }

    /// Names the field that is at fault.
    pub(crate) fn about(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// What is the prompt to the engine is the messages to a chat's client.
    pub(crate) fn about_messages(self) -> Self {
        match self.param.as_deref() {
            Some("prompt") => self.about("messages"),
            _ => self,
        }
    }

    /// The JSON body.
    pub(crate) fn body(&self) -> String {
        #[derive(Serialize)]
        struct Body<'a> {
            error: Detail<'a>,
        }
        #[derive(Serialize)]
        struct Detail<'a> {
            message: &'a str,
            #[serde(rename = "type")]
            kind: &'a str,
            param: Option<&'a str>,
            code: Option<&'a str>,
        }
        let (_, kind, code, _) = self.class.row();
        let body = Body { error: Detail { message: &self.message, kind, param: self.param.as_deref(), code } };
        // Strings only: this can not fail. An empty body would still be an error by its status.
        serde_json::to_string(&body).unwrap_or_default()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (status, _, _, retry_after_s) = self.class.row();
        let mut response = (status, [(header::CONTENT_TYPE, "application/json")], self.body()).into_response();
        if let Some(seconds) = retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.class == Class::Unauthenticated {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Reject> for ApiError {
    fn from(reject: Reject) -> Self {
        let message = reject.to_string();
        match reject {
            Reject::Invalid { field, reason } => {
                let name = wire_name(field);
                Self::invalid(name, format!("{name}: {reason}"))
            }
            Reject::ContextLength { .. } => Self::new(Class::ContextLength, message).about("prompt"),
            Reject::TooLarge { .. } => Self::new(Class::KvCapacity, message).about("max_tokens"),
            Reject::QueueFull(_) => Self::new(Class::QueueFull, message),
            Reject::Policy(_) => Self::new(Class::PolicyRejected, message),
            Reject::Draining => Self::new(Class::Draining, message),
        }
    }
}

/// Messages quote what the client sent, which may be megabytes long.
fn shortened(mut message: String) -> String {
    const BYTES_MAX: usize = 600;
    if message.len() > BYTES_MAX {
        message.truncate(message.floor_char_boundary(BYTES_MAX));
        message.push_str(" [cut]");
    }
    message
}

/// The engine's name of a field as the API calls it.
fn wire_name(field: &'static str) -> &'static str {
    match field {
        "max_new_tokens" => "max_tokens",
        "min_new_tokens" => "min_tokens",
        "stop_tokens" => "stop_token_ids",
        other => other,
    }
}

impl From<TextError> for ApiError {
    fn from(error: TextError) -> Self {
        let message = error.to_string();
        let (class, param) = match error {
            TextError::TooLong { .. } => (Class::ContextLength, "prompt"),
            TextError::Encode(_) => (Class::InvalidValue, "prompt"),
            TextError::UnknownToken { .. } => (Class::InvalidValue, "tokens"),
            TextError::Stop(_) => (Class::InvalidValue, "stop"),
            TextError::NoTemplate
            | TextError::TemplateSyntax(_)
            | TextError::Refused(_)
            | TextError::Template { .. } => (Class::ChatTemplate, "messages"),
            // Faults of the model file, found when it is loaded.
            TextError::Model(_) | TextError::PreTokenizer { .. } | TextError::Vocabulary(_) => {
                return Self::new(Class::Internal, message);
            }
        };
        Self::new(class, message).about(param)
    }
}

impl From<SwapError> for ApiError {
    fn from(error: SwapError) -> Self {
        let class = match error {
            SwapError::NotFound(_) => Class::NotFound,
            SwapError::Refused(_) => Class::PolicyRefused,
            SwapError::Conflict(_) => Class::Conflict,
            SwapError::Unavailable(_) => Class::Unavailable,
        };
        Self::new(class, error.to_string())
    }
}

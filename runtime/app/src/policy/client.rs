//! The admin endpoints of one server, over HTTP.

use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::cli::ServerArgs;
use crate::config::read_token;

/// The largest answer: a decision log, with room for one that grew.
const ANSWER_BYTES_MAX: u64 = 256 << 20;

/// Talks to the admin endpoints of one server.
pub(super) struct Client {
    agent: ureq::Agent,
    base: String,
    token: Option<String>,
}

impl Client {
    pub(super) fn new(server: &ServerArgs) -> anyhow::Result<Self> {
        if server.server.starts_with("https:") {
            bail!("{}: reach the admin endpoints over http, from the server's own machine", server.server);
        }
        let settings =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(Duration::from_secs(60)));
        Ok(Self {
            agent: settings.build().into(),
            base: server.server.trim_end_matches('/').to_owned(),
            token: server.admin_token_file.as_deref().map(read_token).transpose()?,
        })
    }

    /// Sends a request and takes a JSON answer.
    pub(super) fn send(&self, method: &str, path: &str, body: Option<(&str, Vec<u8>)>) -> anyhow::Result<Value> {
        serde_json::from_slice(&self.fetch(method, path, body)?).context("the server's answer is not JSON")
    }

    /// Sends a request and takes any answer; an error answer becomes an error with the server's message.
    pub(super) fn fetch(&self, method: &str, path: &str, body: Option<(&str, Vec<u8>)>) -> anyhow::Result<Vec<u8>> {
        let mut request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let (kind, body) = body.unwrap_or(("application/json", Vec::new()));
        let request = request.header("content-type", kind).body(body).context("the server's address is not a URL")?;
        let mut answer = self.agent.run(request).with_context(|| format!("reach the server at {}", self.base))?;
        let status = answer.status();
        let limit = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX);
        let bytes = limit.read_to_vec().context("read the server's answer")?;
        if status.is_success() {
            return Ok(bytes);
        }
        let said = serde_json::from_slice::<Value>(&bytes).ok();
        let message = said.as_ref().and_then(|said| said["error"]["message"].as_str());
        bail!("{}", message.unwrap_or(&format!("the server answered {status}")))
    }
}

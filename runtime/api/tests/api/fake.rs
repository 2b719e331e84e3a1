//! A service that plays a script, a policy admin with one slot, and a client that talks to the router.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Request as HttpRequest, StatusCode};
use pointsman_api::service::{
    AuditEntry, BoxFuture, CancelOnDrop, DecisionInfo, ModelInfo, PolicyAdmin, PolicyInfo, PolicyListing, PolicySource,
    Readiness, Service, SlotState, Submission, Swap, SwapError, SwapOptions,
};
use pointsman_api::text::{ModelText, VocabularySource};
use pointsman_api::{ApiState, Routes, router};
use pointsman_engine::ids::RequestId;
use pointsman_engine::output::{Event, Finish, Logprob};
use pointsman_engine::request::{ModelLimits, Reject, Request};
use pointsman_engine::stats::{ChainStats, Stats};
use serde_json::Value;
use tokio::sync::mpsc;
use tower::ServiceExt;

pub const MODEL: &str = "tiny";
pub const CONTEXT: u32 = 128;
/// Ids 0 to 255 are the bytes.
pub const VOCAB: u32 = 258;
pub const IM_END: u32 = 257;

/// What the service does with the next requests.
pub enum Script {
    /// Refuses them.
    Refuse(Reject),
    /// Sends the events and closes the channel.
    Play(Vec<Event>),
    /// Sends the events, then nothing until it is cancelled.
    Hang(Vec<Event>),
    /// Panics.
    Panic,
}

pub struct Fake {
    pub script: Mutex<Script>,
    pub requests: Mutex<Vec<Request>>,
    pub cancelled: Arc<AtomicUsize>,
    pub readiness: Mutex<Readiness>,
}

impl Fake {
    pub fn new(script: Script) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script),
            requests: Mutex::default(),
            cancelled: Arc::default(),
            readiness: Mutex::new(Readiness::Ready),
        })
    }

    pub fn cancelled(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }

    pub fn last_request(&self) -> Request {
        self.requests.lock().unwrap().last().unwrap().clone()
    }
}

impl Service for Fake {
    fn readiness(&self) -> Readiness {
        *self.readiness.lock().unwrap()
    }

    fn submit(&self, request: Request) -> BoxFuture<'_, Result<Submission, Reject>> {
        self.requests.lock().unwrap().push(request);
        let (events, hangs) = match &*self.script.lock().unwrap() {
            Script::Refuse(reject) => {
                let reject = reject.clone();
                return Box::pin(async { Err(reject) });
            }
            Script::Play(events) => (events.clone(), false),
            Script::Hang(events) => (events.clone(), true),
            Script::Panic => return Box::pin(async { panic!("on purpose") }),
        };
        let (sender, receiver) = mpsc::channel(events.len().max(1));
        for event in events {
            sender.try_send(event).unwrap();
        }
        let kept = hangs.then_some(sender);
        let cancelled = Arc::clone(&self.cancelled);
        let cancel = CancelOnDrop::new(move || {
            drop(kept);
            cancelled.fetch_add(1, Ordering::SeqCst);
        });
        Box::pin(async { Ok(Submission { id: RequestId(1), events: receiver, cancel }) })
    }

    fn stats(&self) -> Stats {
        let blocks = ChainStats { kv_blocks_used: 3, kv_blocks_idle: 4, kv_blocks_total: 64, ..ChainStats::default() };
        let chain = ChainStats { busy: 2, capacity: 8, ..blocks };
        Stats {
            running: 2,
            waiting: 1,
            prompt_tokens_total: 40,
            prefix_queries_tokens_total: 39,
            prefix_hits_tokens_total: 16,
            prefix_evicted_blocks_total: 5,
            chains: vec![chain, chain],
            ..Stats::default()
        }
    }

    fn extra_metrics(&self) -> String {
        "# HELP pointsman_build_info Build\n# TYPE pointsman_build_info gauge\npointsman_build_info{device=\"cpu\"} 1\n"
            .to_owned()
    }
}

/// One slot, `route`, whose policies are known by name.
#[derive(Default)]
pub struct FakeAdmin(Mutex<(u64, Vec<Option<PolicyInfo>>)>);

impl FakeAdmin {
    fn change(
        &self,
        slot: &str,
        expected: Option<u64>,
        with: impl FnOnce(&mut Vec<Option<PolicyInfo>>) -> Result<(), SwapError>,
    ) -> Result<SlotState, SwapError> {
        let mut guard = self.0.lock().unwrap();
        let (generation, history) = &mut *guard;
        if slot != "route" {
            return Err(SwapError::NotFound(format!("there is no slot {slot:?}")));
        }
        if expected.is_some_and(|expected| expected != *generation) {
            return Err(SwapError::Conflict(*generation));
        }
        with(history)?;
        *generation += 1;
        Ok(Self::state(*generation, history))
    }

    fn state(generation: u64, history: &[Option<PolicyInfo>]) -> SlotState {
        let active = history.last().cloned().flatten();
        let previous = history.iter().rev().nth(1).cloned().flatten();
        let (faults, trial, shadow) = (vec![], None, None);
        SlotState {
            slot: "route".into(),
            generation,
            active,
            previous,
            faults,
            last_fault: None,
            trial,
            shadow,
            watch: None,
        }
    }
}

impl PolicyAdmin for FakeAdmin {
    fn list(&self) -> PolicyListing {
        let guard = self.0.lock().unwrap();
        PolicyListing {
            slots: vec![Self::state(guard.0, &guard.1)],
            available: vec![],
            quarantined: vec![],
            contracts: vec!["0.1.0".into()],
        }
    }

    /// The version of what was swapped in shows its configuration and options.
    fn swap(&self, slot: String, swap: Swap, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        let outcome = self.change(&slot, expected, |history| {
            let name = match swap.source {
                PolicySource::Name(name) if name.starts_with("route-") => name,
                PolicySource::Name(name) => return Err(SwapError::NotFound(format!("there is no policy {name:?}"))),
                PolicySource::Bytes(bytes) if bytes.starts_with(b"\0asm") => "uploaded".to_owned(),
                PolicySource::Bytes(_) => return Err(SwapError::Refused("verify: not a component".to_owned())),
            };
            let plain = swap.options == SwapOptions::default();
            let version = if plain { swap.config } else { format!("{:?}", swap.options) };
            history.push(Some(PolicyInfo { name, version, digest: "sha256:00".into() }));
            Ok(())
        });
        Box::pin(async { outcome })
    }

    fn promote(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        let outcome = self.change(&slot, expected, |_| Err(SwapError::NotFound("nothing is on trial".to_owned())));
        Box::pin(async { outcome })
    }

    fn end_shadow(&self, slot: String) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        let outcome = self.change(&slot, None, |_| Err(SwapError::NotFound("there is no shadow".to_owned())));
        Box::pin(async { outcome })
    }

    fn clear(&self, digest: &str) -> Result<(), SwapError> {
        let unknown = || SwapError::NotFound(format!("{digest} has no record"));
        (digest == "sha256:00").then_some(()).ok_or_else(unknown)
    }

    fn explain(&self, request: u64) -> BoxFuture<'_, Result<DecisionInfo, SwapError>> {
        let outcome = match request {
            7 => Ok(DecisionInfo {
                request,
                seq: 1,
                now_micros: 2,
                prompt_tokens: 3,
                reserve_tokens: 4,
                generation: 5,
                policy: "route-jsq".into(),
                digest: None,
                on_trial: false,
                decision: "chain 0".into(),
                fault: None,
                fuel: 6,
                candidates: vec![],
                no_scores: None,
            }),
            _ => Err(SwapError::NotFound(format!("request {request} is not in the log"))),
        };
        Box::pin(async { outcome })
    }

    fn log(&self, _slot: String) -> BoxFuture<'_, Result<Vec<u8>, SwapError>> {
        Box::pin(async { Ok(b"PTSMLOG1".to_vec()) })
    }

    fn dump(&self, _slot: String) -> BoxFuture<'_, Result<String, SwapError>> {
        Box::pin(async { Ok("{}".to_owned()) })
    }

    fn audit(&self) -> Vec<AuditEntry> {
        vec![]
    }

    fn rollback(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        let none = || SwapError::NotFound("there is no earlier policy".to_owned());
        let outcome = self.change(&slot, expected, |history| history.pop().map(|_| ()).ok_or_else(none));
        Box::pin(async { outcome })
    }

    fn eject(&self, slot: String, expected: Option<u64>) -> BoxFuture<'_, Result<SlotState, SwapError>> {
        let outcome = self.change(&slot, expected, |history| {
            history.push(None);
            Ok(())
        });
        Box::pin(async { outcome })
    }
}

pub fn model_text() -> ModelText {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut shifted = 0x100..;
    let alphabet = (0..256).map(|byte| if printable(byte) { byte } else { shifted.next().unwrap() });
    let mut tokens: Vec<String> = alphabet.map(|c| char::from_u32(c).unwrap().to_string()).collect();
    tokens.extend(["<|im_start|>".to_owned(), "<|im_end|>".to_owned()]);
    let template = "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}\
                    <|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}\
                    {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    ModelText::new(VocabularySource {
        model: "gpt2".into(),
        pre: "gpt-2".into(),
        token_types: [vec![1; 256], vec![3; 2]].concat(),
        tokens,
        eos: Some(IM_END),
        chat_template: Some(template.to_owned()),
        ..VocabularySource::default()
    })
    .unwrap()
}

pub fn state(fake: &Arc<Fake>, token: Option<&str>) -> ApiState {
    let service: Arc<dyn Service> = Arc::clone(fake) as _;
    ApiState::new(service, Arc::new(FakeAdmin::default()), token.map(str::to_owned))
}

pub fn app(fake: &Arc<Fake>) -> Router {
    let state = state(fake, None);
    let limits = ModelLimits { context_tokens: CONTEXT, vocab: VOCAB };
    assert!(state.set_model(ModelInfo { id: MODEL.into(), created: 1, limits }, model_text()));
    router(state, Routes::All)
}

/// The events of a whole answer: one token a byte.
pub fn says(text: impl AsRef<[u8]>, finish: Finish) -> Vec<Event> {
    let mut events: Vec<Event> = text.as_ref().iter().map(|&byte| token(byte)).collect();
    events.push(Event::Done(finish));
    events
}

pub fn token(byte: u8) -> Event {
    Event::Token { id: u32::from(byte), logprob: None }
}

/// A token with made-up log-probs, itself and `?` the most likely.
pub fn token_with_logprob(byte: u8) -> Event {
    Event::Token { id: u32::from(byte), logprob: Some(logprob(byte)) }
}

pub fn logprob(byte: u8) -> Logprob {
    let chosen = -f32::from(byte) / 256.0;
    Logprob { chosen, top: vec![(u32::from(byte), chosen), (u32::from(b'?'), f32::NEG_INFINITY)] }
}

pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    /// The error object, after checking that it has exactly OpenAI's four members.
    pub fn error(&self) -> Value {
        assert_eq!(self.headers["content-type"], "application/json");
        let error = self.json()["error"].clone();
        let mut keys: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["code", "message", "param", "type"]);
        assert!(error["message"].is_string() && error["type"].is_string(), "{error}");
        error
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The objects of a stream, after checking that it is framed well and ends in `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        assert_eq!(self.status, StatusCode::OK);
        assert_eq!(self.headers["content-type"], "text/event-stream");
        let mut frames: Vec<&str> = self.text().split_terminator("\n\n").collect();
        assert_eq!(frames.pop(), Some("data: [DONE]"));
        let data = frames.iter().filter(|frame| !frame.starts_with(':'));
        data.map(|frame| serde_json::from_str(frame.strip_prefix("data: ").unwrap()).unwrap()).collect()
    }
}

pub async fn send(app: &Router, mut request: HttpRequest<Body>) -> Answer {
    let peer = SocketAddr::from(([127, 0, 0, 1], 1234));
    if request.extensions().get::<ConnectInfo<SocketAddr>>().is_none() {
        request.extensions_mut().insert(ConnectInfo(peer));
    }
    let response = app.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    Answer { status: parts.status, headers: parts.headers, body: to_bytes(body, usize::MAX).await.unwrap() }
}

pub async fn get(app: &Router, path: &str) -> Answer {
    send(app, HttpRequest::get(path).header("host", "localhost").body(Body::empty()).unwrap()).await
}

pub async fn post_bytes(app: &Router, path: &str, body: impl Into<Body>) -> Answer {
    send(app, HttpRequest::post(path).body(body.into()).unwrap()).await
}

pub async fn post(app: &Router, path: &str, body: &Value) -> Answer {
    post_bytes(app, path, body.to_string()).await
}

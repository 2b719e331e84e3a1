//! Starts the real `pointsman` binary on a free loopback port and talks HTTP to it, as a client would.
//!
//! A [`Server`] ends its process when dropped, so that a failing test leaves nothing behind.
#![expect(clippy::expect_used, reason = "helpers of tests: a surprise is a failed test")]

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The binary that `cargo test --workspace` built beside this test.
///
/// # Panics
/// It is not there.
#[must_use]
pub fn binary() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    let path = test.parent().and_then(Path::parent).expect("a target folder").join("pointsman");
    assert!(path.is_file(), "{} is missing: run `cargo build` first", path.display());
    path
}

/// Runs the binary with these words to its end.
///
/// # Panics
/// It can not be started.
#[must_use]
pub fn run(words: &[&str]) -> Output {
    Command::new(binary()).args(words).stdin(Stdio::null()).output().expect("the binary starts")
}

/// A running server.
pub struct Server {
    process: Child,
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    agent: ureq::Agent,
}

/// An answer that is not a stream.
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The body, `Null` if it is not JSON.
    pub json: Value,
    /// The body as text.
    pub text: String,
    /// `Retry-After`, if sent.
    pub retry_after: Option<String>,
}

/// What came out of a stream, or of a plain request.
#[derive(Debug, PartialEq, Eq)]
pub struct Completion {
    /// The text.
    pub text: String,
    /// How it ended.
    pub finish: String,
}

impl Server {
    /// Starts `serve` on the default model with these flags and waits until it is ready.
    ///
    /// # Panics
    /// It does not become ready.
    #[must_use]
    pub fn start(flags: &[&str]) -> Self {
        let model = pointsman_golden::default_model();
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port();
        let log = File::create(std::env::temp_dir().join(format!("pointsman-e2e-{port}.log"))).expect("a log file");
        let process = Command::new(binary())
            .args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--threads", "2", "--kv-budget", "512MiB"])
            .args(["--model".as_ref(), model.as_os_str()])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the server starts");
        let settings =
            ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(Duration::from_secs(120)));
        let mut server = Self { process, url: format!("http://127.0.0.1:{port}"), agent: settings.build().into() };
        let end = Instant::now() + Duration::from_secs(60);
        while server.ready() != Some(true) {
            assert!(server.process.try_wait().expect("a status").is_none(), "the server ended before it was ready");
            assert!(Instant::now() < end, "the server is not ready after a minute");
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// Whether `/health/ready` says so; `None` if nothing answers.
    #[must_use]
    pub fn ready(&self) -> Option<bool> {
        self.agent.get(format!("{}/health/ready", self.url)).call().ok().map(|answer| answer.status().is_success())
    }

    /// Sends a request with a body of any kind.
    ///
    /// # Panics
    /// No answer comes.
    #[must_use]
    pub fn send(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Answer {
        let request = ureq::http::Request::builder().method(method).uri(format!("{}{path}", self.url));
        let request = request.header("content-type", kind).body(body.to_vec()).expect("a request");
        let mut answer = self.agent.run(request).expect("an answer");
        let retry_after =
            answer.headers().get("retry-after").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let text = answer.body_mut().read_to_string().expect("a text");
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status: answer.status().as_u16(), json, text, retry_after }
    }

    /// Posts JSON.
    #[must_use]
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        self.send("POST", path, "application/json", body.to_string().as_bytes())
    }

    /// Opens a stream of a completion; each item is the next frame's JSON. Dropping it closes the connection.
    ///
    /// # Panics
    /// The server refuses.
    pub fn stream(&self, path: &str, mut body: Value) -> impl Iterator<Item = Value> + use<> {
        body["stream"] = json!(true);
        let settings = ureq::Agent::config_builder().http_status_as_error(false).max_idle_connections(0);
        let agent: ureq::Agent = settings.build().into();
        let request = agent.post(format!("{}{path}", self.url)).header("content-type", "application/json");
        let answer = request.send(body.to_string()).expect("an answer");
        assert_eq!(answer.status().as_u16(), 200, "the stream is refused");
        let lines = BufReader::new(answer.into_body().into_reader()).lines();
        let frames = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        frames.take_while(|frame| frame != "[DONE]").map(|frame| serde_json::from_str(&frame).expect("JSON in a frame"))
    }

    /// Streams a completion to its end.
    ///
    /// # Panics
    /// The stream ends without a finish reason.
    #[must_use]
    pub fn completion(&self, body: &Value) -> Completion {
        let (mut text, mut finish) = (String::new(), None);
        for frame in self.stream("/v1/completions", body.clone()) {
            assert!(frame["error"].is_null(), "the stream failed: {frame}");
            let choice = &frame["choices"][0];
            text += choice["text"].as_str().unwrap_or_default();
            finish = choice["finish_reason"].as_str().map(str::to_owned).or(finish);
        }
        Completion { text, finish: finish.expect("a finish reason") }
    }

    /// Sends each body on a thread of its own, at most `at_once` at a time, and returns the completions in order.
    ///
    /// # Panics
    /// One of them fails.
    #[must_use]
    pub fn completions(&self, bodies: &[Value], at_once: usize) -> Vec<Completion> {
        let next = std::sync::atomic::AtomicUsize::new(0);
        let done = std::sync::Mutex::new(Vec::new());
        thread::scope(|scope| {
            for _ in 0..at_once {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        let Some(body) = bodies.get(at) else { return };
                        let completion = self.completion(body);
                        done.lock().expect("no panic").push((at, completion));
                    }
                });
            }
        });
        let mut done = done.into_inner().expect("no panic");
        done.sort_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, completion)| completion).collect()
    }

    /// The sum of a metric over its labels.
    ///
    /// # Panics
    /// There is no such metric.
    #[must_use]
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.send("GET", "/metrics", "text/plain", &[]).text;
        let of_name = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{', ',']));
        let values: Vec<f64> =
            text.lines().filter(of_name).filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
        assert!(!values.is_empty(), "no metric {name} in\n{text}");
        values.iter().sum()
    }

    /// Waits until no request runs or waits and all KV blocks are free.
    ///
    /// # Panics
    /// That does not happen within ten seconds.
    pub fn wait_idle(&self) {
        let end = Instant::now() + Duration::from_secs(10);
        let names = ["pointsman_requests_running", "pointsman_requests_waiting", "pointsman_kv_blocks_used"];
        while names.iter().any(|name| self.metric(name) != 0.0) {
            assert!(Instant::now() < end, "the server is not idle: {:?}", names.map(|name| self.metric(name)));
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        // SAFETY: the process is our child and has not been waited for, so that its id is still its own.
        unsafe { libc::kill(self.process.id().cast_signed(), libc::SIGTERM) };
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// It goes on for more than 30 seconds.
    pub fn wait(mut self) -> Option<i32> {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.process.try_wait().expect("a status") {
                return status.code();
            }
            assert!(Instant::now() < end, "the server does not end");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

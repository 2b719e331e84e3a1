//! Over a real connection: clients that leave, clients that read slowly, and the end of the server.

use std::sync::Arc;
use std::time::Duration;

use pointsman_api::serve;
use pointsman_engine::output::Finish;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::fake::{Fake, Script, app, says};

struct Server {
    address: std::net::SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

async fn start(fake: &Arc<Fake>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(serve(listener, app(fake), async {
        let _ = stopped.await;
    }));
    Server { address, stop, task }
}

async fn ask(server: &Server, body: &Value) -> TcpStream {
    let body = body.to_string();
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    connection
}

/// Waits for something that other tasks do, and fails when it does not happen.
async fn until(what: impl Fn() -> bool) {
    let polled = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), polled).await.unwrap();
}

#[tokio::test]
async fn leaving_a_stream_cancels_the_request() {
    let mut events = says("abc", Finish::Length);
    events.pop();
    let fake = Fake::new(Script::Hang(events));
    let server = start(&fake).await;
    let mut connection = ask(&server, &json!({"prompt": "hi", "stream": true})).await;
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains("\"text\":\"c\"") {
        assert_ne!(connection.read_buf(&mut read).await.unwrap(), 0);
    }
    assert_eq!(fake.cancelled(), 0);
    drop(connection);
    until(|| fake.cancelled() == 1).await;
}

#[tokio::test]
async fn leaving_before_a_plain_answer_cancels_the_request() {
    let fake = Fake::new(Script::Hang(vec![]));
    let server = start(&fake).await;
    let connection = ask(&server, &json!({"prompt": "hi"})).await;
    until(|| !fake.requests.lock().unwrap().is_empty()).await;
    assert_eq!(fake.cancelled(), 0);
    drop(connection);
    until(|| fake.cancelled() == 1).await;
}

/// The text of a stream's chunks, and whether it ended in `[DONE]`.
fn text_of(read: &str) -> (String, bool) {
    let data = read.lines().filter_map(|line| line.strip_prefix("data: "));
    let (chunks, done): (Vec<_>, Vec<_>) = data.partition(|line| line.starts_with('{'));
    let chunks = chunks.into_iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    (chunks.map(|chunk| chunk["choices"][0]["text"].as_str().unwrap().to_owned()).collect(), done == ["[DONE]"])
}

#[tokio::test]
async fn a_slow_reader_misses_nothing_even_when_the_server_shuts_down() {
    // Some 4 MB of chunks: more than the buffers of a connection hold, so the server has to wait for the reader.
    let text = "0123456789".repeat(2000);
    let fake = Fake::new(Script::Play(says(&text, Finish::Length)));
    let server = start(&fake).await;
    let mut connection = ask(&server, &json!({"prompt": "hi", "stream": true})).await;
    let mut read = vec![0];
    connection.read_exact(&mut read).await.unwrap();
    server.stop.send(()).unwrap();
    until(|| std::net::TcpStream::connect(server.address).is_err()).await;
    assert_eq!(fake.cancelled(), 0);
    assert!(!server.task.is_finished());
    connection.read_to_end(&mut read).await.unwrap();
    assert_eq!(text_of(&String::from_utf8(read).unwrap()), (text, true));
    timeout(Duration::from_secs(30), server.task).await.unwrap().unwrap().unwrap();
}

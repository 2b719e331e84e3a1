//! What a decision costs: `route-jsq` through Wasm and the builtin, in nanoseconds a call.
//!
//! `cargo run --release -p pointsman-policy --example call_cost [POLICY.wasm]`. Every figure is over many batches: minimum, median
//! and 99th percentile of the batches' means. On a busy machine the minimum is the one that repeats.
#![expect(clippy::expect_used, reason = "a measurement that can not be made has nothing else to say")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_engine::builtin::Builtin;
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Pick, RoutePolicy};
use pointsman_engine::snapshot::{ChainView, RouteEvent, Snapshot};
use pointsman_policy::{Artifact, DecisionLog, Guard, PolicyHost, RouteSlot};

const BATCHES: usize = 400;

fn main() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/dist/route-jsq.wasm");
    let path = std::env::args_os().nth(1).map_or(shipped, Into::into);
    let upload = std::fs::read(&path).expect("the policy's file can be read");
    let artifact = Artifact::new(&upload).expect("the file is a component");
    println!("{:<38} {:>10} {:>10} {:>10}", "ns a call", "min", "median", "p99");

    let host = PolicyHost::new().expect("the host starts");
    for chains in [2, 512] {
        let mut slot = RouteSlot::default();
        drop(slot.swap_in(host.prepare(&artifact, "").expect("the policy passes its trial"), Guard::default()));
        measure_policy(&format!("wasm, {chains} chains"), chains, &mut slot);
        let (tap, log) = DecisionLog::start(0).expect("the recorder starts");
        let mut recorded = RouteSlot::new(tap, Arc::default());
        drop(recorded.swap_in(host.prepare(&artifact, "").expect("the policy passes its trial"), Guard::default()));
        measure_policy(&format!("recorded, {chains} chains"), chains, &mut recorded);
        drop(log);
        measure_policy(&format!("builtin, {chains} chains"), chains, &mut Builtin::default());
        let view = view(chains);
        measure(&format!("instantiate + init, {chains} chains"), 20, || slot.init(&view).expect("init succeeds"));
    }
    measure("prepare, compiled before", 20, || drop(black_box(host.prepare(&artifact, ""))));
    let mut times = Vec::new();
    for _ in 0..10 {
        let start = Instant::now();
        drop(black_box(PolicyHost::new().expect("the host starts").prepare(&artifact, "")));
        times.push(start.elapsed());
    }
    report(&format!("prepare, {} bytes, first time", upload.len()), 1, times);
}

fn measure_policy(what: &str, chains: u32, policy: &mut impl RoutePolicy) {
    policy.init(&view(chains)).expect("init succeeds");
    let (now, deadline) = (Micros(5), Micros(0));
    let (id, session, hints) = (RequestId(1), 0, 0);
    let ask = Pick { id, seq: 10, now, rnd: 7, tenant: 0, class: 0, prompt: 3, reserve: 9, deadline, session, hints };
    measure(&format!("pick, {what}"), 1000, || drop(black_box(policy.pick(black_box(&ask), &[]))));
    let last = ChainId(chains - 1);
    let events = [
        RouteEvent::Busy(last, 3),
        RouteEvent::FreeTokens(last, 500),
        RouteEvent::Queued(0),
        RouteEvent::Service(last, Micros(9)),
    ];
    measure(&format!("apply of 4 events, {what}"), 1000, || drop(black_box(policy.apply(11, black_box(&events)))));
}

/// All chains have room, so that the whole table is scanned.
fn view(chains: u32) -> Snapshot {
    let chain = |id| ChainView {
        id: ChainId(id),
        capacity: 8,
        busy: 1 + id % 5,
        free_tokens: 1000,
        open: true,
        service: Micros(1000),
    };
    Snapshot { epoch: 0, seq: 10, chains: (0..chains).map(chain).collect(), queued: 0 }
}

fn measure(what: &str, calls: u32, mut call: impl FnMut()) {
    let mut batch = || {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed()
    };
    batch();
    report(what, calls, (0..BATCHES).map(|_| batch()).collect());
}

fn report(what: &str, calls: u32, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos() as f64 / f64::from(calls);
    println!("{what:<38} {:>10.0} {:>10.0} {:>10.0}", at(0.0), at(0.5), at(0.99));
}

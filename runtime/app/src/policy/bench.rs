//! `pointsman policy bench`: what a decision costs through WebAssembly, recorded or not, and natively.
//!
//! Every figure in nanoseconds is over many batches: minimum, median and 99th percentile of the batches' means. On a busy machine the
//! minimum is the one that repeats. Fuel repeats exactly.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_engine::builtin::Builtin;
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Overlap, Pick, Pull, RoutePolicy, Waiting};
use pointsman_engine::snapshot::{ChainView, RouteEvent, Snapshot};
use pointsman_engine::window::{Kind, WindowPolicy};
use pointsman_policy::exam::world::World;
use pointsman_policy::exam::{scenes, windows};
use pointsman_policy::limits::{FUEL_PER_WORD, HOT_FUEL, PLACE_FUEL};
use pointsman_policy::place::Planner;
use pointsman_policy::{Artifact, DecisionLog, Guard, PolicyHost, PolicySlot, SlotKind, Tap};
use serde_json::{Value, json};

use crate::config::policy_host;
use crate::policies::{Registry, source};

/// Batches of a row; fewer when they take longer than [`ROW_TIME`].
const BATCHES: usize = 200;
const BATCHES_MIN: usize = 10;
const ROW_TIME: Duration = Duration::from_millis(500);
const CHAINS: [u32; 3] = [2, 64, 512];

/// Measures a component, or a policy that ships.
pub(super) fn bench(policy: &str, config: &str, as_json: bool) -> anyhow::Result<()> {
    let (_, artifact) = Registry::default().find(source(policy))?;
    let host = policy_host()?;
    let mut table = Table::begin(as_json);
    for slot in artifact.slots() {
        let subject = Subject { host: &host, artifact: &artifact, slot: *slot, config };
        match slot.window() {
            _ if *slot == SlotKind::Place => {
                subject.place(&mut table)?;
                continue;
            }
            None => subject.route(&mut table)?,
            Some(kind) => subject.windows(&mut table, kind)?,
        }
        subject.swap(&mut table)?;
    }
    table.end();
    Ok(())
}

/// A policy in one of its slots.
struct Subject<'a> {
    host: &'a PolicyHost,
    artifact: &'a Artifact,
    slot: SlotKind,
    config: &'a str,
}

impl Subject<'_> {
    fn in_charge(&self, tap: Tap) -> anyhow::Result<PolicySlot> {
        let mut slot = PolicySlot::new(self.slot, tap, Arc::default());
        drop(slot.swap_in(self.host.prepare(self.slot, self.artifact, self.config)?, Guard::default()));
        Ok(slot)
    }

    fn route(&self, table: &mut Table) -> anyhow::Result<()> {
        for chains in CHAINS {
            calls(table, "wasm", chains, &mut self.in_charge(Tap::default())?, PolicySlot::fuel_used);
            let (tap, log) = DecisionLog::start(0)?;
            calls(table, "wasm, recorded", chains, &mut self.in_charge(tap)?, PolicySlot::fuel_used);
            log.sync();
            calls(table, "native builtin", chains, &mut Builtin::default(), |_| 0);
        }
        Ok(())
    }

    fn windows(&self, table: &mut Table, kind: Kind) -> anyhow::Result<()> {
        for entries in [2, 16, 64, 256].into_iter().filter(|entries| *entries <= kind.entries_max()) {
            let (ask, window) = windows::sized(&mut World::new(7, 1), kind, entries as u32);
            table.budget = HOT_FUEL + FUEL_PER_WORD * window.len() as u64;
            let name = |who: &str| format!("{}, {entries} in the window, {who}", kind.name());
            let mut measure = |who: &str, slot: &mut PolicySlot| {
                let mut answer = Vec::new();
                table.measure(&name(who), 100, BATCHES, || {
                    if WindowPolicy::wants_snapshot(slot) {
                        drop(WindowPolicy::init(slot, &view(1)));
                    }
                    answer.clear();
                    drop(black_box(WindowPolicy::ask(slot, black_box(&ask), &window, &mut answer)));
                    slot.fuel_used()
                });
            };
            measure("wasm", &mut self.in_charge(Tap::default())?);
            let (tap, log) = DecisionLog::start(0)?;
            measure("wasm, recorded", &mut self.in_charge(tap)?);
            log.sync();
            measure("native builtin", &mut PolicySlot::new(self.slot, Tap::default(), Arc::default()));
        }
        Ok(())
    }

    /// Proposals for the first fleets of some sizes.
    fn place(&self, table: &mut Table) -> anyhow::Result<()> {
        table.budget = PLACE_FUEL;
        for servers in [4, 16, 64] {
            let candidate = self.host.prepare(self.slot, self.artifact, self.config)?;
            let mut scenes = (0..10_000).map(|seed| scenes::scene(seed, candidate.descriptor().needs_links));
            let Some(scene) = scenes.find(|scene| scene.fleet.servers.len() == servers) else { continue };
            let mut planner = Planner::new(candidate)?;
            table.measure(&format!("propose, {servers} servers, wasm"), 1, BATCHES, || {
                drop(black_box(planner.propose(black_box(&scene))));
                planner.fuel_used()
            });
        }
        Ok(())
    }

    /// What a swap costs the engine: the old one's save, the exchange, the new one's init.
    fn swap(&self, table: &mut Table) -> anyhow::Result<()> {
        let mut candidates = Vec::new();
        table.measure("prepare, compiled before", 1, BATCHES, || {
            candidates.extend(self.host.prepare(self.slot, self.artifact, self.config));
            0
        });
        let (mut slot, view) = (self.in_charge(Tap::default())?, view(512));
        let (mut times, mut retired) = (Vec::new(), Vec::new());
        for candidate in candidates {
            let start = Instant::now();
            retired.push(slot.swap_in(candidate, Guard::default()));
            let started = RoutePolicy::init(&mut slot, black_box(&view));
            times.push(start.elapsed());
            started.map_err(|fault| anyhow::anyhow!("{fault}"))?;
        }
        table.row("swap in and init, 512 chains", 1, times, 0);
        Ok(())
    }
}

/// Measures each hot call. All chains have room, so that a whole table is scanned.
fn calls<P: RoutePolicy>(table: &mut Table, who: &str, chains: u32, policy: &mut P, fuel: fn(&P) -> u64) {
    let view = view(chains);
    if policy.init(&view).is_err() {
        return;
    }
    let name = |call: &str| format!("{call}, {chains} chains, {who}");
    let (now, deadline, last) = (Micros(5), Micros(0), ChainId(chains - 1));
    let (id, session, hints) = (RequestId(1), 0, 0);
    let ask = Pick { id, seq: 10, now, rnd: 7, tenant: 0, class: 0, prompt: 3, reserve: 9, deadline, session, hints };
    let held = [Overlap { chain: ChainId(0), tokens: 2 }, Overlap { chain: last, tokens: 1 }];
    let overlap: &[Overlap] = if policy.wants_overlap() { &held[..chains.min(2) as usize] } else { &[] };
    // Recording starts a policy afresh now and then, which is part of what it costs.
    let renew = |policy: &mut P| {
        if policy.wants_snapshot() {
            drop(policy.init(&view));
        }
    };
    table.measure(&name("pick"), 500, BATCHES, || {
        renew(policy);
        drop(black_box(policy.pick(black_box(&ask), overlap)));
        fuel(policy)
    });
    let waiting = Waiting { id, tenant: 0, class: 0, prompt: 3, reserve: 2_000, waited: Micros(1) };
    let window = vec![waiting; 64];
    let pull = Pull { seq: 10, now, rnd: 7, chain: last };
    table.measure(&name("pull of 64"), 100, BATCHES, || {
        renew(policy);
        drop(black_box(policy.pull(black_box(&pull), &window)));
        fuel(policy)
    });
    let events = [
        RouteEvent::Busy(last, 3),
        RouteEvent::FreeTokens(last, 500),
        RouteEvent::Queued(0),
        RouteEvent::Service(last, Micros(9)),
    ];
    renew(policy);
    table.measure(&name("apply of 4"), 500, BATCHES, || {
        drop(black_box(policy.apply(11, black_box(&events))));
        fuel(policy)
    });
}

fn view(chains: u32) -> Snapshot {
    let chain = |id| ChainView {
        id: ChainId(id),
        capacity: 8,
        busy: 1 + id % 5,
        free_tokens: 1000,
        open: true,
        service: Micros(1000 + u64::from(id)),
    };
    Snapshot { epoch: 0, seq: 10, chains: (0..chains).map(chain).collect(), queued: 0 }
}

/// Rows as they come, or all of them as JSON at the end.
struct Table {
    as_json: bool,
    /// Fuel that the calls of the next rows may use.
    budget: u64,
    rows: Vec<Value>,
}

impl Table {
    fn begin(as_json: bool) -> Self {
        if !as_json {
            println!("{:<42} {:>9} {:>9} {:>9} {:>9} {:>8}", "ns a call", "min", "median", "p99", "fuel", "budget");
        }
        Self { as_json, budget: HOT_FUEL, rows: Vec::new() }
    }

    /// Times up to `batches` of so many calls; a call answers the fuel that it took.
    fn measure(&mut self, what: &str, calls: u32, batches: usize, mut call: impl FnMut() -> u64) {
        let mut fuel = call();
        let (began, mut times) = (Instant::now(), Vec::new());
        while times.len() < batches && (times.len() < BATCHES_MIN || began.elapsed() < ROW_TIME) {
            let start = Instant::now();
            (0..calls).for_each(|_| fuel = call());
            times.push(start.elapsed());
        }
        self.row(what, calls, times, fuel);
    }

    fn row(&mut self, what: &str, calls: u32, mut times: Vec<Duration>, fuel: u64) {
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_nanos() as f64 / f64::from(calls);
        let (min, median, p99) = (at(0.0), at(0.5), at(0.99));
        if self.as_json {
            self.rows.push(json!({ "what": what, "min_ns": min, "median_ns": median, "p99_ns": p99, "fuel": fuel }));
            return;
        }
        let share =
            if fuel == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * fuel as f64 / self.budget as f64) };
        println!("{what:<42} {min:>9.0} {median:>9.0} {p99:>9.0} {fuel:>9} {share:>8}");
    }

    fn end(self) {
        if self.as_json {
            println!("{}", Value::from(self.rows));
        }
    }
}

//! The SDK, the WIT file and the table of events say the same.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly in its helpers too")]

use pointsman_sdk::testing::{Harness, cluster, request, take_logs, waiting};
use pointsman_sdk::{
    Chain, ChainId, Cluster, Decision, Event, InitError, Level, Policy, Pull, Request, RoutePolicy, Saved, Waiting,
    log, no_knobs,
};
use sha2::{Digest, Sha256};

const WIT: &str = include_str!("../../wit/policy/policy.wit");
const EVENTS: &str = include_str!("../../wit/events.md");
const BINDINGS: &str = include_str!("../src/bindings/mod.rs");

/// Takes the first chain that fits, and notes what it is told.
struct Probe {
    events: Vec<Event>,
    restored: Vec<u8>,
}

impl Policy for Probe {
    const NAME: &str = "probe";
    const VERSION: &str = "0";
    const STATE_SCHEMA: &str = "probe-1";

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config)?;
        Ok(Self { events: Vec::new(), restored: Vec::new() })
    }

    fn restore(&mut self, schema: &str, bytes: &[u8]) {
        if schema == Self::STATE_SCHEMA {
            self.restored = bytes.to_vec();
        }
    }

    fn save(&self) -> Option<Vec<u8>> {
        let told = u8::try_from(self.events.len()).unwrap();
        Some([&[told], self.restored.as_slice()].concat())
    }
}

impl RoutePolicy for Probe {
    fn on_event(&mut self, event: Event, _cluster: &Cluster) {
        self.events.push(event);
        log(Level::Info, "told");
    }

    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        let fitting = cluster.chains().iter().find(|chain| chain.fits(ask.reserve));
        fitting.map_or(Decision::Queue, |chain| Decision::Dispatch(chain.id()))
    }
}

fn probe(chains: &[(u32, u32)]) -> Harness<Probe> {
    Harness::new("", cluster(chains)).unwrap()
}

#[test]
fn bindings_were_generated_from_this_wit_file() {
    let actual: String = Sha256::digest(WIT).iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(BINDINGS.contains(&actual), "policy.wit has sha256 {actual}: regenerate as src/bindings/mod.rs says");
}

/// What `events.md` says of a slot.
fn section(slot: &str) -> &'static str {
    let (_, rest) = EVENTS.split_once(&format!("# Events of the `{slot}` slot")).unwrap();
    rest.split_once("\n# ").map_or(rest, |(section, _)| section)
}

#[test]
fn every_kind_in_the_table_is_known_and_no_other() {
    let documented: Vec<u64> =
        section("route").lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok()).collect();
    for kind in 0..=255 {
        let mut policy = probe(&[(4, 100)]);
        policy.driver().apply(1, &[kind << 56, 1]);
        let told = policy.save().unwrap().bytes[0] == 1;
        assert_eq!(told, documented.contains(&kind), "kind {kind}");
    }
}

#[test]
fn events_change_the_view_before_the_policy_is_told() {
    let mut policy = probe(&[(2, 100), (2, 100)]);
    assert_eq!(policy.pick(&request(100)), Decision::Dispatch(ChainId(0)));
    policy.busy(0, 2);
    assert_eq!(policy.pick(&request(100)), Decision::Dispatch(ChainId(1)), "chain 0 is full");
    policy.event(Event::FreeTokens(ChainId(1), 99));
    assert_eq!(policy.pick(&request(100)), Decision::Queue, "chain 1 has too few tokens");
    policy.busy(0, 1);
    policy.event(Event::Open(ChainId(0), false));
    assert_eq!(policy.pick(&request(100)), Decision::Queue, "chain 0 drains");
    policy.event(Event::Open(ChainId(0), true));
    assert_eq!(policy.pick(&request(100)), Decision::Dispatch(ChainId(0)));
    policy.event(Event::Service(ChainId(1), u64::MAX));
    policy.event(Event::Queued(7));
    assert_eq!(policy.cluster().chains()[1].service(), u64::MAX);
    assert_eq!((policy.cluster().queued(), policy.cluster().seq()), (7, 7));
    assert_eq!(take_logs().len(), 7);
}

#[test]
fn strange_events_are_passed_over() {
    let mut policy = probe(&[(2, 100)]);
    policy.busy(5, 1);
    policy.driver().apply(9, &[1 << 56]);
    assert_eq!(policy.save().unwrap(), Saved { schema: "probe-1".to_owned(), seq: 9, bytes: vec![0] });
    policy.driver().apply(10, &[1 << 56, u64::MAX]);
    assert_eq!(policy.cluster().chains()[0].busy(), u32::MAX, "a count over 32 bits saturates");
}

#[test]
fn best_fit_is_the_first_of_the_lowest_that_fit() {
    // 19 chains: groups of eight and a rest. Every third is full, every fifth has few tokens.
    let chain = |id: u32| {
        let tokens = if id.is_multiple_of(5) { 10 } else { 100 };
        let busy = if id.is_multiple_of(3) { 9 } else { 7 - id % 7 };
        Chain::new(ChainId(id), 9, tokens).with_state(busy, id != 13, 0)
    };
    for count in 0..=19 {
        let cluster = Cluster::new(1, 0, (0..count).map(chain).collect(), 0);
        for reserve in [1, 10, 11, 100, 101] {
            let plain = cluster.chains().iter().filter(|chain| chain.fits(reserve)).min_by_key(|chain| chain.busy());
            assert_eq!(cluster.best_fit(reserve, Chain::busy), plain, "{count} chains, {reserve} tokens");
        }
    }
}

#[test]
fn sparse_ids_are_found() {
    let chains = [3, 8, 9].map(|id| Chain::new(ChainId(id), 1, 10));
    let cluster = Cluster::new(1, 0, chains.to_vec(), 0);
    assert_eq!(cluster.chain(ChainId(8)).unwrap().id(), ChainId(8));
    assert!(cluster.chain(ChainId(1)).is_none());
}

const WINDOW: [Waiting; 2] = [
    Waiting { id: u64::MAX, tenant: 1, class: 2, prompt: 3, reserve: 4, waited: 5 },
    Waiting { id: 7, tenant: u32::MAX, class: 0, prompt: 9, reserve: u32::MAX, waited: u64::MAX },
];

/// Pulls the second request of [`WINDOW`], provided that the window is that.
struct Mirror;

impl Policy for Mirror {
    const NAME: &str = "mirror";
    const VERSION: &str = "0";

    fn init(_config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        Ok(Self)
    }
}

impl RoutePolicy for Mirror {
    fn pick(&mut self, ask: &Request, _cluster: &Cluster) -> Decision {
        Decision::Defer(ask.reserve)
    }

    fn pull(&mut self, _ask: &Pull, waiting: &[Waiting], _cluster: &Cluster) -> Option<usize> {
        (waiting == WINDOW).then_some(1)
    }
}

#[test]
fn the_window_arrives_as_it_was_sent() {
    let mut policy = Harness::<Mirror>::new("", cluster(&[])).unwrap();
    assert_eq!(policy.pull(0, &WINDOW), Some(1));
    assert_eq!(policy.pull(0, &WINDOW[..1]), None);
    assert_eq!(policy.pick(&request(u32::MAX)), Decision::Defer(u32::MAX));
}

#[test]
fn by_default_room_goes_to_the_first_that_fits() {
    let mut policy = probe(&[(1, 50)]);
    let window = [waiting(1, 51), waiting(2, 50), waiting(3, 1)];
    assert_eq!(policy.pull(0, &window), Some(1));
    assert_eq!(policy.pull(0, &window[..1]), None);
    assert_eq!(policy.pull(4, &window), None, "there is no chain 4");
}

#[test]
fn state_reaches_the_successor() {
    let hand_over = |schema: &str| {
        let saved = Saved { schema: schema.to_owned(), seq: 1, bytes: vec![42, 43] };
        Harness::<Probe>::succeed("{ }", cluster(&[]), &saved).unwrap().save().unwrap().bytes
    };
    assert_eq!(hand_over("probe-1"), [0, 42, 43]);
    assert_eq!(hand_over("other"), [0], "the policy refused a foreign schema");
}

#[test]
fn settings_are_refused_by_a_policy_that_has_none() {
    for fine in ["", " ", "{}", " { } \n"] {
        assert_eq!(no_knobs(fine), Ok(()));
    }
    for wrong in ["{", "{}}", "null", "{\"d\":2}"] {
        assert!(matches!(no_knobs(wrong), Err(InitError::BadConfig(_))), "{wrong}");
    }
}

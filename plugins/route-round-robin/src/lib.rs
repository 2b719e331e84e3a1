//! Round robin: each request goes to the next chain in turn, skipping those that can not take it.
//!
//! The turn is handed over to the next version of this policy on a swap, so that a swap does not favour chain 0.

use pointsman_sdk::{
    Candidate, Chain, ChainId, Cluster, Decision, InitError, Overlap, Policy, Request, RoutePolicy, no_knobs,
};

/// The policy. Its state is the chain whose turn is next: one more than the id that was last used.
pub struct RoundRobin {
    turn: u32,
}

impl RoundRobin {
    /// All chains, beginning with the one whose turn it is.
    fn in_turn<'a>(&self, cluster: &'a Cluster) -> impl Iterator<Item = &'a Chain> + use<'a> {
        let chains = cluster.chains();
        let (before, after) = chains.split_at(chains.partition_point(|chain| chain.id() < ChainId(self.turn)));
        after.iter().chain(before)
    }
}

impl Policy for RoundRobin {
    const NAME: &str = "route-round-robin";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    /// The next turn, four bytes, little-endian.
    const STATE_SCHEMA: &str = "route-round-robin/turn/1";

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        no_knobs(config).map(|()| Self { turn: 0 })
    }

    fn restore(&mut self, schema: &str, bytes: &[u8]) {
        if schema == Self::STATE_SCHEMA
            && let Ok(turn) = bytes.try_into()
        {
            // Any number will do: a turn past the last chain wraps to the first.
            self.turn = u32::from_le_bytes(turn);
        }
    }

    fn save(&self) -> Option<Vec<u8>> {
        Some(self.turn.to_le_bytes().to_vec())
    }
}

impl RoutePolicy for RoundRobin {
    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        // Whoever comes while others wait, waits behind them.
        if cluster.queued() > 0 {
            return Decision::Queue;
        }
        match self.in_turn(cluster).find(|chain| chain.fits(ask.reserve)) {
            Some(chain) => {
                self.turn = chain.id().0.wrapping_add(1);
                Decision::Dispatch(chain.id())
            }
            None => Decision::Queue,
        }
    }

    /// How far off each chain's turn is, of those that fit.
    fn trace(&self, ask: &Request, _overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        let turns = (0..).map(f64::from).zip(self.in_turn(cluster));
        let considered = turns.filter(|(_, chain)| cluster.queued() == 0 && chain.fits(ask.reserve));
        considered.map(|(score, chain)| Candidate { chain: chain.id(), score }).collect()
    }
}

pointsman_sdk::export_policy!(RoundRobin: route);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, cluster, request, waiting};
    use pointsman_sdk::{Event, Saved};

    fn round_robin(chains: &[(u32, u32)]) -> Harness<RoundRobin> {
        Harness::new("", cluster(chains)).unwrap()
    }

    fn picks(policy: &mut Harness<RoundRobin>, reserve: u32, times: usize) -> Vec<Option<u32>> {
        let mut pick = || match policy.pick(&request(reserve)) {
            Decision::Dispatch(chain) => Some(chain.0),
            _ => None,
        };
        (0..times).map(|_| pick()).collect()
    }

    #[test]
    fn takes_each_in_turn() {
        let mut policy = round_robin(&[(4, 100), (4, 100), (4, 100)]);
        assert_eq!(picks(&mut policy, 10, 5), [Some(0), Some(1), Some(2), Some(0), Some(1)]);
    }

    #[test]
    fn skips_what_can_not_take_it_and_goes_on_from_there() {
        let mut policy = round_robin(&[(4, 100), (4, 9), (4, 100), (4, 100)]);
        policy.event(Event::Open(ChainId(2), false));
        assert_eq!(picks(&mut policy, 10, 3), [Some(0), Some(3), Some(0)]);
        assert_eq!(picks(&mut policy, 9, 1), [Some(1)]);
        policy.busy(0, 4);
        policy.busy(3, 4);
        assert_eq!(picks(&mut policy, 10, 2), [None, None]);
    }

    #[test]
    fn the_lowest_score_is_the_next_in_turn() {
        let mut policy = round_robin(&[(4, 100), (4, 9), (4, 100)]);
        picks(&mut policy, 10, 1);
        let scores = policy.trace(&request(10), &[]);
        let expected = [(2, 1.0), (0, 2.0)].map(|(chain, score)| Candidate { chain: ChainId(chain), score });
        assert_eq!(scores, expected);
        assert_eq!(picks(&mut policy, 10, 1), [Some(2)]);
    }

    #[test]
    fn newcomers_wait_behind_those_who_wait() {
        let mut policy = round_robin(&[(4, 100)]);
        policy.event(Event::Queued(1));
        assert_eq!(picks(&mut policy, 10, 1), [None]);
        assert_eq!(policy.pull(0, &[waiting(1, 101), waiting(2, 10)]), Some(1));
    }

    #[test]
    fn the_turn_survives_a_swap() {
        let mut old = round_robin(&[(4, 100), (4, 100), (4, 100)]);
        picks(&mut old, 10, 2);
        let saved = old.save().unwrap();
        let snapshot = || cluster(&[(4, 100), (4, 100), (4, 100)]);
        let successor = |saved: &Saved| Harness::<RoundRobin>::succeed("{}", snapshot(), saved).unwrap();
        assert_eq!(picks(&mut successor(&saved), 10, 1), [Some(2)]);

        let foreign = Saved { schema: "other".to_owned(), ..saved.clone() };
        assert_eq!(picks(&mut successor(&foreign), 10, 1), [Some(0)]);
        let damaged = Saved { bytes: vec![2], ..saved.clone() };
        assert_eq!(picks(&mut successor(&damaged), 10, 1), [Some(0)]);
        let absurd = Saved { bytes: vec![0xff; 4], ..saved };
        assert_eq!(picks(&mut successor(&absurd), 10, 2), [Some(0), Some(1)]);
    }

    #[test]
    fn has_no_settings() {
        assert!(Harness::<RoundRobin>::new("{\"start\": 2}", cluster(&[])).is_err());
    }
}

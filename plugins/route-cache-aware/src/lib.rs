//! Cache aware: a request goes where the least of its prompt has to be computed, unless that chain runs many more jobs
//! than others.
//!
//! Prompt tokens to compute and running jobs are put on one scale: each running job counts as `load_tokens` tokens. A
//! bound stands above the sum: a chain that runs more than `imbalance` jobs more than the least busy one that fits is
//! not considered, however much of the prompt it holds, so that one popular prompt can not pile all work on one chain.

use pointsman_sdk::{Candidate, Chain, Cluster, Decision, InitError, Inputs, Overlap, Request, RoutePolicy, knobs};

/// The policy. It needs no memory of its own: the host knows what the chains hold.
pub struct CacheAware {
    /// Jobs that a chain may run more than the least busy one. At most 65,536.
    imbalance: u64,
    /// Prompt tokens that a running job counts as. At most 65,536.
    load_tokens: u64,
}

impl CacheAware {
    /// The chains that are considered, with their scores in tokens: below 2^32 + 2^48. `overlap` ascends by chain, as
    /// the chains do, so one walk along both finds each chain's part.
    fn scores<'a>(
        &self,
        ask: &Request,
        overlap: &'a [Overlap],
        cluster: &'a Cluster,
    ) -> impl Iterator<Item = (&'a Chain, u64)> + use<'a> {
        let &Self { imbalance, load_tokens } = self;
        let &Request { prompt, reserve, .. } = ask;
        // Whoever comes while others wait, waits behind them.
        let least = cluster.best_fit(reserve, Chain::busy).filter(|_| cluster.queued() == 0);
        let most = least.map_or(0, |chain| u64::from(chain.busy()) + imbalance);
        let chains = if least.is_some() { cluster.chains() } else { &[] };
        let mut rest = overlap.iter().peekable();
        chains.iter().filter(move |it| it.fits(reserve) && u64::from(it.busy()) <= most).map(move |chain| {
            while rest.next_if(|held| held.chain < chain.id()).is_some() {}
            let held = rest.next_if(|held| held.chain == chain.id()).map_or(0, |held| held.tokens);
            (chain, u64::from(prompt.saturating_sub(held)) + u64::from(chain.busy()) * load_tokens)
        })
    }
}

impl RoutePolicy for CacheAware {
    const NAME: &str = "route-cache-aware";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const NEEDS: Inputs = Inputs { prefix_overlap: true };

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        let knobs = knobs(config, &["imbalance", "load_tokens"])?;
        Ok(Self {
            imbalance: knobs.number("imbalance", 0..=65_536, 4)?,
            load_tokens: knobs.number("load_tokens", 0..=65_536, 64)?,
        })
    }

    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        self.pick_affine(ask, &[], cluster)
    }

    fn pick_affine(&mut self, ask: &Request, overlap: &[Overlap], cluster: &Cluster) -> Decision {
        // Of equals the first.
        let best = self.scores(ask, overlap, cluster).min_by_key(|&(_, score)| score);
        best.map_or(Decision::Queue, |(chain, _)| Decision::Dispatch(chain.id()))
    }

    /// Tokens; of equal scores the first named is taken.
    fn trace(&self, ask: &Request, overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        let scores = self.scores(ask, overlap, cluster);
        scores.map(|(chain, score)| Candidate { chain: chain.id(), score: score as f64 }).collect()
    }
}

pointsman_sdk::export_route!(CacheAware);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, cluster, request, waiting};
    use pointsman_sdk::{ChainId, Event};

    fn cache_aware(config: &str, chains: &[(u32, u32)]) -> Harness<CacheAware> {
        Harness::new(config, cluster(chains)).unwrap()
    }

    /// A request with a prompt of 1000 tokens.
    fn ask() -> Request {
        request(2000)
    }

    fn held(chains: &[(u32, u32)]) -> Vec<Overlap> {
        chains.iter().map(|&(chain, tokens)| Overlap { chain: ChainId(chain), tokens }).collect()
    }

    fn pick(policy: &mut Harness<CacheAware>, chains: &[(u32, u32)]) -> Option<u32> {
        match policy.pick_affine(&ask(), &held(chains)) {
            Decision::Dispatch(chain) => Some(chain.0),
            _ => None,
        }
    }

    #[test]
    fn goes_where_most_of_the_prompt_is_held() {
        let mut policy = cache_aware("", &[(8, 9000); 4]);
        assert_eq!(pick(&mut policy, &[(1, 512), (3, 768)]), Some(3));
        assert_eq!(pick(&mut policy, &[(1, 768), (3, 768)]), Some(1), "of equals the first");
        assert_eq!(pick(&mut policy, &[]), Some(0));
        assert_eq!(policy.pick(&ask()), Decision::Dispatch(ChainId(0)), "asked without overlap");
    }

    #[test]
    fn a_running_job_counts_as_tokens() {
        // By default 64 each: two jobs outweigh 127 tokens, not 129.
        let mut policy = cache_aware("{}", &[(8, 9000); 2]);
        policy.busy(1, 2);
        assert_eq!(pick(&mut policy, &[(1, 127)]), Some(0));
        assert_eq!(pick(&mut policy, &[(1, 128)]), Some(0), "of equals the first");
        assert_eq!(pick(&mut policy, &[(1, 129)]), Some(1));
        let mut policy = cache_aware("{\"load_tokens\": 0}", &[(8, 9000); 2]);
        policy.busy(1, 4);
        assert_eq!(pick(&mut policy, &[(1, 1)]), Some(1));
    }

    #[test]
    fn the_bound_on_load_stands_above_what_is_held() {
        let mut policy = cache_aware("", &[(16, 9000); 3]);
        policy.busy(0, 1);
        policy.busy(1, 5);
        policy.busy(2, 2);
        assert_eq!(pick(&mut policy, &[(1, 1000)]), Some(1), "four more than the least");
        policy.busy(1, 6);
        assert_eq!(pick(&mut policy, &[(1, 1000)]), Some(0), "five more");
        // A chain that can not take the request sets no bound.
        policy.event(Event::Open(ChainId(0), false));
        assert_eq!(pick(&mut policy, &[(1, 1000)]), Some(1));

        let mut policy = cache_aware("{\"imbalance\": 0}", &[(16, 9000); 3]);
        policy.busy(1, 1);
        assert_eq!(pick(&mut policy, &[(1, 1000), (2, 1)]), Some(2));
    }

    #[test]
    fn passes_over_chains_that_can_not_take_it() {
        let mut policy = cache_aware("", &[(8, 1999), (8, 9000), (0, 9000), (4, 9000), (8, 9000)]);
        policy.event(Event::Open(ChainId(1), false));
        policy.busy(3, 4);
        policy.busy(4, 7);
        let all = [(0, 1000), (1, 1000), (2, 1000), (3, 1000), (7, 1000)];
        assert_eq!(pick(&mut policy, &all), Some(4));
        policy.busy(4, 8);
        assert_eq!(pick(&mut policy, &all), None);
    }

    #[test]
    fn extremes_do_not_overflow() {
        let max = u32::MAX;
        let config = "{\"imbalance\": 65536, \"load_tokens\": 65536}";
        let mut policy = cache_aware(config, &[(max, max), (max, max)]);
        policy.busy(0, max - 1);
        policy.busy(1, max - 2);
        let ask = Request { prompt: max, ..request(max) };
        assert_eq!(policy.pick_affine(&ask, &held(&[(0, max)])), Decision::Dispatch(ChainId(0)));
        assert_eq!(policy.pick_affine(&ask, &held(&[(0, 65_535)])), Decision::Dispatch(ChainId(1)));
        // More held than there is, and chains that there are not.
        let short = Request { prompt: 1, ..ask };
        assert_eq!(policy.pick_affine(&short, &held(&[(0, max), (1, max), (2, max)])), Decision::Dispatch(ChainId(1)));
    }

    #[test]
    fn newcomers_wait_and_room_goes_to_the_first_that_fits() {
        let mut policy = cache_aware("", &[(4, 2000)]);
        policy.event(Event::Queued(1));
        assert_eq!(pick(&mut policy, &[(0, 1000)]), None);
        assert_eq!(policy.trace(&ask(), &[]), []);
        assert_eq!(policy.pull(0, &[waiting(1, 2001), waiting(2, 2000)]), Some(1));
    }

    #[test]
    fn the_lowest_score_is_the_chain_taken() {
        let mut policy = cache_aware("", &[(16, 9000); 4]);
        for (chain, jobs) in [(0, 1), (1, 3), (2, 2), (3, 6)] {
            policy.busy(chain, jobs);
        }
        let overlap = held(&[(1, 500), (3, 1000)]);
        let named: Vec<_> = policy.trace(&ask(), &overlap).iter().map(|it| (it.chain.0, it.score)).collect();
        assert_eq!(named, [(0, 1064.0), (1, 692.0), (2, 1128.0)]);
        assert_eq!(pick(&mut policy, &[(1, 500), (3, 1000)]), Some(1));
    }

    #[test]
    fn wrong_settings_are_refused_by_name() {
        let refused = |config: &str| match Harness::<CacheAware>::new(config, cluster(&[])) {
            Err(InitError::BadConfig(why)) => why,
            other => panic!("{config}: {:?}", other.map(|_| ())),
        };
        assert_eq!(refused("{\"bound\": 2}"), "unknown setting \"bound\"; there are: imbalance, load_tokens");
        let range = "must be a whole number from 0 to 65536";
        assert_eq!(refused("{\"imbalance\": 65537}"), format!("setting \"imbalance\" {range}"));
        assert_eq!(refused("{\"load_tokens\": true}"), format!("setting \"load_tokens\" {range}"));
    }
}

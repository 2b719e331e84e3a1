//! Cache aware: a request goes where the least of its prompt has to be computed, unless that chain runs many more jobs
//! than others.
//!
//! Prompt tokens to compute and running jobs are put on one scale: each running job counts as `load_tokens` tokens. A
//! bound stands above the sum: a chain that runs more than `imbalance` jobs more than the least busy one that fits is
//! not considered, however much of the prompt it holds, so that one popular prompt can not pile all work on one chain.

use pointsman_sdk::{
    Candidate, Chain, Cluster, Decision, InitError, Inputs, Overlap, Policy, Request, RoutePolicy, knobs,
};

/// The policy. It needs no memory of its own: the host knows what the chains hold.
pub struct CacheAware {
    /// Jobs that a chain may run more than the least busy one. At most 65,536.
    imbalance: u64,
    /// Prompt tokens that a running job counts as. At most 65,536.
    load_tokens: u64,
}

impl CacheAware {
    /// The chain that fits and runs the fewest jobs, and the most jobs that a chain may run to be considered.
    fn bound<'a>(&self, ask: &Request, cluster: &'a Cluster) -> Option<(&'a Chain, u64)> {
        // Whoever comes while others wait, waits behind them.
        if cluster.queued() > 0 {
            return None;
        }
        let least = cluster.best_fit(ask.reserve, Chain::busy)?;
        Some((least, u64::from(least.busy()) + self.imbalance))
    }

    /// In tokens: below 2^32 + 2^48.
    fn score(&self, ask: &Request, chain: &Chain, held: u32) -> u64 {
        u64::from(ask.prompt.saturating_sub(held)) + u64::from(chain.busy()) * self.load_tokens
    }

    /// The first of the chains with the smallest score. Of those that hold nothing of the prompt only one can be it:
    /// the first of the least busy ones, or, where running jobs do not count, the first that is considered.
    fn best<'a>(&self, ask: &Request, overlap: &[Overlap], cluster: &'a Cluster) -> Option<&'a Chain> {
        let (least, most) = self.bound(ask, cluster)?;
        let is_considered = |chain: &Chain| chain.fits(ask.reserve) && u64::from(chain.busy()) <= most;
        let mut best = least;
        if self.load_tokens == 0 {
            best = cluster.chains().iter().find(|chain| is_considered(chain))?;
        }
        // The lower id of equals.
        let mut lowest = (self.score(ask, best, 0), best.id());
        for held in overlap {
            if let Some(chain) = cluster.chain(held.chain).filter(|chain| is_considered(chain)) {
                let key = (self.score(ask, chain, held.tokens), chain.id());
                if key < lowest {
                    (best, lowest) = (chain, key);
                }
            }
        }
        Some(best)
    }
}

impl Policy for CacheAware {
    const NAME: &str = "route-cache-aware";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    const NEEDS: Inputs = Inputs { prefix_overlap: true, link_matrix: false };

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        let knobs = knobs(config, &["imbalance", "load_tokens"])?;
        Ok(Self {
            imbalance: knobs.number("imbalance", 0..=65_536, 4)?,
            load_tokens: knobs.number("load_tokens", 0..=65_536, 64)?,
        })
    }
}

impl RoutePolicy for CacheAware {
    fn pick(&mut self, ask: &Request, cluster: &Cluster) -> Decision {
        self.pick_affine(ask, &[], cluster)
    }

    fn pick_affine(&mut self, ask: &Request, overlap: &[Overlap], cluster: &Cluster) -> Decision {
        self.best(ask, overlap, cluster).map_or(Decision::Queue, |chain| Decision::Dispatch(chain.id()))
    }

    /// Tokens, of all that are considered; of equal scores the first named is taken.
    fn trace(&self, ask: &Request, overlap: &[Overlap], cluster: &Cluster) -> Vec<Candidate> {
        let Some((_, most)) = self.bound(ask, cluster) else { return Vec::new() };
        let considered = |chain: &&Chain| chain.fits(ask.reserve) && u64::from(chain.busy()) <= most;
        // `overlap` ascends by chain.
        let place = |id| overlap.binary_search_by_key(&id, |held| held.chain).ok();
        let held = |id| place(id).and_then(|at| overlap.get(at)).map_or(0, |held| held.tokens);
        let scored =
            |chain: &Chain| Candidate { chain: chain.id(), score: self.score(ask, chain, held(chain.id())) as f64 };
        cluster.chains().iter().filter(considered).map(scored).collect()
    }
}

pointsman_sdk::export_policy!(CacheAware: route);

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_sdk::testing::{Harness, cluster, history, request, sparse, waiting};
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

    #[test]
    fn the_chains_left_out_of_the_comparison_could_not_win() {
        for config in ["", "{\"load_tokens\": 0}", "{\"load_tokens\": 1, \"imbalance\": 1}", "{\"imbalance\": 0}"] {
            let mut policy = Harness::<CacheAware>::new(config, sparse(21)).unwrap();
            history(21, |rnd, event| match event {
                Some(event) => policy.event(event),
                None => {
                    let (reserve, prompt) = ((rnd % 100) as u32, (rnd >> 8 & 7) as u32 * 32);
                    let ask = Request { prompt, ..request(reserve) };
                    // Half of the chains are named or fewer, some of them with nothing.
                    let named = if rnd & 1 > 0 { rnd } else { rnd & rnd >> 7 & rnd >> 23 };
                    let holds = |&at: &u32| named >> (16 + at) & 1 > 0;
                    let part = |at: u32| (at * 3, (rnd >> at & 7) as u32 * 16);
                    let overlap = held(&(0..21).filter(holds).map(part).collect::<Vec<_>>());
                    let named = policy.trace(&ask, &overlap);
                    let best = named.iter().min_by(|a, b| a.score.total_cmp(&b.score));
                    let best = best.map_or(Decision::Queue, |best| Decision::Dispatch(best.chain));
                    assert_eq!(policy.pick_affine(&ask, &overlap), best, "{config} {overlap:?} {named:?}");
                }
            });
        }
    }
}

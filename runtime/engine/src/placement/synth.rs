//! Made-up questions for placement policies: a model, a workload and a fleet from a seed.
//!
//! Called by exams of policies and by tests. The same seed gives the same scene everywhere. Sizes and times are those
//! of the server-chain paper's evaluation (arXiv:2604.14993): BLOOM-176B in 4 bits, LLaMA-2-7B in 16, and slices of
//! 20, 40 and 80 GB; beside them small models on small servers. Fleets have 1 to 64 servers, alike or mixed, now and
//! then too small for the model or with some that take nothing new. One scene in eight has a value at the end of its
//! range. A fleet is always ascending by id, as [`super::check`] demands; the plan that it has at present may be any,
//! or one that fits no more.

use super::{Fleet, Health, Hop, Link, Model, Path, Server, ServerId, Workload};
use crate::ids::Micros;
use crate::random;

/// A question that a placement policy may be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scene {
    /// What is to be placed.
    pub model: Model,
    /// What is to be served.
    pub workload: Workload,
    /// Who is there. Its links are empty, see [`links`].
    pub fleet: Fleet,
}

/// A kind of model with its usual servers and load.
struct Kind {
    model: Model,
    /// Bytes of memory and nanoseconds of a block, of small, middle and large servers.
    sizes: [(u64, u64); 3],
    /// Requests in 1000 seconds, and tokens of the median prompt and answer.
    load: (u64, u32, u32),
}

const BLOOM: Kind = Kind {
    model: Model {
        blocks: 70,
        block_bytes: 1_320_000_000,
        slot_bytes: 110_000_000,
        head_bytes: 7_193_231_360,
        tail_bytes: 0,
    },
    sizes: [(20_000_000_000, 175_200_000), (40_000_000_000, 108_900_000), (80_000_000_000, 60_000_000)],
    load: (200, 2000, 20),
};

const LLAMA: Kind = Kind {
    model: Model {
        blocks: 32,
        block_bytes: 437_500_000,
        slot_bytes: 33_554_432,
        head_bytes: 262_144_000,
        tail_bytes: 262_152_192,
    },
    sizes: [(20_000_000_000, 46_700_000), (40_000_000_000, 23_900_000), (80_000_000_000, 13_000_000)],
    load: (2570, 2048, 28),
};

/// Small enough to be tried on one machine.
const SMALL: Kind = Kind {
    model: Model { blocks: 12, block_bytes: 7_000_000, slot_bytes: 400_000, head_bytes: 28_000_000, tail_bytes: 2_000 },
    sizes: [(60_000_000, 900_000), (120_000_000, 600_000), (400_000_000, 300_000)],
    load: (20_000, 300, 150),
};

/// Least and most milliseconds that a visit costs beside computing.
const VISIT_MS: (u64, u64) = (1, 1500);
/// Servers of the largest fleet.
const FLEET_MAX: u64 = 64;

/// The scene of this seed.
#[must_use]
pub fn scene(seed: u64) -> Scene {
    let mut draw = Draw { seed, drawn: 0 };
    let kind = [BLOOM, LLAMA, SMALL].into_iter().nth(draw.below(3) as usize).unwrap_or(SMALL);
    let mut model = draw.model(&kind);
    let mut workload = draw.workload(&kind);
    let mut servers = draw.servers(&kind);
    if draw.one_in(8) {
        draw.spoil(&mut model, &mut workload, &mut servers);
    }
    let mut fleet = Fleet { epoch: draw.below(1000), servers, links: Vec::new(), paths: Vec::new() };
    draw.present(&model, &mut fleet);
    Scene { model, workload, fleet }
}

/// Connections between all servers of a fleet, ordered by source and destination, for policies that ask for them: some
/// servers are near each other, some far.
#[must_use]
pub fn links(seed: u64, servers: &[Server]) -> Vec<Link> {
    // Numbers of another key, so that a scene is the same with links and without.
    let mut draw = Draw { seed: !seed, drawn: 0 };
    let mut links = Vec::new();
    for src in servers {
        for dst in servers.iter().filter(|dst| dst.id != src.id) {
            let (rtt, mbytes_per_s) = if draw.one_in(3) { (100, 12_500) } else { (draw.within(1_000, 100_000), 125) };
            links.push(Link { src: src.id, dst: dst.id, rtt: Micros(rtt), mbytes_per_s });
        }
    }
    links
}

/// Numbers from a seed, one after the other.
struct Draw {
    seed: u64,
    drawn: u64,
}

impl Draw {
    /// A number below `bound`; 0 if that is 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.drawn += 1;
        random::bits(self.seed, self.drawn).checked_rem(bound).unwrap_or(0)
    }

    fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// As [`Self::below`], of 32 bits.
    fn small(&mut self, bound: u32) -> u32 {
        self.below(bound.into()) as u32
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    /// A tenth more or less.
    fn about(&mut self, value: u64) -> u64 {
        value / 10 * 9 + self.below(value / 5 + 1)
    }

    fn model(&mut self, kind: &Kind) -> Model {
        let mut model = kind.model;
        if self.one_in(2) {
            // As in the paper, which counts nothing but blocks.
            (model.head_bytes, model.tail_bytes) = (0, 0);
        }
        if self.one_in(4) {
            model.blocks = 1 + self.small(2 * model.blocks);
        }
        if self.one_in(4) {
            // Another length is reserved.
            model.slot_bytes = self.within(model.slot_bytes / 8, model.slot_bytes * 8);
        }
        model
    }

    fn workload(&mut self, kind: &Kind) -> Workload {
        let (rate, prompt, output) = kind.load;
        let slo = self.one_in(4);
        Workload {
            rate_milli: self.within(rate / 10, rate * 4),
            prompt_p50: prompt,
            prompt_p95: prompt * 3,
            output_p50: output,
            output_p95: output * 4,
            load_max_milli: [700, 500, 900, 1000][self.below(4) as usize],
            ttft_slo: Micros(if slo { 2_000_000 } else { 0 }),
            tpot_slo: Micros(if slo { 100_000 } else { 0 }),
        }
    }

    fn servers(&mut self, kind: &Kind) -> Vec<Server> {
        // As many small fleets as large ones.
        let count = if self.one_in(2) { self.within(1, 8) } else { self.within(1, FLEET_MAX) };
        let (alike, scarce, troubled) = (self.one_in(3), self.one_in(8), self.one_in(4));
        let usual = self.below(3) as usize;
        let mut servers = Vec::new();
        let mut id = self.small(2);
        for _ in 0..count {
            let (mem_bytes, block_ns) = kind.sizes[if alike { usual } else { self.below(3) as usize }];
            let visit_ms = self.within(VISIT_MS.0, VISIT_MS.1);
            let state = match self.below(8) {
                0 if troubled => Health::Draining,
                1 if troubled => Health::Gone,
                _ => Health::Ready,
            };
            servers.push(Server {
                id: ServerId(id),
                state,
                mem_bytes: if scarce { mem_bytes / 8 } else { mem_bytes },
                visit_ns: visit_ms * 1_000_000,
                block_ns: self.about(block_ns),
                first_block: 0,
                blocks: 0,
            });
            id += 1 + if self.one_in(8) { self.small(100) } else { 0 };
        }
        servers
    }

    /// Puts a value at the end of its range somewhere.
    fn spoil(&mut self, model: &mut Model, workload: &mut Workload, servers: &mut [Server]) {
        let (wide, narrow) = if self.one_in(2) { (0, 0) } else { (u64::MAX, u32::MAX) };
        let what = self.below(11);
        // Only the last one's id can grow without disorder.
        let at = if what == 8 { servers.len().saturating_sub(1) } else { self.below(servers.len() as u64) as usize };
        let Some(server) = servers.get_mut(at) else { return };
        match what {
            0 => model.blocks = narrow,
            1 => model.block_bytes = wide,
            2 => model.slot_bytes = wide,
            3 => model.head_bytes = wide,
            4 => model.tail_bytes = wide,
            5 => (model.block_bytes, model.slot_bytes, model.blocks) = (0, 0, u32::MAX),
            6 => server.mem_bytes = wide,
            7 => (server.visit_ns, server.block_ns) = (wide, wide),
            8 => server.id = ServerId(u32::MAX),
            9 => workload.rate_milli = wide,
            _ => {
                (workload.prompt_p50, workload.prompt_p95) = (narrow, narrow);
                (workload.output_p50, workload.output_p95) = (narrow, narrow);
                workload.load_max_milli = narrow;
            }
        }
    }

    /// A present plan: none in half of the scenes, else ranges anywhere, with or without paths, which need not be
    /// right.
    fn present(&mut self, model: &Model, fleet: &mut Fleet) {
        if self.one_in(2) {
            return;
        }
        for server in &mut fleet.servers {
            server.first_block = self.small(model.blocks);
            server.blocks = self.small((model.blocks - server.first_block).min(64).saturating_add(1));
        }
        for _ in 0..self.below(4) {
            let mut path = Path { hops: Vec::new(), capacity: 1 + self.small(16), service_ns: self.below(1 << 36) };
            for server in &fleet.servers {
                if server.blocks > 0 && self.one_in(3) && path.hops.len() < crate::limits::CHAIN_STAGES_MAX {
                    let (first_block, blocks) = (server.first_block, server.blocks);
                    path.hops.push(Hop { server: server.id, first_block, blocks });
                }
            }
            fleet.paths.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenes() -> impl Iterator<Item = Scene> {
        (0..2000).map(scene)
    }

    #[test]
    fn the_same_seed_gives_the_same_scene() {
        assert_eq!(scene(7), scene(7));
        assert_ne!(scene(7), scene(8));
        let servers = scene(7).fleet.servers;
        assert_eq!(links(7, &servers), links(7, &servers));
    }

    #[test]
    fn a_fleet_is_in_order_and_within_its_limits() {
        for Scene { fleet, .. } in scenes() {
            assert!((1..=64).contains(&fleet.servers.len()));
            assert!(fleet.servers.windows(2).all(|pair| pair[0].id < pair[1].id), "{fleet:?}");
            assert!(fleet.paths.iter().all(|path| path.hops.len() <= 64));
        }
    }

    #[test]
    fn every_kind_of_trouble_comes_up() {
        let count = |wanted: &dyn Fn(&Scene) -> bool| scenes().filter(wanted).count();
        let ready = |it: &Server| it.state == Health::Ready;
        let memory = |it: &Scene| -> u128 {
            it.fleet.servers.iter().filter(|it| ready(it)).map(|it| u128::from(it.mem_bytes)).sum()
        };
        let needed = |it: &Scene| u128::from(it.model.blocks) * u128::from(it.model.block_bytes);
        assert!(count(&|it| it.model.blocks == 70) > 200);
        assert!(count(&|it| it.model.blocks == 32) > 200);
        assert!(count(&|it| memory(it) < needed(it)) > 200, "too small");
        assert!(count(&|it| memory(it) > 4 * needed(it)) > 200, "large enough");
        assert!(count(&|it| !it.fleet.servers.iter().all(ready)) > 200, "some not ready");
        assert!(count(&|it| !it.fleet.servers.iter().any(ready)) > 0, "none ready");
        assert!(count(&|it| it.fleet.servers.len() > 32) > 200);
        assert!(count(&|it| !it.fleet.paths.is_empty()) > 200);
        assert!(count(&|it| it.model.blocks == 0) > 0);
        assert!(count(&|it| it.model.blocks == u32::MAX) > 0);
        assert!(count(&|it| it.model.slot_bytes == u64::MAX) > 0);
        assert!(count(&|it| it.model.slot_bytes == 0) > 0);
        assert!(count(&|it| it.fleet.servers.iter().any(|it| it.id == ServerId(u32::MAX))) > 0);
    }

    #[test]
    fn links_join_all_pairs() {
        let servers = scene(3).fleet.servers;
        let pairs: Vec<_> = links(3, &servers).iter().map(|it| (it.src, it.dst)).collect();
        assert_eq!(pairs.len(), servers.len() * (servers.len() - 1));
        assert!(pairs.is_sorted());
    }
}

//! GCA: greedy cache allocation over placed ranges (Algorithm 2).
//!
//! Called through [`super::compose`] and by policies that placed ranges in their own way. A path goes from server to
//! server; whoever holds the next block computes from there to the end of its range, so what a hop costs depends on
//! the next block and the server only. The graph therefore has a node for each block at which some range ends, and no
//! cycle. The steps:
//!
//! 1. Each server's slots: how many blocks' keys and values fit beside its range, equation (3).
//! 2. The fastest path from the first block to behind the last one, over hops for which their server has the slots.
//! 3. It takes as many jobs as its tightest hop; their slots are taken from the servers.
//! 4. Hops for which their server has not slots enough any more are removed, and it begins again at 2.
//!
//! Each round removes a hop, so there is an end, and the paths' times do not decrease. The host's limits change this
//! in three ways. A path takes [`CAPACITY_MAX`] jobs at most; if its servers have slots for more, its tightest hop is
//! removed all the same, so no path comes twice. Once the fastest path has more than [`HOPS_MAX`] hops, the fastest
//! of those with fewer is taken from then on. And there are [`PATHS_MAX`] paths at most. Equal times go to the path
//! whose last hops begin at the lower block, then to the lower id.

use super::{CAPACITY_MAX, HOPS_MAX, PATHS_MAX, Placed};
use crate::place::{Hop, Model, Path};

/// Whether the server has room for its range, with the keys and values of `jobs` jobs for each block of it.
#[must_use]
pub fn fits(model: &Model, placed: &Placed, jobs: u32) -> bool {
    free_bytes(model, placed).is_some() && u64::from(slots(model, placed)) >= u64::from(placed.blocks) * u64::from(jobs)
}

/// Blocks whose keys and values fit beside this range with what belongs to the model's ends: equation (3), at most
/// what 32 bits count.
#[must_use]
pub fn slots(model: &Model, placed: &Placed) -> u32 {
    free_bytes(model, placed).map_or(0, |free| {
        let most = free.checked_div(model.slot_bytes.into()).unwrap_or(u128::MAX);
        u32::try_from(most).unwrap_or(u32::MAX)
    })
}

/// Bytes beside a range; none if it does not fit itself.
fn free_bytes(model: &Model, placed: &Placed) -> Option<u128> {
    let head = if placed.first_block == 0 { model.head_bytes } else { 0 };
    let tail = if placed.end() == model.blocks { model.tail_bytes } else { 0 };
    let held = u128::from(placed.blocks) * u128::from(model.block_bytes) + u128::from(head) + u128::from(tail);
    u128::from(placed.server.mem_bytes).checked_sub(held)
}

/// The paths through these ranges, the fastest first. `placed` names each server once.
///
/// `steps` is lowered by the hops that are looked at; the search ends with what it has when they are used up. That is
/// O(D J) a path for D different ends of ranges, times [`HOPS_MAX`] once paths become too long.
#[must_use]
pub fn gca(model: &Model, placed: &[Placed], steps: &mut u64) -> Vec<Path> {
    let mut graph = Graph::new(model, placed);
    spend(steps, graph.ends.len() * placed.len());
    let (mut paths, mut layers) = (Vec::new(), 1);
    while paths.len() < PATHS_MAX {
        let Some((way, time_ns)) = graph.fastest(layers, steps) else { break };
        if way.len() > HOPS_MAX {
            layers = HOPS_MAX + 1;
            continue;
        }
        paths.push(graph.reserve(&way, time_ns, steps));
    }
    paths
}

/// Whether so many steps were left.
fn spend(steps: &mut u64, count: usize) -> bool {
    let enough = *steps >= count as u64;
    *steps = steps.saturating_sub(count as u64);
    enough
}

/// One hop that is possible: from a node to another by way of a server.
#[derive(Clone, Copy)]
struct Edge {
    /// index among the ends
    to: usize,
    /// index among the placed
    at: usize,
    blocks: u32,
    time_ns: u128,
}

/// How a state of the search was reached: the time up to it, the state before, and the hop between.
#[derive(Clone, Copy)]
struct Reached {
    time_ns: u128,
    before: usize,
    edge: Option<(usize, usize)>,
}

struct Graph<'a> {
    placed: &'a [Placed],
    /// by server: slots that are left
    free: Vec<u32>,
    /// 0 and the ends of ranges, ascending
    ends: Vec<u32>,
    /// by node: the hops from there, by the servers' ids
    edges: Vec<Vec<Edge>>,
    /// whether the last node is the end of the model
    complete: bool,
}

impl<'a> Graph<'a> {
    fn new(model: &Model, placed: &'a [Placed]) -> Self {
        let free: Vec<u32> = placed.iter().map(|it| slots(model, it)).collect();
        let mut ends: Vec<u32> = placed.iter().map(Placed::end).chain([0]).collect();
        ends.sort_unstable();
        ends.dedup();
        let mut order: Vec<usize> = (0..placed.len()).collect();
        order.sort_by_key(|&at| placed[at].server.id);
        let nodes: Vec<usize> = placed.iter().map(|it| ends.partition_point(|&end| end < it.end())).collect();
        let hop = |at: usize, from: u32| {
            let it = &placed[at];
            let blocks = it.end().saturating_sub(from);
            let possible = it.first_block <= from && blocks > 0;
            possible.then(|| Edge { to: nodes[at], at, blocks, time_ns: it.visit_ns(blocks) })
        };
        let from = |&from: &u32| {
            let possible = order.iter().filter_map(|&at| hop(at, from));
            possible.filter(|edge| edge.blocks <= free[edge.at]).collect()
        };
        let edges = ends.iter().map(from).collect();
        let complete = model.blocks > 0 && ends.last() == Some(&model.blocks);
        Self { placed, free, ends, edges, complete }
    }

    /// The fastest way through the whole model, as (node, index of its hop), and its time. With one layer whatever its
    /// length; with more it has fewer hops than there are layers. A state is a layer, the hops so far, and a node.
    fn fastest(&self, layers: usize, steps: &mut u64) -> Option<(Vec<(usize, usize)>, u128)> {
        let nodes = self.ends.len();
        if !self.complete {
            return None;
        }
        let mut best: Vec<Option<Reached>> = vec![None; layers * nodes];
        best[0] = Some(Reached { time_ns: 0, before: 0, edge: None });
        for node in 0..nodes {
            for layer in 0..layers {
                let here = layer * nodes + node;
                let deeper = if layers == 1 { 0 } else { layer + 1 };
                let Some(reached) = best[here].filter(|_| deeper < layers) else { continue };
                if !spend(steps, self.edges[node].len() + 1) {
                    return None;
                }
                for (index, edge) in self.edges[node].iter().enumerate() {
                    let time_ns = reached.time_ns + edge.time_ns;
                    let there = &mut best[deeper * nodes + edge.to];
                    if there.is_none_or(|other| time_ns < other.time_ns) {
                        *there = Some(Reached { time_ns, before: here, edge: Some((node, index)) });
                    }
                }
            }
        }
        let done = (0..layers).filter_map(|layer| best[layer * nodes + nodes - 1]);
        let last = done.min_by_key(|reached| reached.time_ns)?;
        let (mut way, mut at) = (Vec::new(), last);
        while let Some(edge) = at.edge {
            way.push(edge);
            at = best[at.before]?;
        }
        way.reverse();
        Some((way, last.time_ns))
    }

    /// Gives a way as many jobs as it can take, and removes the hops that are not possible any more.
    fn reserve(&mut self, way: &[(usize, usize)], time_ns: u128, steps: &mut u64) -> Path {
        let jobs = |&(node, index): &(usize, usize)| {
            let edge = self.edges[node][index];
            self.free[edge.at] / edge.blocks.max(1)
        };
        // The first of the tightest; a way has one hop at least.
        let tightest = way.iter().copied().min_by_key(jobs).unwrap_or_default();
        let capacity = jobs(&tightest).min(CAPACITY_MAX);
        let mut hops = Vec::with_capacity(way.len());
        for &(node, index) in way {
            let edge = self.edges[node][index];
            self.free[edge.at] -= capacity * edge.blocks;
            let server = self.placed[edge.at].server.id;
            hops.push(Hop { server, first_block: self.ends[node], blocks: edge.blocks });
        }
        self.edges[tightest.0].remove(tightest.1);
        for edges in &mut self.edges {
            spend(steps, edges.len());
            edges.retain(|edge| edge.blocks <= self.free[edge.at]);
        }
        Path { hops, capacity, service_ns: u64::try_from(time_ns).unwrap_or(u64::MAX) }
    }
}

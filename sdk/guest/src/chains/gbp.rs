//! GBP-CR: greedy block placement with a reservation for every server (Algorithm 1).
//!
//! Called through [`super::compose`], and by policies that know their c. The steps, for c jobs:
//!
//! 1. Each server is asked how many blocks it can hold with the keys and values of c jobs for each: m(c), equation (6).
//! 2. The servers are sorted by their time for one block, t(c) / m(c), where t(c) is a visit and the computing of all
//!    m(c) blocks: equation (8). So fast servers come together.
//! 3. In this order they take the next blocks until the last block is taken: that is a chain, and the next one begins.
//!    The last server of a chain slides back, so that it still holds as many blocks as it can: its range overlaps with
//!    the one before, which gives paths more choice. (Trimming it to the blocks that are missing would leave it more
//!    room for keys and values and no such choice; the authors' simulator does that, the paper does not.)
//! 4. [`Until`] says when it is enough. Servers of a chain that can not be completed hold nothing.
//!
//! Where a server would hold an end of the model and has no room for what belongs to it, it is passed over and stands
//! for the next place. If so no chain is completed, it is tried once more with those servers at the ends that lose the
//! fewest blocks there. So a chain comes about whenever there is an order for one.

use std::cmp::Ordering;

use crate::place::{Model, Server};

/// When there are chains enough.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// When the chains together finish so many jobs a second, each one at a time: Algorithm 1 as it is printed. The
    /// other servers stay empty.
    Rate(f64),
    /// When no chain is left among the servers: what the paper's figures were made with.
    Exhausted,
}

/// A server and the blocks that it is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// As it is now.
    pub server: Server,
    /// The first block that it is to hold.
    pub first_block: u32,
    /// How many, at least 1.
    pub blocks: u32,
}

impl Placed {
    /// The first block behind its range.
    #[must_use]
    pub fn end(&self) -> u32 {
        self.first_block.saturating_add(self.blocks)
    }

    /// Nanoseconds of a visit that computes so many blocks here.
    #[must_use]
    pub fn visit_ns(&self, blocks: u32) -> u128 {
        u128::from(self.server.visit_ns) + u128::from(self.server.block_ns) * u128::from(blocks)
    }
}

/// The chains of a placement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Composition {
    /// Each server at most once, chain after chain, in the order of their blocks.
    pub placed: Vec<Placed>,
    /// For each chain the time of a job, in nanoseconds, in which the last server computes all its blocks, those too
    /// that the one before has computed: the true time is at most this (Lemma 1).
    pub times_ns: Vec<u128>,
    /// Jobs a second of all chains, each one at a time.
    pub per_s: f64,
}

/// How many blocks fit into so many bytes, each with the keys and values of `jobs` jobs: m(c), equation (6). At most
/// the model's blocks, and no more than can be reserved for in slots that are counted in 32 bits.
#[must_use]
pub fn room(model: &Model, bytes: u64, jobs: u32) -> u32 {
    let each = u128::from(model.block_bytes) + u128::from(model.slot_bytes) * u128::from(jobs);
    let most = u128::from(bytes).checked_div(each).unwrap_or(u128::MAX);
    u32::try_from(most).unwrap_or(u32::MAX).min(model.blocks).min(u32::MAX / jobs.max(1))
}

/// Makes chains of `servers`, each of which reserves for `jobs` jobs. None comes about where the model does not fit.
/// O(J log J) and one look at each server for each chain.
#[must_use]
pub fn gbp_cr(model: &Model, servers: &[Server], jobs: u32, until: Until) -> Composition {
    let mut pool: Vec<Room> = servers.iter().map(|server| Room::of(model, *server, jobs)).collect();
    pool.retain(|it| it.between > 0);
    pool.sort_by(Room::faster);
    let mut made = Composition::default();
    let mut used = vec![false; pool.len()];
    while let Some(chain) = next_chain(model, &pool, &used) {
        let time_ns: u128 = chain.iter().map(|(_, it)| it.visit_ns(it.blocks)).sum();
        made.per_s += 1e9 / time_ns.max(1) as f64;
        made.times_ns.push(time_ns);
        for (at, placed) in chain {
            used[at] = true;
            made.placed.push(placed);
        }
        if matches!(until, Until::Rate(need) if made.per_s >= need) {
            break;
        }
    }
    made
}

/// A server, and how many blocks it can hold by the place of its range in the model.
#[derive(Clone, Copy)]
struct Room {
    server: Server,
    /// neither the first block nor the last: m(c)
    between: u32,
    /// the first one
    first: u32,
    /// the last one
    last: u32,
    /// both
    whole: bool,
}

impl Room {
    fn of(model: &Model, server: Server, jobs: u32) -> Self {
        let beside = |bytes: u64| server.mem_bytes.checked_sub(bytes);
        let fits = |left: Option<u64>| left.map_or(0, |bytes| room(model, bytes, jobs));
        let (head, tail) = (beside(model.head_bytes), beside(model.tail_bytes));
        let both = head.and_then(|left| left.checked_sub(model.tail_bytes));
        Self {
            server,
            between: fits(beside(0)),
            first: fits(head),
            last: fits(tail),
            whole: fits(both) >= model.blocks,
        }
    }

    /// Compares the times for one block, exactly: one's t times the other's m is below 2^128, since t is below 2^96.
    fn faster(&self, other: &Self) -> Ordering {
        let placed = |it: &Self| Placed { server: it.server, first_block: 0, blocks: it.between };
        let time = |it: &Self| placed(it).visit_ns(it.between);
        let (one, two) = (time(self) * u128::from(other.between), time(other) * u128::from(self.between));
        one.cmp(&two).then(self.server.id.cmp(&other.server.id))
    }

    /// The range that it takes in a chain whose blocks before `next` are taken; none if it can not take that block.
    fn take(&self, blocks: u32, next: u32) -> Option<Placed> {
        let missing = blocks - next;
        let (first_block, blocks) = if self.whole {
            (0, blocks)
        } else if next == 0 {
            // Without room for both ends it does not reach the last block.
            (0, self.first.min(blocks - 1))
        } else if self.last >= missing {
            // Nor, from the last one, the first block.
            let held = self.last.min(blocks - 1);
            (blocks - held, held)
        } else {
            (next, self.between.min(missing - 1))
        };
        (blocks > 0).then_some(Placed { server: self.server, first_block, blocks })
    }
}

/// The next chain, of servers that are not used yet, each with its index. None if there is no order in which they
/// reach the last block.
fn next_chain(model: &Model, pool: &[Room], used: &[bool]) -> Option<Vec<(usize, Placed)>> {
    let start = used.iter().position(|used| !used)?;
    let open = || (start..pool.len()).filter(|&at| !used[at]);
    walk(model, pool, open()).or_else(|| {
        let (head, tail) = ends(model, pool, open())?;
        let between = open().filter(|&at| at != head && at != tail);
        walk(model, pool, [head].into_iter().chain(between).chain([tail]))
    })
}

/// Gives servers the next blocks, one after the other, until the last block is taken.
fn walk(model: &Model, pool: &[Room], order: impl Iterator<Item = usize>) -> Option<Vec<(usize, Placed)>> {
    let (mut chain, mut next) = (Vec::new(), 0);
    for at in order {
        if let Some(placed) = pool[at].take(model.blocks, next) {
            next = placed.end();
            chain.push((at, placed));
            if next == model.blocks {
                return Some(chain);
            }
        }
    }
    None
}

/// The two servers that lose the fewest blocks, together, by holding the first and the last one; none if the model does
/// not fit even so. Of equal ones the faster.
fn ends(model: &Model, pool: &[Room], open: impl Iterator<Item = usize> + Clone) -> Option<(usize, usize)> {
    let least = |room_at: fn(&Room) -> u32| {
        let able = open.clone().filter(|&at| room_at(&pool[at]) > 0);
        let mut losses: Vec<(u32, usize)> = able.map(|at| (pool[at].between - room_at(&pool[at]), at)).collect();
        losses.sort_unstable();
        losses.truncate(2);
        losses
    };
    let (heads, tails) = (least(|room| room.first), least(|room| room.last));
    let pairs = heads.iter().flat_map(|head| tails.iter().map(move |tail| (head, tail)));
    let different = pairs.filter(|(head, tail)| head.1 != tail.1);
    let (loss, head, tail) =
        different.map(|(head, tail)| (u64::from(head.0) + u64::from(tail.0), head.1, tail.1)).min()?;
    let sum: u64 = open.map(|at| u64::from(pool[at].between)).sum();
    (sum - loss >= u64::from(model.blocks)).then_some((head, tail))
}

//! An even split: servers stand together in groups, and each group is a pipeline that holds the model once.
//!
//! This is how serving engines split a model over the stages of a pipeline: equal counts of blocks, whatever the
//! servers' speed. The ready servers are gone through in the order of their ids, for a number of jobs that every
//! server reserves:
//!
//! 1. Each server is asked how many blocks it can hold, with the keys and values of so many jobs for each.
//! 2. As soon as a run of neighbours that are not in a group yet holds the model, the shortest such run that ends here
//!    becomes a group. No other choice of runs gives more groups.
//! 3. Within a group the counts of blocks differ by one at most; a server that can not hold so many holds what it can,
//!    and the others share the rest alike.
//! 4. A group is one path. It takes as many jobs as the server with the least room for keys and values.
//!
//! If no group comes about, the same is tried with one job less. With one job it is all or nothing: the model does
//! not fit.

use pointsman_sdk::{
    Cluster, Fleet, Health, Hop, InitError, Model, Outcome, Path, PlacePolicy, Placement, Policy, Range, Server,
    Workload, knobs,
};

/// Jobs for which every server reserves, unless the operator says otherwise.
const JOBS: u64 = 8;
/// Jobs of a path that the host allows.
const CAPACITY_MAX: u32 = 256;
/// Servers of a path that the host allows.
const HOPS_MAX: usize = 64;
/// Paths of a plan that the host allows.
const PATHS_MAX: usize = 512;

/// The policy: how many jobs it reserves for.
pub struct Even {
    jobs: u32,
}

impl Policy for Even {
    const NAME: &str = "place-even";
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    fn init(config: &str, _cluster: &Cluster) -> Result<Self, InitError> {
        let jobs = knobs(config, &["jobs"])?.number("jobs", 1..=u64::from(CAPACITY_MAX), JOBS)?;
        Ok(Self { jobs: jobs as u32 })
    }

    fn dump(&self) -> String {
        format!("{{\"jobs\":{}}}", self.jobs)
    }
}

impl PlacePolicy for Even {
    fn propose(&mut self, model: &Model, _workload: &Workload, fleet: &Fleet) -> Result<Outcome, InitError> {
        let ready: Vec<Server> = fleet.servers.iter().filter(|it| it.state == Health::Ready).copied().collect();
        for jobs in (1..=self.jobs).rev() {
            let groups = Task { model, jobs }.groups(&ready);
            if !groups.is_empty() {
                let plan = plan(groups, jobs, ready.len());
                return Ok(if is_present(&plan, &ready, fleet) { Outcome::Keep } else { Outcome::Replace(plan) });
            }
        }
        Ok(Outcome::Infeasible(why_not(model, &ready, fleet)))
    }
}

pointsman_sdk::export_policy!(Even: place);

/// A model, to be placed with room for so many jobs everywhere; at least one.
#[derive(Clone, Copy)]
struct Task<'a> {
    model: &'a Model,
    jobs: u32,
}

/// Blocks that a server can hold with their keys and values, by its place in a pipeline.
#[derive(Clone, Copy)]
struct Room {
    alone: u32,
    first: u32,
    between: u32,
    last: u32,
}

/// A pipeline: what each of its servers holds, and the path through them.
struct Group {
    ranges: Vec<Range>,
    path: Path,
}

impl Task<'_> {
    /// The most blocks that fit into so many bytes. None for bytes that are not there.
    fn blocks_in(self, bytes: Option<u64>) -> u32 {
        let each = u128::from(self.model.block_bytes) + u128::from(self.model.slot_bytes) * u128::from(self.jobs);
        let most = u128::from(bytes.unwrap_or(0)).checked_div(each).unwrap_or(u128::MAX);
        // Slots are counted in 32 bits.
        let countable = self.model.blocks.min(u32::MAX / self.jobs.max(1));
        if bytes.is_none() { 0 } else { u32::try_from(most).unwrap_or(u32::MAX).min(countable) }
    }

    fn room(self, server: &Server) -> Room {
        let without = |bytes: u64| server.mem_bytes.checked_sub(bytes);
        let (head, tail) = (self.model.head_bytes, self.model.tail_bytes);
        Room {
            alone: self.blocks_in(without(head).and_then(|rest| rest.checked_sub(tail))),
            first: self.blocks_in(without(head)),
            between: self.blocks_in(without(0)),
            last: self.blocks_in(without(tail)),
        }
    }

    /// As many pipelines as neighbours can form: the one that is complete first, then the first behind it, and so on.
    fn groups(self, ready: &[Server]) -> Vec<Group> {
        let able = ready.iter().map(|server| (*server, self.room(server)));
        // A server that can not hold a single block stands in nobody's way.
        let able: Vec<(Server, Room)> = able.filter(|(_, room)| room.between > 0).collect();
        let mut groups = Vec::new();
        let mut open = able.as_slice();
        let mut end = 0;
        while end < open.len() && groups.len() < PATHS_MAX {
            end += 1;
            let (up_to_here, behind) = open.split_at(end);
            if let Some(run) = self.shortest_run(up_to_here) {
                groups.push(self.group(run));
                (open, end) = (behind, 0);
            }
        }
        groups
    }

    /// The fewest neighbours that can hold the model together, at least one block each, and end with the last of these.
    fn shortest_run(self, servers: &[(Server, Room)]) -> Option<&[(Server, Room)]> {
        let ((_, last), before) = servers.split_last()?;
        let wanted = u64::from(self.model.blocks);
        if u64::from(last.alone) >= wanted {
            return servers.get(before.len()..);
        }
        let mut held = u64::from(last.last);
        for (count, (at, (_, room))) in (2_u64..).zip(before.iter().enumerate().rev()).take(HOPS_MAX - 1) {
            if count > wanted || last.last == 0 {
                break;
            }
            if room.first > 0 && held + u64::from(room.first) >= wanted {
                return servers.get(at..);
            }
            held += u64::from(room.between);
        }
        None
    }

    /// Makes a pipeline of servers that can hold the model.
    fn group(self, run: &[(Server, Room)]) -> Group {
        let last = run.len().saturating_sub(1);
        let room = |(at, (_, room)): (usize, &(Server, Room))| match (at == 0, at == last) {
            (true, true) => room.alone,
            (true, false) => room.first,
            (false, true) => room.last,
            (false, false) => room.between,
        };
        let rooms: Vec<u32> = run.iter().enumerate().map(room).collect();
        let (mut first_block, mut capacity, mut service_ns) = (0, CAPACITY_MAX, 0_u64);
        let mut hops = Vec::with_capacity(run.len());
        for ((server, _), blocks) in run.iter().zip(even(&rooms, self.model.blocks)) {
            hops.push(Hop { server: server.id, first_block, blocks });
            capacity = capacity.min(self.jobs_on(server, first_block, blocks));
            let computing = server.block_ns.saturating_mul(blocks.into());
            service_ns = service_ns.saturating_add(server.visit_ns).saturating_add(computing);
            first_block += blocks;
        }
        let range = |hop: &Hop| {
            let &Hop { server, first_block, blocks } = hop;
            Range { server, first_block, blocks, slots: capacity.saturating_mul(blocks) }
        };
        Group { ranges: hops.iter().map(range).collect(), path: Path { hops, capacity, service_ns } }
    }

    /// The most jobs whose keys and values fit beside these blocks.
    fn jobs_on(self, server: &Server, first_block: u32, blocks: u32) -> u32 {
        let free = server.mem_bytes.saturating_sub(self.model.range_bytes(first_block, blocks));
        let each = u128::from(self.model.slot_bytes) * u128::from(blocks);
        let most = u128::from(free).checked_div(each).unwrap_or(u128::MAX);
        u32::try_from(most).unwrap_or(u32::MAX).min(u32::MAX / blocks.max(1))
    }
}

/// Shares `blocks` out, of which the rooms together can take so many: everybody has the same or one less, save those
/// who have no room for it. The first ones have more.
fn even(rooms: &[u32], blocks: u32) -> Vec<u32> {
    let sum = |level: u32| rooms.iter().map(|&room| u64::from(room.min(level))).sum::<u64>();
    // The lowest level at which all together hold enough.
    let (mut low, mut level) = (0, blocks);
    while low + 1 < level {
        let middle = low + (level - low) / 2;
        if sum(middle) < u64::from(blocks) { low = middle } else { level = middle }
    }
    let mut surplus = sum(level).saturating_sub(blocks.into());
    let mut shares: Vec<u32> = rooms.iter().map(|&room| room.min(level)).collect();
    for share in shares.iter_mut().rev().filter(|share| **share == level) {
        if surplus == 0 {
            break;
        }
        *share -= 1;
        surplus -= 1;
    }
    shares
}

fn plan(groups: Vec<Group>, reserved_jobs: u32, ready: usize) -> Placement {
    let mut plan = Placement { reserved_jobs, ..Placement::default() };
    let (mut jobs, mut time) = (0_u64, 0_u128);
    for Group { ranges, path } in groups {
        jobs += u64::from(path.capacity);
        time += u128::from(path.service_ns) * u128::from(path.capacity);
        plan.ranges.extend(ranges);
        plan.paths.push(path);
    }
    plan.predicted_ns = time.checked_div(jobs.into()).and_then(|mean| u64::try_from(mean).ok()).unwrap_or(0);
    plan.note = format!(
        "even split: {} paths over {} of {ready} ready servers for {jobs} jobs, at least {reserved_jobs} a path; the \
         predicted time has no waiting in it",
        plan.paths.len(),
        plan.ranges.len(),
    );
    plan
}

/// Whether the fleet has these ranges and paths already. Predicted times may differ: they are measured again and again.
fn is_present(plan: &Placement, ready: &[Server], fleet: &Fleet) -> bool {
    let holds = |server: &Server| {
        let range = plan.ranges.iter().find(|range| range.server == server.id);
        match range {
            Some(range) => (range.first_block, range.blocks) == (server.first_block, server.blocks),
            None => server.blocks == 0,
        }
    };
    let same = |(one, other): (&Path, &Path)| one.hops == other.hops && one.capacity == other.capacity;
    let paths = plan.paths.len() == fleet.paths.len() && plan.paths.iter().zip(&fleet.paths).all(same);
    paths && ready.iter().all(holds)
}

fn why_not(model: &Model, ready: &[Server], fleet: &Fleet) -> String {
    if model.blocks == 0 {
        return "the model has no blocks".to_owned();
    }
    if ready.is_empty() {
        return format!("none of {} servers is ready", fleet.servers.len());
    }
    let task = Task { model, jobs: 1 };
    let held: u64 = ready.iter().map(|server| u64::from(task.room(server).between)).sum();
    let memory: u128 = ready.iter().map(|server| u128::from(server.mem_bytes)).sum();
    let &Model { blocks, block_bytes, slot_bytes, head_bytes, tail_bytes } = model;
    format!(
        "no group of neighbours holds {blocks} blocks of {block_bytes} bytes with {slot_bytes} for one job's keys and \
         values, {head_bytes} beside the first and {tail_bytes} beside the last: {} ready servers of {memory} bytes \
         hold {held} such blocks, and a path has {HOPS_MAX} servers at most",
        ready.len(),
    )
}

#[cfg(test)]
mod tests;

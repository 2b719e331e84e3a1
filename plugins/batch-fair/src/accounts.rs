//! What each tenant has been served, in weighted tokens, and who of them is waiting.
//!
//! Counters only grow, so only differences between them mean something. All are measured against the *level*, where a
//! tenant starts that is new or comes back. It is, as of the last step with prompts, the smallest counter of those that
//! had something waiting; if nobody had, the counter of the tenant that was the last to have.
//!
//! At most [`TENANTS_MAX`] are kept, since anybody can make up new ones. When there is no room, those with the
//! smallest counters are forgotten. That has the least effect: who is not known starts at the level, so what is
//! forgotten is how far they were ahead of it, and for those below it nothing.
//!
//! Steps are the clock here. Time would not do: claims grow only while others are served, and a step can take a
//! millisecond or a second.

use std::cmp::Reverse;
use std::fmt::Write;

/// Tenants that are kept.
pub const TENANTS_MAX: usize = 1024;
/// Tenants that are forgotten at once, so that room need not be made for each new one.
const FORGET: usize = 256;
const _: () = assert!(0 < FORGET && FORGET <= TENANTS_MAX);
/// Steps for which a tenant counts as waiting after some of a prompt was left over. Longer than what was granted of
/// it is in flight: it is not ready then, and must not pass for one that is away.
const LEFT_OVER_STEPS: u64 = 64;
/// How far ahead a tenant can be after a swap. What says more is no state of this policy.
const AHEAD_MAX: u64 = 1 << 48;
/// Tenants that are shown to people, those that are the furthest ahead.
const SHOWN_MAX: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Account {
    tenant: u32,
    /// The counter.
    service: u64,
    /// The last step in which it counts as waiting; 0 for none.
    waits_until: u64,
}

/// The counters of all tenants.
#[derive(Debug, Default)]
pub struct Accounts {
    /// Ascending by tenant.
    all: Vec<Account>,
    level: u64,
    /// Number of the present step, from 1.
    step: u64,
    /// The tenant that was the last to have everything granted that it had waiting.
    last: Option<u32>,
    /// Used while tenants are forgotten.
    counters: Vec<u64>,
}

impl Accounts {
    /// Begins a step.
    pub fn next_step(&mut self) {
        self.step = self.step.saturating_add(1);
    }

    /// Adds to what a tenant was served.
    pub fn charge(&mut self, tenant: u32, tokens: u64) {
        let account = self.account(tenant);
        account.service = account.service.saturating_add(tokens);
    }

    /// Sets the level, before the tenants of a window [`Self::enter`].
    pub fn update_level(&mut self) {
        let waiting = self.all.iter().filter(|account| account.waits_until >= self.step);
        let smallest = waiting.map(|account| account.service).min();
        let level = smallest.or_else(|| Some(self.find(self.last?)?.service));
        self.level = self.level.max(level.unwrap_or(0));
    }

    /// The counter of a tenant that has a prompt waiting, lifted to the level if it had none before.
    pub fn enter(&mut self, tenant: u32) -> u64 {
        let (level, step) = (self.level, self.step);
        let account = self.account(tenant);
        if account.waits_until < step {
            account.service = account.service.max(level);
        }
        account.service
    }

    /// Notes whether a tenant still has something waiting after the present step.
    pub fn leave(&mut self, tenant: u32, left_over: bool) {
        let step = self.step;
        // It may have been forgotten to make room for others of the same window.
        if let Ok(at) = self.place(tenant) {
            self.all[at].waits_until = if left_over { step.saturating_add(LEFT_OVER_STEPS) } else { step };
        }
        if !left_over {
            self.last = Some(tenant);
        }
    }

    /// Those that are ahead of the level, ascending by tenant, 12 bytes each: tenant as 32 bits, and how far, from 1 to
    /// [`AHEAD_MAX`], as 64 bits, both little-endian.
    pub fn save(&self) -> Vec<u8> {
        let ahead = self.all.iter().filter(|account| account.service > self.level);
        let entry = |account: &Account| (account.tenant, self.ahead(account).min(AHEAD_MAX));
        let bytes = |(tenant, ahead): (u32, u64)| tenant.to_le_bytes().into_iter().chain(ahead.to_le_bytes());
        ahead.map(entry).flat_map(bytes).collect()
    }

    /// Takes over what [`Self::save`] gave; leaves all as it is when the bytes can not be that.
    pub fn restore(&mut self, bytes: &[u8]) {
        let (entries, rest) = bytes.as_chunks::<12>();
        let accounts = || {
            entries.iter().map(|&[a, b, c, d, ahead @ ..]| {
                let (tenant, service) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(ahead));
                Account { tenant, service, waits_until: 0 }
            })
        };
        let is_good = rest.is_empty()
            && entries.len() <= TENANTS_MAX
            && accounts().is_sorted_by(|one, next| one.tenant < next.tenant)
            && accounts().all(|account| (1..=AHEAD_MAX).contains(&account.service));
        if is_good {
            *self = Self { all: accounts().collect(), ..Self::default() };
        }
    }

    /// For people: how many there are, and who is the furthest ahead.
    pub fn dump(&self) -> String {
        let mut shown = self.all.clone();
        shown.sort_unstable_by_key(|account| (Reverse(account.service), account.tenant));
        shown.truncate(SHOWN_MAX);
        let mut json = format!("{{\"step\":{},\"tenants\":{},\"furthest_ahead\":[", self.step, self.all.len());
        for (at, account) in shown.iter().enumerate() {
            let (comma, ahead) = (if at > 0 { "," } else { "" }, self.ahead(account));
            let waits = account.waits_until > self.step;
            // Writing to a string does not fail.
            let _ = write!(json, "{comma}{{\"tenant\":{},\"ahead\":{ahead},\"waits\":{waits}}}", account.tenant);
        }
        json + "]}"
    }

    /// How far a tenant is ahead of one that comes now.
    fn ahead(&self, account: &Account) -> u64 {
        account.service.saturating_sub(self.level)
    }

    fn place(&self, tenant: u32) -> Result<usize, usize> {
        self.all.binary_search_by_key(&tenant, |account| account.tenant)
    }

    fn find(&self, tenant: u32) -> Option<&Account> {
        self.all.get(self.place(tenant).ok()?)
    }

    /// The account of a tenant. One that is not known gets one, at the level.
    fn account(&mut self, tenant: u32) -> &mut Account {
        let at = match self.place(tenant) {
            Ok(at) => at,
            Err(_) => {
                self.make_room();
                let at = self.all.partition_point(|account| account.tenant < tenant);
                self.all.insert(at, Account { tenant, service: self.level, waits_until: 0 });
                at
            }
        };
        &mut self.all[at]
    }

    /// Forgets a quarter of the tenants, or more if counters are equal, when there is no room for one more.
    fn make_room(&mut self) {
        if self.all.len() < TENANTS_MAX {
            return;
        }
        self.counters.clear();
        self.counters.extend(self.all.iter().map(|account| account.service));
        let (_, &mut edge, _) = self.counters.select_nth_unstable(FORGET - 1);
        self.all.retain(|account| account.service > edge);
    }
}

//! A running policy: one store, one component instance, its limits, and calls in the engine's own types.
//!
//! Limits are set before the guest's first instruction. An instance that has faulted is dropped, never called again.

use std::sync::Arc;

use pointsman_engine::decision::{Fault, FaultClass};
use pointsman_engine::placement::{Fleet, Model, Workload};
use pointsman_engine::port::{Pick, Pull};
use pointsman_engine::snapshot::Snapshot;
use pointsman_engine::window::{Ask, Kind};
use wasmtime::{ResourceLimiter, Result, Store};

use crate::call::{guard, guard_for};
use crate::compile::Compiled;
use crate::figures::Figures;
use crate::journal::{Journal, Quota};
use crate::kind::SlotKind;
use crate::limits::{
    COLD_FUEL, CORE_INSTANCES_MAX, FUEL_PER_WORD, HOT_FUEL, MEMORIES_MAX, MEMORY_BYTES_MAX, PLACE_DEADLINE_TICKS,
    PLACE_FUEL, PLACE_MEMORY_BYTES_MAX, PLACE_RESULT_BYTES_MAX, RESULT_BYTES_MAX, TABLE_ELEMENTS_MAX, TABLES_MAX,
};
use crate::place::Proposal;
use crate::versions::v0_1::{Exports, RawDescriptor, Saved, Score};

/// What the host keeps for one instance.
pub(crate) struct State {
    pub(crate) journal: Journal,
    pub(crate) figures: Arc<Figures>,
    /// Of the last call.
    pub(crate) fuel_used: u64,
    meter: Meter,
}

/// A guest asked for more than its limit. Growth that fails ends the call: a guest whose allocator fails would only abort with
/// a less telling trap.
#[derive(Debug, thiserror::Error)]
#[error("{what} may not grow to {desired} {unit}, the limit is {limit}")]
pub(crate) struct GrowthDenied {
    what: &'static str,
    desired: usize,
    unit: &'static str,
    limit: usize,
}

/// Bytes of linear memory.
struct Meter(usize);

impl ResourceLimiter for Meter {
    fn memory_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let limit = self.0;
        if desired > limit {
            return Err(GrowthDenied { what: "memory", desired, unit: "bytes", limit }.into());
        }
        Ok(true)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let limit = TABLE_ELEMENTS_MAX;
        if desired > limit {
            return Err(GrowthDenied { what: "a table", desired, unit: "elements", limit }.into());
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        CORE_INSTANCES_MAX
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }

    fn memories(&self) -> usize {
        MEMORIES_MAX
    }
}

/// A live instance.
pub(crate) struct Instance {
    store: Store<State>,
    exports: Exports,
    /// Keeps the ticker going: without it there would be no deadline.
    _code: Arc<Compiled>,
}

impl Instance {
    /// A fresh instance that logs as `name` and keeps `figures`; about 20 µs.
    ///
    /// # Errors
    /// The guest's start code faulted, it needs more than its limits, or an export has the wrong signature.
    pub(crate) fn new(
        code: &Arc<Compiled>,
        slot: SlotKind,
        name: Arc<str>,
        quota: Arc<Quota>,
        figures: Arc<Figures>,
    ) -> std::result::Result<Self, Fault> {
        let (memory, result) = match slot {
            SlotKind::Place => (PLACE_MEMORY_BYTES_MAX, PLACE_RESULT_BYTES_MAX),
            _ => (MEMORY_BYTES_MAX, RESULT_BYTES_MAX),
        };
        let state = State { journal: Journal::new(name, quota), figures, fuel_used: 0, meter: Meter(memory) };
        let mut store = Store::new(code.pre.engine(), state);
        store.limiter(|state| &mut state.meter);
        store.set_hostcall_fuel(result);
        store.set_max_component_handles(0);
        let exports = guard(&mut store, COLD_FUEL, "instantiate", |store| {
            let instance = code.pre.instantiate(&mut *store)?;
            Exports::find(store, &instance, slot)
        })?;
        Ok(Self { store, exports, _code: Arc::clone(code) })
    }

    pub(crate) fn describe(&mut self) -> std::result::Result<RawDescriptor, Fault> {
        guard(&mut self.store, COLD_FUEL, "describe", |store| self.exports.describe(store))
    }

    pub(crate) fn init(
        &mut self,
        config: &str,
        snapshot: &Snapshot,
        previous: Option<Saved>,
    ) -> std::result::Result<(), Fault> {
        let exports = &self.exports;
        let outcome =
            guard(&mut self.store, COLD_FUEL, "init", |store| exports.init(store, config, snapshot, previous))?;
        outcome.map_err(|why| Fault::new(FaultClass::Init, crate::journal::escape(&why)))
    }

    pub(crate) fn save(&mut self) -> std::result::Result<Option<Saved>, Fault> {
        guard(&mut self.store, COLD_FUEL, "save", |store| self.exports.save(store))
    }

    /// For people; text of bounded length.
    pub(crate) fn dump(&mut self) -> std::result::Result<String, Fault> {
        guard(&mut self.store, COLD_FUEL, "dump", |store| self.exports.dump(store))
    }

    /// Two words for each event.
    pub(crate) fn apply(&mut self, seq: u64, words: &[u64]) -> std::result::Result<(), Fault> {
        guard(&mut self.store, hot(words), "apply", |store| self.exports.calls.apply(store, seq, words))
    }

    /// `overlap` is one word for each chain, or none for a policy that does not need it. Answers the packed decision, not yet
    /// decoded.
    pub(crate) fn pick(&mut self, ask: &Pick, overlap: Option<&[u64]>) -> std::result::Result<u64, Fault> {
        let calls = &self.exports.calls;
        match overlap {
            None => guard(&mut self.store, HOT_FUEL, "pick", |store| calls.pick(store, ask)),
            Some(words) => {
                guard(&mut self.store, hot(words), "pick-affine", |store| calls.pick_affine(store, ask, words))
            }
        }
    }

    /// Four words for each waiting request. Answers the index, not yet checked.
    pub(crate) fn pull(&mut self, ask: &Pull, words: &[u64]) -> std::result::Result<u32, Fault> {
        guard(&mut self.store, hot(words), "pull", |store| self.exports.calls.pull(store, ask, words))
    }

    /// The question of a slot that is asked with a window. The answer is not yet checked, but no longer than any can be.
    pub(crate) fn window(
        &mut self,
        kind: Kind,
        ask: &Ask,
        words: &[u64],
        answer: &mut Vec<u64>,
    ) -> std::result::Result<(), Fault> {
        let (calls, what) = (&self.exports.calls, kind.name());
        guard(&mut self.store, hot(words), what, |store| calls.window(store, ask, words, answer))?;
        let (got, most) = (answer.len(), kind.entries_max());
        if got <= most {
            return Ok(());
        }
        Err(Fault::new(FaultClass::Oversize, format!("{what}: {got} words, and at most {most} make sense")))
    }

    /// `who` is tenant, class, prompt and reserved tokens; `offered` one word for each format. Answers the index of one of them.
    pub(crate) fn format(&mut self, who: [u32; 4], pressure: u32, offered: &[u64]) -> std::result::Result<u32, Fault> {
        let calls = &self.exports.calls;
        let index =
            guard(&mut self.store, hot(offered), "format", |store| calls.format(store, who, pressure, offered))?;
        if (index as usize) < offered.len() {
            return Ok(index);
        }
        let detail = format!("format: index {index} of {} that are offered", offered.len());
        Err(Fault::new(FaultClass::Invalid, detail))
    }

    /// A plan, not yet checked.
    pub(crate) fn propose(
        &mut self,
        model: &Model,
        workload: &Workload,
        fleet: &Fleet,
    ) -> std::result::Result<Proposal, Fault> {
        let calls = &self.exports.calls;
        let outcome = guard_for(&mut self.store, PLACE_FUEL, PLACE_DEADLINE_TICKS, "propose", |store| {
            calls.propose(store, model, workload, fleet)
        })?;
        outcome.map_err(|why| Fault::new(FaultClass::Invalid, format!("propose: {}", crate::journal::escape(&why))))
    }

    /// The scores behind a decision.
    pub(crate) fn trace(&mut self, ask: &Pick, overlap: &[u64]) -> std::result::Result<Vec<Score>, Fault> {
        guard(&mut self.store, COLD_FUEL, "trace", |store| self.exports.calls.trace(store, ask, overlap))
    }

    /// Fuel that the last call used.
    pub(crate) fn fuel_used(&self) -> u64 {
        self.store.data().fuel_used
    }
}

/// Fuel of a hot call with its allowance for `words`.
fn hot(words: &[u64]) -> u64 {
    HOT_FUEL + FUEL_PER_WORD * words.len() as u64
}

#[cfg(test)]
#[path = "../tests/guests/mod.rs"]
mod guests;

#[cfg(test)]
mod tests {
    use super::guests::Guest;
    use super::*;
    use crate::artifact::Artifact;
    use crate::compile::Machine;

    fn instance(guest: &Guest) -> Instance {
        let code = Machine::new(None).unwrap().compile(&Artifact::new(&guest.component()).unwrap()).unwrap();
        Instance::new(&Arc::new(code), SlotKind::Route, "test".into(), Arc::default(), Arc::default()).unwrap()
    }

    /// No guest can reach the deadline within its fuel, so this one is given fuel without end.
    #[test]
    fn the_ticker_ends_what_fuel_does_not() {
        let mut instance = instance(&Guest::default().apply("(loop (br 0))"));
        let fault = guard(&mut instance.store, u64::MAX, "apply", |store| {
            store.set_epoch_deadline(2);
            instance.exports.calls.apply(store, 1, &[3 << 56, 0])
        });
        assert_eq!(fault.unwrap_err().class, FaultClass::Deadline);
    }

    #[test]
    fn a_result_over_the_limit_is_not_copied() {
        // Some state: a schema of three bytes, and as many bytes from address 0 as the limit allows, or one more.
        let save = |len: usize| {
            let len: String = (len as u32).to_le_bytes().iter().map(|byte| format!("\\{byte:02x}")).collect();
            let head = r"\01\00\00\00\00\00\00\00\10\00\00\00\03\00\00\00\07\00\00\00\00\00\00\00\00\00\00\00";
            let data = format!(r#"(data (i32.const 512) "{head}{len}")"#);
            instance(&Guest::default().fields(data).save("(i32.const 512)")).save()
        };
        assert!(save(RESULT_BYTES_MAX - 3).is_ok_and(|saved| saved.is_some()));
        assert_eq!(save(RESULT_BYTES_MAX - 2).err().map(|fault| fault.class), Some(FaultClass::Oversize));
    }
}

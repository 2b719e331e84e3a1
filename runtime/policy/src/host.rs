//! From an artifact to a candidate that may be swapped in: every step that can be refused, off the engine's thread.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pointsman_engine::snapshot::Snapshot;

use crate::artifact::{Artifact, Digest};
use crate::cache::CodeCache;
use crate::compile::{Compiled, Machine};
use crate::figures::Figures;
use crate::instance::Instance;
use crate::journal::Quota;
use crate::kind::SlotKind;
use crate::limits::{COMPILED_MAX, CONFIG_BYTES_MAX, LABEL_BYTES_MAX};
use crate::quarantine::Quarantine;
use crate::record::frame::Frame;
use crate::refuse::{RefuseReason, Stage, contain};
use crate::replay::rival::{Rival, RivalReport};
use crate::trial;
use crate::versions::v0_1::{Inputs, RawDescriptor, Saved};

/// What a policy says of itself, checked: short printable text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its name; never empty.
    pub name: Arc<str>,
    /// Its version.
    pub version: String,
    /// Names the layout of its saved state.
    pub state_schema: String,
    /// Whether it wants to know what the chains hold of a prompt.
    pub needs_overlap: bool,
    /// Whether it wants to know the links between servers.
    pub needs_links: bool,
}

impl Descriptor {
    fn check(raw: RawDescriptor) -> Result<(Self, Figures), String> {
        for (field, text) in [("name", &raw.name), ("version", &raw.version), ("state-schema", &raw.state_schema)] {
            // These go into labels and lines as they are.
            let plain = |c: char| c.is_ascii_alphanumeric() || "._+-/".contains(c);
            if text.len() > LABEL_BYTES_MAX || !text.chars().all(plain) {
                return Err(format!(
                    "`{field}` must be at most {LABEL_BYTES_MAX} letters, digits and characters of `._+-/`"
                ));
            }
        }
        if raw.name.is_empty() {
            return Err("`name` is empty".into());
        }
        let figures = Figures::declare(raw.metrics)?;
        let needs = |input| raw.needs & input == input;
        let (needs_overlap, needs_links) = (needs(Inputs::PREFIX_OVERLAP), needs(Inputs::LINK_MATRIX));
        let (version, state_schema) = (raw.version, raw.state_schema);
        Ok((Self { name: raw.name.into(), version, state_schema, needs_overlap, needs_links }, figures))
    }
}

/// A policy that described itself, with what is needed to make instances of it.
#[derive(Clone)]
pub(crate) struct Policy {
    code: Arc<Compiled>,
    slot: SlotKind,
    config: String,
    descriptor: Descriptor,
    pub(crate) quota: Arc<Quota>,
    pub(crate) figures: Arc<Figures>,
}

impl Policy {
    pub(crate) fn instantiate(&self) -> Result<Instance, pointsman_engine::decision::Fault> {
        let (quota, figures) = (Arc::clone(&self.quota), Arc::clone(&self.figures));
        Instance::new(&self.code, self.slot, Arc::clone(&self.descriptor.name), quota, figures)
    }

    /// A fresh instance that has been started on a view, with what another saved.
    pub(crate) fn start(
        &self,
        view: &Snapshot,
        previous: Option<Saved>,
    ) -> Result<Instance, pointsman_engine::decision::Fault> {
        let mut instance = self.instantiate()?;
        instance.init(&self.config, view, previous)?;
        Ok(instance)
    }

    /// The same policy with figures and a log of its own, for what must not be mistaken for its live work.
    pub(crate) fn apart(&self) -> Self {
        Self { quota: Arc::default(), figures: Arc::new(self.figures.blank()), ..self.clone() }
    }

    pub(crate) fn config(&self) -> &str {
        &self.config
    }

    pub(crate) fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    pub(crate) fn digest(&self) -> Digest {
        self.code.digest
    }

    /// Whether it has declared figures.
    pub(crate) fn keeps_figures(&self) -> bool {
        !self.figures.is_empty()
    }

    /// The slot that this is for.
    pub(crate) fn slot(&self) -> SlotKind {
        self.slot
    }
}

/// A policy that may be swapped in, with an instance that has not run yet.
pub struct Candidate {
    pub(crate) policy: Policy,
    pub(crate) fresh: Instance,
}

impl Candidate {
    /// What the policy says of itself.
    #[must_use]
    pub fn descriptor(&self) -> &Descriptor {
        &self.policy.descriptor
    }

    /// The digest of the upload.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.policy.code.digest
    }
}

impl fmt::Debug for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Candidate({} {}, {})", self.policy.descriptor.name, self.policy.descriptor.version, self.digest())
    }
}

/// The process's Wasm host. Shared by all slots; cheap to ask for a policy that it has compiled before.
pub struct PolicyHost {
    machine: Arc<Machine>,
    /// Most recently used first. Held while compiling, so that uploads can not occupy more than one processor.
    compiled: Mutex<Vec<Arc<Compiled>>>,
    quarantine: Arc<Quarantine>,
}

impl PolicyHost {
    /// Starts the compiler and its ticker thread.
    ///
    /// # Errors
    /// This machine is not supported by the compiler, or no thread could be started.
    pub fn new() -> Result<Self, HostError> {
        Self::start(None)
    }

    /// The same, and compiled code is kept in `dir` from one process to the next. A folder that can not be used, or that others may
    /// write to, is left alone with a warning.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_cache(dir: &Path) -> Result<Self, HostError> {
        let cache = CodeCache::open(dir);
        if let Err(error) = &cache {
            tracing::warn!(dir = %dir.display(), %error, "compiled policies are not kept");
        }
        Self::start(cache.ok())
    }

    fn start(cache: Option<CodeCache>) -> Result<Self, HostError> {
        let machine = Machine::new(cache).map_err(|e| HostError(format!("{e:#}")))?;
        Ok(Self { machine, compiled: Mutex::default(), quarantine: Arc::default() })
    }

    /// The record of those that misbehaved; to be shared with the slots.
    #[must_use]
    pub fn quarantine(&self) -> &Arc<Quarantine> {
        &self.quarantine
    }

    /// Compiles, instantiates and tries a policy for `slot` with the operator's `config` (JSON, empty for none). Takes tens of
    /// milliseconds the first time; runs guest code within limits.
    ///
    /// # Errors
    /// The first stage that it did not pass, and why.
    pub fn prepare(&self, slot: SlotKind, artifact: &Artifact, config: &str) -> Result<Candidate, RefuseReason> {
        if config.len() > CONFIG_BYTES_MAX {
            let len = config.len();
            return Err(RefuseReason::at(
                Stage::Init,
                format!("the configuration has {len} bytes, over {CONFIG_BYTES_MAX}"),
            ));
        }
        self.quarantine.check(artifact.digest()).map_err(|why| RefuseReason::at(Stage::Quarantine, why))?;
        let policy = self.introduce(slot, artifact, config)?;
        let scratch = policy.apart().instantiate();
        let mut scratch = scratch.map_err(|fault| RefuseReason::at(Stage::Instantiate, fault.detail))?;
        trial::run(&mut scratch, slot, config, &policy.descriptor)?;
        let fresh = policy.instantiate().map_err(|fault| RefuseReason::at(Stage::Instantiate, fault.detail))?;
        Ok(Candidate { policy, fresh })
    }

    /// Asks a candidate what was asked of others before: the log's newest part, from the engine's live tables on.
    ///
    /// # Errors
    /// It faulted, or gave an answer that the tables would not have allowed.
    pub fn rehearse(&self, candidate: &Candidate, frames: &[Frame]) -> Result<RivalReport, RefuseReason> {
        let mut rival = Rival::new(candidate.policy.apart());
        for frame in frames {
            rival.step(frame);
            if let (false, Some(fault)) = (rival.report().is_clean(), &rival.report().last_fault) {
                let asked = rival.report().decisions;
                let what = format!("at recorded decision {asked}: {fault}");
                return Err(RefuseReason::at(Stage::Rehearsal, what));
            }
        }
        rival.settle();
        Ok(rival.report().clone())
    }

    /// The candidate as one who is asked what others were asked.
    #[must_use]
    pub fn rival(&self, candidate: Candidate) -> Rival {
        Rival::new(candidate.policy.apart())
    }

    /// Compiles a policy and lets it describe itself.
    pub(crate) fn introduce(&self, slot: SlotKind, artifact: &Artifact, config: &str) -> Result<Policy, RefuseReason> {
        if !artifact.slots().contains(&slot) {
            let served: Vec<&str> = artifact.slots().iter().map(|slot| slot.name()).collect();
            let what = format!("it serves the slot {}, not `{slot}`", served.join(" and "));
            return Err(RefuseReason::at(Stage::Verify, what));
        }
        let code = self.code(artifact)?;
        let quota = Arc::default();
        let label: Arc<str> = code.digest.to_string().into();
        let mut scratch = Instance::new(&code, slot, label, Arc::clone(&quota), Arc::default())
            .map_err(|fault| RefuseReason::at(Stage::Instantiate, fault.detail))?;
        let descriptor = scratch.describe().map_err(|fault| fault.detail).and_then(Descriptor::check);
        let (descriptor, figures) = descriptor.map_err(|reason| RefuseReason::at(Stage::Describe, reason))?;
        Ok(Policy { code, slot, config: config.to_owned(), descriptor, quota, figures: Arc::new(figures) })
    }

    /// The artifact's code, from the cache or freshly compiled.
    fn code(&self, artifact: &Artifact) -> Result<Arc<Compiled>, RefuseReason> {
        let mut cache = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let code = match cache.iter().position(|code| code.digest == artifact.digest()) {
            Some(at) => cache.remove(at),
            None => {
                let compile = || self.machine.compile(artifact).map_err(|e| format!("{e:#}"));
                Arc::new(contain(Stage::Compile, compile)?)
            }
        };
        cache.insert(0, Arc::clone(&code));
        cache.truncate(COMPILED_MAX);
        Ok(code)
    }
}

/// The host could not start.
#[derive(Debug, thiserror::Error)]
#[error("the WebAssembly host could not start: {0}")]
pub struct HostError(String);

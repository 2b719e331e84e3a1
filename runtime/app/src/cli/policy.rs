//! The flags of `pointsman policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use pointsman_policy::SlotKind;

/// Policies.
#[derive(Subcommand)]
pub enum PolicyCommand {
    /// Show who decides in a running server, and what could.
    List {
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Let another policy decide in a running server, without a restart.
    Swap {
        /// The slot: route, batch or cache.
        slot: String,
        #[command(flatten)]
        swap: SwapArgs,
        /// How far it may go.
        #[arg(long, value_enum, default_value_t = ModeArg::Active)]
        mode: ModeArg,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Ask a policy everything and let it decide nothing, and see how it compares.
    Shadow {
        /// The slot: route, batch or cache.
        slot: String,
        /// A policy that ships with the server, a sha256: digest, or a .wasm file; `off` ends the shadow.
        policy: String,
        /// The policy's own configuration, a JSON object.
        #[arg(long, value_name = "JSON", default_value = "")]
        policy_config: String,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Put the policy on trial in charge of everything.
    Promote {
        /// The slot: route, batch or cache.
        slot: String,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Explain the decision about a request.
    Explain {
        /// The `id` of its answer (chatcmpl-…), or the engine's number.
        request: String,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Save the decision log of a running server.
    Log {
        /// The slot: route, batch or cache.
        slot: String,
        /// Where to write it.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Decide a saved log again, and compare; or ask another policy the same questions.
    Replay {
        /// The log, as saved by `policy log`.
        file: PathBuf,
        /// Further components that the log may need, besides the policies that ship.
        #[arg(long, value_name = "FILE")]
        policy: Vec<PathBuf>,
        /// Ask this policy instead of those that decided: a name or a .wasm file.
        #[arg(long, value_name = "POLICY")]
        with: Option<String>,
        /// The configuration of `--with`, a JSON object.
        #[arg(long, value_name = "JSON", default_value = "")]
        policy_config: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Let a digest that was taken out come back.
    Clear {
        /// The digest, sha256:…
        digest: String,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// End a trial, or bring the previous policy back.
    Rollback {
        /// The slot: route, batch or cache.
        slot: String,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Let the native builtin decide; runs no guest code.
    Eject {
        /// The slot: route, batch or cache.
        slot: String,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Begin a policy: a crate that compiles, with the SDK beside it.
    New {
        /// The policy's name, which is that of its folder: lower case letters, digits and dashes.
        name: String,
        /// The slot: route, batch, cache or place.
        #[arg(long, default_value = "route")]
        slot: SlotKind,
        /// Where to make the folder.
        #[arg(long, value_name = "DIR", default_value = ".")]
        within: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run a policy's own tests, if it is a crate, and examine it in WebAssembly: on random histories and on traffic.
    Test {
        /// The folder of the crate, or a component.
        policy: PathBuf,
        /// The policy's own configuration, a JSON object.
        #[arg(long, value_name = "JSON", default_value = "")]
        policy_config: String,
        /// Histories to play.
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        histories: u64,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Measure what a decision costs, in nanoseconds and in fuel, beside the native builtin.
    Bench {
        /// A component, or the name of a policy that ships.
        #[arg(default_value = "route-jsq")]
        policy: String,
        /// The policy's own configuration, a JSON object.
        #[arg(long, value_name = "JSON", default_value = "")]
        policy_config: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Compile a policy crate to a component.
    Build {
        /// The folder of the crate.
        dir: PathBuf,
        /// Where to write the component.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Vouch for a component: writes FILE.sig beside it, which `swap` sends along.
    Sign {
        /// The component; none with --new-key.
        #[arg(required_unless_present = "new_key")]
        file: Option<PathBuf>,
        /// The file of the secret key.
        #[arg(long, value_name = "FILE", required_unless_present = "new_key")]
        key: Option<PathBuf>,
        /// Make a secret key in this file, which must not exist, and print its public half.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "key"])]
        new_key: Option<PathBuf>,
        /// A slot that it may come into; without this, all that it serves.
        #[arg(long, value_name = "SLOT")]
        slot: Vec<SlotKind>,
        /// How long the signature is good; for ever without this.
        #[arg(long, value_name = "DAYS")]
        valid_days: Option<u64>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Verify, compile and try a policy the way a server would, and say what it is or why it is refused.
    Check {
        /// The component.
        file: PathBuf,
        /// The policy's own configuration, a JSON object.
        #[arg(long, value_name = "JSON", default_value = "")]
        policy_config: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Which policy, and under which conditions.
#[derive(Args, Default)]
pub struct SwapArgs {
    /// A policy that ships with the server, a sha256: digest, or a .wasm file.
    pub policy: String,
    /// The policy's own configuration, a JSON object.
    #[arg(long, value_name = "JSON", default_value = "")]
    pub policy_config: String,
    /// Share of the requests that a trial decides about.
    #[arg(long, value_name = "PERCENT")]
    pub percent: Option<f64>,
    /// Do not ask it recorded questions first.
    #[arg(long)]
    pub no_rehearsal: bool,
    /// Never take it out for its faults; the builtin decides in its place each time.
    #[arg(long)]
    pub no_guard: bool,
    /// By how much it may be slower than the one beside it on trial (default 5), or else than the one before it (100).
    #[arg(long, value_name = "PERCENT")]
    pub slo_margin_percent: Option<f64>,
    /// Requests after which a trial has passed.
    #[arg(long, value_name = "N")]
    pub slo_requests: Option<u32>,
    /// Let it decide about everything once it has passed its trial.
    #[arg(long)]
    pub promote: bool,
}

/// How far a policy may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// It decides about everything.
    Active,
    /// It decides about a share of the requests; in the slot route only.
    Trial,
    /// It is asked everything and decides nothing.
    Shadow,
}

/// Where the server of a `policy` command is.
#[derive(Args)]
pub struct ServerArgs {
    /// The running server.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8000")]
    pub server: String,
    /// File that holds the admin token, if the server wants one.
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

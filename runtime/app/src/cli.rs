//! The command line, and the configuration file as more of the same: a file is turned into flags that stand before the
//! flags of the command line, so that both have one set of names, one parser and one set of messages, and flags win.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};

use crate::config;

mod policy;

pub use policy::{ModeArg, PolicyCommand, ServerArgs, SwapArgs};

/// LLM inference runtime whose scheduler can be changed while it runs.
#[derive(Parser)]
#[command(name = "pointsman", version, args_override_self = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Serve a model over OpenAI-compatible HTTP.
    Serve(ServeArgs),
    /// Fetch, list and inspect models.
    #[command(subcommand)]
    Model(ModelCommand),
    /// Build, check and swap scheduling policies.
    #[command(subcommand)]
    Policy(PolicyCommand),
}

/// Flags of `serve`; a configuration file has the same names.
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub struct ServeArgs {
    /// A GGUF file, or the name of a model that `pointsman model pull` knows.
    #[arg(long, value_name = "NAME|PATH", default_value = crate::fetch::DEFAULT_MODEL)]
    pub model: String,
    /// Name under which the model is served (vLLM: --served-model-name). Default: the model's own name.
    #[arg(long, value_name = "NAME")]
    pub served_model_name: Option<String>,
    /// Address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8000")]
    pub listen: SocketAddr,
    /// Pipeline stages that each chain is split into (vLLM: --pipeline-parallel-size).
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub stages: u32,
    /// Chains: replicas of the model that share its weights; the routing policy chooses between them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub chains: u32,
    /// Threads that compute (llama.cpp: -t). Default: the cores at hand.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
    /// Instruction set to use: avx512, avx2 or reference. Default: the best that this processor has.
    #[arg(long, value_name = "LEVEL")]
    pub simd: Option<String>,
    /// Memory for the KV cache of all chains, e.g. 512MiB or 2GiB. Default: a quarter of the free memory, at most 2GiB.
    #[arg(long, value_name = "BYTES", value_parser = config::bytes)]
    pub kv_budget: Option<u64>,
    /// Whether prompts of one user that begin alike share their KV cache (vLLM: --enable-prefix-caching).
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = ["on", "off"])]
    pub prefix_cache: String,
    /// Requests that may run on one chain at once (vLLM: --max-num-seqs).
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub max_jobs: u32,
    /// Longest sequence in tokens (vLLM: --max-model-len, llama.cpp: -c). Default: what the model was trained for.
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(2..))]
    pub max_context: Option<u32>,
    /// Who decides: SLOT=NAME, SLOT=FILE, or SLOT=builtin. May be given once for each slot. Default: route=route-jsq,
    /// batch=batch-fcfs, cache=cache-lru.
    #[arg(long, value_name = "SLOT=POLICY")]
    pub policy: Vec<String>,
    /// Seed of the policies' random numbers.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Address of /admin and nothing else of the interface; without one, it is on --listen, too.
    #[arg(long, value_name = "ADDRESS")]
    pub admin_listen: Option<SocketAddr>,
    /// File that holds the token for /admin; without one, /admin answers to this machine only.
    #[arg(long, value_name = "FILE")]
    pub admin_token_file: Option<PathBuf>,
    /// Who may bring policies for a slot: SLOT=FILE, a public key a line. Without it a slot takes unsigned policies, too.
    #[arg(long, value_name = "SLOT=FILE")]
    pub trust: Vec<String>,
    /// How long running requests may go on after SIGTERM, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub drain_timeout: u64,
    /// Configuration file (TOML) with the names of these flags; flags win.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// Models.
#[derive(Subcommand)]
pub enum ModelCommand {
    /// Fetch a model into the cache and print where it is.
    Pull {
        /// Which one.
        #[arg(default_value = crate::fetch::DEFAULT_MODEL)]
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the models that can be fetched, and which are in the cache.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print what a model file holds.
    Inspect {
        /// A GGUF file or the name of a model.
        #[arg(default_value = crate::fetch::DEFAULT_MODEL)]
        model: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Reads the process's command line and, if it names one, the configuration file.
///
/// # Errors
/// A wrong flag, or a wrong key or value in the file; printable with `print`.
pub fn parse() -> Result<Command, clap::Error> {
    parse_from(std::env::args_os().collect())
}

fn parse_from(words: Vec<OsString>) -> Result<Command, clap::Error> {
    let cli = Cli::try_parse_from(&words)?;
    let Command::Serve(ServeArgs { config: Some(file), .. }) = &cli.command else { return Ok(cli.command) };
    let serve = ServeArgs::augment_args(clap::Command::new("serve"));
    let known: Vec<&str> =
        serve.get_arguments().filter_map(clap::Arg::get_long).filter(|name| *name != "config").collect();
    let flags = config::flags_of_file(file, &known)
        .map_err(|error| Cli::command().error(ErrorKind::InvalidValue, format!("{}: {error:#}", file.display())))?;
    let split = words.iter().position(|word| word == "serve").map_or(words.len(), |at| at + 1);
    let merged = words[..split].iter().cloned().chain(flags).chain(words[split..].iter().cloned());
    Ok(Cli::try_parse_from(merged)?.command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serve(words: &[&str]) -> Result<ServeArgs, String> {
        match parse_from(words.iter().map(OsString::from).collect()).map_err(|error| error.to_string())? {
            Command::Serve(args) => Ok(args),
            _ => Err("not serve".into()),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_win_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pointsman.toml");
        std::fs::write(&file, "chains = 3\nstages = 2\nkv-budget = \"1GiB\"\nprefix-cache = \"off\"\n").unwrap();
        let args = serve(&["pointsman", "serve", "--chains", "5", "--config", file.to_str().unwrap()]).unwrap();
        assert_eq!((args.chains, args.stages, args.kv_budget), (5, 2, Some(1 << 30)));
        assert_eq!(args.prefix_cache, "off");
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pointsman.toml");
        std::fs::write(&file, "chain = 3\n").unwrap();
        let error = serve(&["pointsman", "serve", "--config", file.to_str().unwrap()]).unwrap_err();
        assert!(error.contains("unknown key `chain`") && error.contains("`chains`"), "{error}");
    }

    #[test]
    fn a_wrong_value_in_the_file_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pointsman.toml");
        std::fs::write(&file, "stages = 0\n").unwrap();
        let error = serve(&["pointsman", "serve", "--config", file.to_str().unwrap()]).unwrap_err();
        assert!(error.contains("--stages") && error.contains('0'), "{error}");
    }
}

//! The `pointsman` binary: reads the command line and hands over. Exit status: 0 done, 1 failed (one line on stderr says
//! why and what to do), 2 the command line or configuration file is wrong.

mod admin;
mod audit;
mod cli;
mod config;
mod driver;
mod fetch;
mod model;
mod policies;
mod policy;
mod policy_metrics;
mod serve;
mod service;

use std::process::ExitCode;

use clap::error::ErrorKind;

fn main() -> ExitCode {
    let outcome = match cli::parse() {
        Ok(command) => run(command),
        Err(error) => {
            let help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // Nothing can be done when the terminal itself is gone.
            let _ = error.print();
            return ExitCode::from(if help { 0 } else { 2 });
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pointsman: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: cli::Command) -> anyhow::Result<()> {
    match command {
        cli::Command::Serve(args) => serve::run(args.try_into()?),
        cli::Command::Model(command) => {
            end_with_the_reader();
            model::run(command)
        }
        cli::Command::Policy(command) => {
            end_with_the_reader();
            policy::run(command)
        }
    }
}

/// Lets a command that prints end quietly when nobody reads on, as in `pointsman policy list | head -1`. A server must not: its
/// clients come and go.
fn end_with_the_reader() {
    // SAFETY: no other thread runs yet, and the default action is always a valid handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

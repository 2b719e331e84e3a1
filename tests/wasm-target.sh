# Sourced by scripts that build policies: makes `cargo build --target wasm32-unknown-unknown` work.
#
# First choice is the target of the toolchain itself. Where that can not be installed, the standard library is built once
# from Debian's sources with Debian's compiler into a private sysroot, and plain cargo is pointed at it.

WASM_TARGET=wasm32-unknown-unknown

has_rustup_target() { [[ -d $(rustc --print sysroot)/lib/rustlib/$WASM_TARGET/lib ]]; }

build_debian_sysroot() {
  local compiler=/usr/bin/rustc sysroot=$1 work
  if [[ ! -x $compiler || ! -e /usr/lib/rustlib/src/rust/library/std ]]; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends rustc-web rust-web-src || return 1
  fi
  work=$(mktemp -d)
  mkdir -p "$work/src" "$sysroot/lib/rustlib/$WASM_TARGET/lib"
  : >"$work/src/lib.rs"
  printf '[package]\nname = "only-std"\nversion = "0.0.0"\nedition = "2021"\n[profile.release]\npanic = "abort"\n' >"$work/Cargo.toml"
  (
    cd "$work" || exit 1
    # Embedded bitcode lets policies be linked with LTO; build-std wants the bootstrap switch on a stable compiler.
    RUSTC=$compiler RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Cembed-bitcode=yes CARGO_TARGET_DIR=$work/out \
      cargo build --quiet --release --target $WASM_TARGET -Z build-std=std,panic_abort
  ) || return 1
  find "$work/out/$WASM_TARGET/release/deps" -name 'lib*.rlib' ! -name 'libonly_std*' \
    -exec cp {} "$sysroot/lib/rustlib/$WASM_TARGET/lib/" \;
  ln -sfn "$($compiler --print sysroot)/lib/rustlib/x86_64-unknown-linux-gnu" "$sysroot/lib/rustlib/x86_64-unknown-linux-gnu"
  touch "$sysroot/complete"
  rm -rf "$work"
}

use_debian_target() {
  local linker sysroot
  linker=$(dirname "$(rustup which rustc)")/../lib/rustlib/x86_64-unknown-linux-gnu/bin/rust-lld
  sysroot=${XDG_CACHE_HOME:-$HOME/.cache}/pointsman/wasm-sysroot/$(/usr/bin/rustc -vV 2>/dev/null | sha256sum | cut -c1-16)
  if [[ ! -e $sysroot/complete ]]; then build_debian_sysroot "$sysroot" || return 1; fi
  export RUSTC=/usr/bin/rustc
  export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="--sysroot=$sysroot"
  export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$linker
}

if ! has_rustup_target; then
  rustup target add $WASM_TARGET >/dev/null 2>&1 || true
  has_rustup_target || use_debian_target
fi

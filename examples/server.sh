# Sourced by the examples: finds the binary, starts a server on a free port, stops it at the end.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ -z ${POINTSMAN:-} ]]; then
  cargo build --release --quiet
  POINTSMAN=target/release/pointsman
fi

# start_server FLAGS...: sets URL and waits until the server is ready.
start_server() {
  local port
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  URL=http://127.0.0.1:$port
  "$POINTSMAN" serve --listen "127.0.0.1:$port" --kv-budget 256MiB "$@" &
  SERVER=$!
  trap 'kill $SERVER 2>/dev/null; wait $SERVER 2>/dev/null || true' EXIT
  until curl --silent --fail --output /dev/null "$URL/health/ready"; do
    kill -0 $SERVER
    sleep 0.1
  done
}

;; Asks for a clock, and is otherwise a policy that queues everything.
(module
  (import "wasi:clocks/monotonic-clock@0.2.0" "now" (func $now (result i64)))
  (memory (export "memory") 4)
  ;; The descriptor: name, version and state schema, each a pointer and a length; then zeros: no needs, no metrics. Address 0
  ;; holds zeros, too: "ok", "none", and what is empty.
  (data (i32.const 64) "\80\00\00\00\10\00\00\00" "\c0\00\00\00\05\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 128) "forbidden-import")
  (data (i32.const 192) "0.1.0")
  ;; Whatever the host hands over may overwrite what came before: it is never read.
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
  (func (export "pointsman:policy/lifecycle@0.1.0#describe") (result i32) (i32.const 64))
  (func (export "pointsman:policy/lifecycle@0.1.0#init")
    (param i32 i32 i64 i64 i32 i32 i32 i32 i32 i32 i64 i32 i32) (result i32) (i32.const 0))
  (func (export "pointsman:policy/lifecycle@0.1.0#save") (result i32) (i32.const 0))
  (func (export "pointsman:policy/lifecycle@0.1.0#dump") (result i32) (i32.const 0))
  (func (export "pointsman:policy/route@0.1.0#apply") (param i64 i32 i32))
  (func (export "pointsman:policy/route@0.1.0#pick")
    (param i64 i64 i64 i32 i32 i32 i32 i64 i64 i32) (result i64)
    (drop (call $now))
    (i64.const 0x1000000000000000))
  (func (export "pointsman:policy/route@0.1.0#pull") (param i64 i64 i64 i32 i32 i32) (result i32) (i32.const -1))
  (func (export "pointsman:policy/route@0.1.0#pick-affine")
    (param i64 i64 i64 i32 i32 i32 i32 i64 i64 i32 i32 i32) (result i64) (i64.const 0x1000000000000000))
  (func (export "pointsman:policy/route@0.1.0#trace")
    (param i64 i64 i64 i32 i32 i32 i32 i64 i64 i32 i32 i32) (result i32) (i32.const 0))
)

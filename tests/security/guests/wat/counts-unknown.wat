;; Queues until it has been told of an event of a kind above 99, and refuses from then on: unknown kinds must change nothing.
(module
  (memory (export "memory") 4)
  ;; The descriptor: name, version and state schema, each a pointer and a length; then zeros: no needs, no metrics. Address 0
  ;; holds zeros, too: "ok", "none", and what is empty.
  (data (i32.const 64) "\80\00\00\00\0e\00\00\00" "\c0\00\00\00\05\00\00\00" "\00\00\00\00\00\00\00\00")
  (data (i32.const 128) "counts-unknown")
  (data (i32.const 192) "0.1.0")
  ;; Whatever the host hands over may overwrite what came before: it is never read.
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 1024))
  (func (export "pointsman:policy/lifecycle@0.1.0#describe") (result i32) (i32.const 64))
  (func (export "pointsman:policy/lifecycle@0.1.0#init")
    (param i32 i32 i64 i64 i32 i32 i32 i32 i32 i32 i64 i32 i32) (result i32) (i32.const 0))
  (func (export "pointsman:policy/lifecycle@0.1.0#save") (result i32) (i32.const 0))
  (func (export "pointsman:policy/lifecycle@0.1.0#dump") (result i32) (i32.const 0))
  (global $seen (mut i64) (i64.const 0x1000000000000000))
  (func (export "pointsman:policy/route@0.1.0#apply") (param i64 i32 i32)
    ;; Events alternate in noise: the second head, 16 bytes on, is looked at.
    (if (i32.gt_u (local.get 2) (i32.const 3))
      (then (if (i64.gt_u (i64.load (i32.add (local.get 1) (i32.const 16))) (i64.const 0x6300000000000000))
        (then (global.set $seen (i64.const 0x2000000000000001)))))))
  (func (export "pointsman:policy/route@0.1.0#pick")
    (param i64 i64 i64 i32 i32 i32 i32 i64 i64 i32) (result i64) (global.get $seen))
  (func (export "pointsman:policy/route@0.1.0#pull") (param i64 i64 i64 i32 i32 i32) (result i32) (i32.const -1))
  (func (export "pointsman:policy/route@0.1.0#pick-affine")
    (param i64 i64 i64 i32 i32 i32 i32 i64 i64 i32 i32 i32) (result i64) (i64.const 0x1000000000000000))
  (func (export "pointsman:policy/route@0.1.0#trace")
    (param i64 i64 i64 i32 i32 i32 i32 i64 i64 i32 i32 i32) (result i32) (i32.const 0))
)

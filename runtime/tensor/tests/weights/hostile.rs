//! Random damage: the reader never panics, and never takes memory out of proportion to the file.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pointsman_tensor::weights::{Gguf, GgufWriter, TensorType, Value};
use proptest::prelude::*;

/// Counts what each thread holds, and the most that it ever held.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(change: isize) {
    let held = HELD.get() + change;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting neither allocates nor unwinds, since the
// cells are constant-initialised and have no destructor. `realloc` and `alloc_zeroed` are the trait's own, which call these.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promises about `layout` are those that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: `block` came from `alloc` above, that is from `System`, with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

fn small_file() -> Vec<u8> {
    let mut writer = GgufWriter::default();
    writer.metadata("general.alignment", 32_u32).metadata("split.count", 1_u16).metadata("flag", true);
    writer.metadata("text", "some text").metadata("tokens", ["a", "bc", ""].as_slice());
    writer.metadata("types", [1_i32, 2, 3].as_slice()).metadata("flags", [true, false].as_slice());
    writer.metadata("nested", Value::Arrays(vec![[1.5_f32].as_slice().into(), ["x"].as_slice().into()]));
    for kind in TensorType::ALL {
        writer.tensor_f32(kind.name(), kind, 1, 256, &[0.25; 256]).unwrap();
    }
    writer.finish()
}

/// Parses, and reads all that can be read.
fn use_up(bytes: &[u8]) {
    let Ok(file) = Gguf::parse(bytes.to_vec()) else { return };
    for (key, value) in file.metadata().iter() {
        let _ = (value.to_string(), file.metadata().opt_u32(key), file.metadata().opt_i32s(key));
        let _ = (file.metadata().opt_strings(key), file.metadata().opt_f32s(key));
    }
    for tensor in file.tensors() {
        assert_eq!(tensor.to_f32().len(), tensor.rows * tensor.cols);
    }
    let _ = file.tensor("blk.0.missing");
}

/// Most bytes that reading these took at a time, the copy of the file included.
fn peak_of_use(bytes: &[u8]) -> usize {
    let before = HELD.get();
    PEAK.set(before);
    use_up(bytes);
    (PEAK.get() - before) as usize
}

/// Bytes that a damaged field may hold: anything, or a number that is likely to be mistaken for a size.
fn patch() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![Just(u64::MAX), Just(1 << 63), Just(1 << 61), Just(1 << 31), Just(1 << 16), 0..64_u64];
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..4),
        number.prop_map(|number| number.to_le_bytes().to_vec()),
        (0..42_u32).prop_map(|number| number.to_le_bytes().to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_never_panics_and_never_takes_much_memory(
        // Most of the file is data, where nothing can go wrong: damage is drawn to the header.
        patches in proptest::collection::vec((0..1200_usize, patch()), 0..6),
        cut in proptest::option::weighted(0.2, any::<proptest::sample::Index>()),
    ) {
        let mut bytes = small_file();
        for (at, patch) in patches {
            let end = (at + patch.len()).min(bytes.len());
            bytes[at..end].copy_from_slice(&patch[..end - at]);
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let peak = peak_of_use(&bytes);
        prop_assert!(peak < 64 * 1024, "{peak} bytes for a file of {}", bytes.len());
    }

    #[test]
    fn noise_after_a_header_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..400), counts in 0..4_u64) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend_from_slice(&counts.to_le_bytes());
        bytes.extend_from_slice(&counts.to_le_bytes());
        bytes.extend_from_slice(&noise);
        prop_assert!(peak_of_use(&bytes) < 16 * 1024);
    }
}

#[test]
fn the_undamaged_file_is_accepted() {
    assert_eq!(Gguf::parse(small_file()).unwrap().tensors().len(), 11);
}

//! Files that lie, each in one way, with the words that the error must have.

use pointsman_tensor::weights::{Gguf, GgufWriter, TensorType};

/// Builds a file field by field, right or wrong.
#[derive(Clone, Default)]
struct Raw(Vec<u8>);

impl Raw {
    fn header(version: u32, tensors: u64, entries: u64) -> Self {
        Self(b"GGUF".to_vec()).u32(version).u64(tensors).u64(entries)
    }

    /// A file of one entry, whose value follows.
    fn entry(key: &str, kind: u32) -> Self {
        Self::header(3, 0, 1).text(key).u32(kind)
    }

    /// A file of one tensor with this table line and 64 bytes of data.
    fn tensor(extents: &[u64], kind: u32, offset: u64) -> Vec<u8> {
        Self::header(3, 1, 0).line("w", extents, kind, offset).data(64)
    }

    fn line(self, name: &str, extents: &[u64], kind: u32, offset: u64) -> Self {
        let described = self.text(name).u32(extents.len() as u32);
        extents.iter().fold(described, |raw, extent| raw.u64(*extent)).u32(kind).u64(offset)
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes())
    }

    fn text(self, text: &str) -> Self {
        self.u64(text.len() as u64).bytes(text.as_bytes())
    }

    fn data(mut self, len: usize) -> Vec<u8> {
        self.0.resize(self.0.len().next_multiple_of(32) + len, 0);
        self.0
    }
}

const U8: u32 = 0;
const U32: u32 = 4;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;
const U64: u32 = 10;
const F32: u32 = 0;
const Q8_0: u32 = 8;

#[track_caller]
fn refuses(bytes: impl Into<Vec<u8>>, phrase: &str) {
    let error = Gguf::parse(bytes.into()).map(|file| format!("{file:?} was accepted; expected: {phrase}"));
    let error = error.unwrap_err().to_string();
    assert!(error.contains(phrase), "got:      {error}\nexpected: {phrase}");
}

#[test]
fn files_of_other_kinds_are_recognised() {
    for (bytes, phrase) in [
        (&b""[..], "an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\noid", "a Git LFS pointer: the model itself was not downloaded"),
        (b"PK\x03\x04\x14\0\0\0", "a zip archive"),
        (b"<!DOCTYPE html>", "a web page"),
        (b"{\"error\":1}", "JSON"),
        (b"\x40\x01\0\0\0\0\0\0{\"__metadata__\"", "a safetensors file"),
        (b"tjgg\x03\0\0\0", "an old GGML file"),
        (b"FUGG\0\0\0\x03", "only little-endian"),
        (b"GGUF\0\0\0\x03\0\0\0\0", "big-endian"),
        (b"\x7fELF\x02\x01\x01\0", "something else: it begins with \"\\x7fELF\\x02\\x01\\x01\\x00\""),
        (b"GGU", "begins with \"GGU\""),
        (b"GGUF\x03\0", "byte 4: the version needs 4 bytes here, but only 2 are left"),
    ] {
        refuses(bytes, phrase);
    }
    for version in [0, 1, 4, u32::MAX] {
        refuses(Raw::header(version, 0, 0).0, &format!("byte 4: GGUF version {version} is not supported"));
    }
    assert!(Gguf::parse(Raw::header(2, 0, 0).0).is_ok() && Gguf::parse(Raw::header(3, 0, 0).0).is_ok());
}

#[test]
fn counts_and_lengths_are_not_believed() {
    let huge = [1 << 32, 1 << 61, 1 << 63, u64::MAX];
    for count in huge {
        refuses(Raw::header(3, count, 0).0, &format!("byte 8: {count} tensors are declared; at most 65536"));
        refuses(Raw::header(3, 0, count).0, &format!("byte 16: {count} metadata entries are declared"));
        refuses(Raw::header(3, 0, 1).u64(count).0, &format!("byte 24: a metadata key is declared to be {count} bytes"));
        refuses(
            Raw::header(3, 1, 0).u64(count).0,
            &format!("the name of a tensor is declared to be {count} bytes long"),
        );
        refuses(Raw::entry("k", STRING).u64(count).0, &format!("key \"k\" is declared to be {count} bytes long"));
        for (kind, name) in [(U8, "u8"), (U64, "u64"), (STRING, "string"), (ARRAY, "array")] {
            let file = Raw::entry("k", ARRAY).u32(kind).u64(count).0;
            refuses(file, &format!("key \"k\" declares {count} {name} values, more than the file has room for"));
        }
    }
    refuses(Raw::header(3, 1000, 0).0, "byte 24: the name of a tensor needs 8 bytes here, but only 0 are left");
    refuses(Raw::header(3, 0, 1).text(&"k".repeat(1025)).0, "a metadata key is declared to be 1025 bytes long");
    refuses(Raw::entry("k", STRING).u64(4).bytes(b"abc").0, "needs 4 bytes here, but only 3 are left");
    refuses(Raw::entry("k", ARRAY).u32(STRING).u64(1).u64(5).0, "needs 5 bytes here, but only 0 are left");
    let large = Raw::entry("k", ARRAY).u32(U8).u64(65 << 20).data(65 << 20);
    refuses(large, "the header exceeds 67108864 bytes");
}

#[test]
fn metadata_are_checked() {
    refuses(Raw::header(3, 0, 1).u64(2).bytes(b"\xff\xfe").0, "byte 24: a metadata key is not UTF-8");
    refuses(Raw::entry("k", STRING).u64(1).bytes(b"\xc3").0, "metadata key \"k\" is not UTF-8");
    refuses(Raw::entry("k", 13).u64(0).0, "byte 33: metadata key \"k\" has the type 13, which does not exist");
    refuses(Raw::entry("k", ARRAY).u32(99).u64(0).0, "has the type 99");
    refuses(Raw::entry("k", BOOL).bytes(&[2]).0, "byte 37: metadata key \"k\" is not a valid bool");
    refuses(
        Raw::entry("k", ARRAY).u32(BOOL).u64(3).bytes(&[0, 1, 2]).0,
        "byte 51: metadata key \"k\" holds an invalid",
    );
    refuses(Raw::entry("k", U32).0, "byte 37: metadata key \"k\" needs 4 bytes here, but only 0 are left");
    let twice = Raw::header(3, 0, 2).text("k").u32(U8).bytes(&[1]).text("k").u32(U8).bytes(&[1]);
    refuses(twice.0, "byte 38: metadata key \"k\" occurs twice");
    let nested = |depth| (1..depth).fold(Raw::entry("k", ARRAY), |raw, _| raw.u32(ARRAY).u64(1)).u32(U8).u64(0).0;
    assert!(Gguf::parse(nested(4)).is_ok());
    refuses(nested(5), "nests arrays more than 4 deep");
    refuses(nested(100_000), "nests arrays more than 4 deep");
}

#[test]
fn settings_of_the_container_are_checked() {
    let with = |key: &str, value: u32| GgufWriter::default().metadata(key, value).finish();
    for alignment in [0, 24, u32::MAX] {
        refuses(with("general.alignment", alignment), &format!("is {alignment}, which is not a power of two"));
    }
    refuses(GgufWriter::default().metadata("general.alignment", "32").finish(), "holds string \"32\"; expected a u32");
    refuses(with("split.count", 3), "one of 3 parts of a split model");
    assert!(Gguf::parse(with("split.count", 1)).is_ok());
    // The data of a file with this alignment would start at byte 2^31.
    let mut far = GgufWriter::default();
    far.metadata("general.alignment", 1_u32 << 31);
    assert!(Gguf::parse(far.finish()).is_ok(), "there are no tensors to be out of place");
}

#[test]
fn tensors_are_checked() {
    assert!(Gguf::parse(Raw::tensor(&[4, 4], F32, 0)).is_ok());
    assert!(Gguf::parse(Raw::tensor(&[4, 1, 4, 1], F32, 0)).is_ok());
    for (extents, kind, offset, phrase) in [
        (&[][..], F32, 0, "has 0 dimensions; 1 to 4 are allowed"),
        (&[1; 5], F32, 0, "has 5 dimensions"),
        (&[2, 2, 2], F32, 0, "has the shape [2, 2, 2]; only matrices are supported"),
        (&[0], F32, 0, "has no values"),
        (&[4, 0], F32, 0, "has no values"),
        (&[1 << 62, 8], F32, 0, "is too large to exist"),
        (&[1 << 61, 1], F32, 0, "is too large to exist"),
        (&[u64::MAX, u64::MAX], F32, 0, "is too large to exist"),
        (&[1 << 60, 2], Q8_0, 0, "is too large to exist"),
        (&[33], Q8_0, 0, "has rows of 33 values, which is not a multiple of the 32 of a Q8_0 block"),
        (&[256], 16, 0, "can not be read: IQ2_XXS is not supported; supported are F32, F16"),
        (&[256], 24, 0, "can not be read: I8 is not supported"),
        (&[256], 5, 0, "tensor type 5 is unknown"),
        (&[256], u32::MAX, 0, "tensor type 4294967295 is unknown"),
        (&[4], F32, 16, "tensor \"w\" is at offset 16, not a multiple of 32"),
        (&[4, 5], F32, 0, "needs 80 bytes at offset 0 of the data, which start at byte 96, but the file has only 160"),
        (&[4, 4], F32, 32, "needs 64 bytes at offset 32"),
        (&[4], F32, 64, "needs 16 bytes at offset 64"),
        (&[4], F32, u64::MAX - 31, "needs 16 bytes at offset 18446744073709551584"),
        (&[1 << 40, 1 << 10], F32, 0, "the file has only 160 bytes: it is cut short"),
    ] {
        refuses(Raw::tensor(extents, kind, offset), phrase);
    }
    let pair = |first: &str, second: &str, offset| {
        Raw::header(3, 2, 0).line(first, &[16], F32, 0).line(second, &[8], F32, offset).data(96)
    };
    assert!(Gguf::parse(pair("a", "b", 64)).is_ok());
    refuses(pair("a", "a", 64), "tensor \"a\" occurs twice");
    refuses(pair("a", "b", 32), "tensor \"b\" overlaps with tensor \"a\"");
    refuses(pair("a", "b", 0), "overlaps with");
    refuses(Raw::header(3, 1, 0).u64(1).bytes(b"\xff").0, "the name of a tensor is not UTF-8");
}

#[test]
fn no_part_of_a_file_is_a_file() {
    let mut writer = GgufWriter::default();
    writer.metadata("a", "text").metadata("b", ["x", "y"].as_slice()).metadata("c", [1_u32, 2].as_slice());
    writer.tensor_f32("v", TensorType::F32, 1, 3, &[1.0; 3]).unwrap();
    writer.tensor_f32("w", TensorType::Q4_0, 2, 32, &[1.0; 64]).unwrap();
    let whole = writer.finish();
    assert!(Gguf::parse(whole.clone()).is_ok());
    for len in 0..whole.len() {
        assert!(Gguf::parse(whole[..len].to_vec()).is_err(), "cut to {len} of {} bytes", whole.len());
    }
}

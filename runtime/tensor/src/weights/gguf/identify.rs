//! The first eight bytes: whether this is a GGUF file that we read, and if not, what it is instead.

use super::reader::Reader;
use crate::error::TensorError;

/// Beginnings of files that are often given in place of a GGUF file, and the message for each.
const OTHERS: [(&[u8], &str); 9] = [
    (b"version https://git-lfs", "a Git LFS pointer: the model itself was not downloaded; run `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive: a PyTorch checkpoint or a package; convert or unpack it"),
    (b"\x1f\x8b", "a gzip archive; unpack it"),
    (b"<", "a web page or XML, perhaps an error message that was saved under the model's name; download it again"),
    (b"{", "JSON, not weights"),
    (b"lmgg", "an old GGML file; convert the original model to GGUF"),
    (b"fmgg", "an old GGML file; convert the original model to GGUF"),
    (b"tjgg", "an old GGML file; convert the original model to GGUF"),
    (b"FUGG", "a GGUF file with its bytes swapped; only little-endian files are supported"),
];

/// Reads the magic.
pub(super) fn check_magic(reader: &mut Reader<'_>) -> Result<(), TensorError> {
    let bytes = reader.bytes();
    if bytes.starts_with(b"GGUF") {
        reader.take(4, "the magic")?;
        return Ok(());
    }
    let what = match OTHERS.iter().find(|(start, _)| bytes.starts_with(start)) {
        Some((_, what)) => (*what).to_owned(),
        None if bytes.is_empty() => "an empty file; download it again".to_owned(),
        // Eight bytes of header length, then the header, which is JSON.
        None if bytes.get(8) == Some(&b'{') => "a safetensors file; convert it to GGUF".to_owned(),
        None => format!("something else: it begins with \"{}\"", bytes[..bytes.len().min(8)].escape_ascii()),
    };
    Err(TensorError::format(0, format!("expected \"GGUF\", but this is {what}")))
}

/// Reads the version.
pub(super) fn check_version(reader: &mut Reader<'_>) -> Result<(), TensorError> {
    let offset = reader.offset();
    let version = u32::from_le_bytes(reader.array("the version")?);
    let what = match version {
        2 | 3 => return Ok(()),
        // Versions are small, so its lower half is zero only if the bytes are in the other order.
        _ if version != 0 && version.trailing_zeros() >= 16 => {
            "this GGUF file is big-endian; only little-endian files are supported".to_owned()
        }
        _ => format!("GGUF version {version} is not supported, only 2 and 3; convert the original model again"),
    };
    Err(TensorError::format(offset, what))
}

//! Every maximum of the HTTP layer, with its unit in its name.

use std::time::Duration;

/// Bytes of a JSON body.
pub const JSON_BYTES_MAX: usize = 8 << 20;
/// Text of one `/tokenize`: a few seconds of work at worst.
pub const TOKENIZE_BYTES_MAX: usize = 1 << 20;
/// Bytes of an uploaded policy component.
pub const WASM_BYTES_MAX: usize = 2 << 20;
/// Bytes of a body over its limit that are still read and thrown away, so that the client gets to see the refusal
/// instead of a broken connection.
pub const DISCARD_BYTES_MAX: usize = 64 << 20;
/// A body that has not arrived in this time is given up.
pub const BODY_READ_MAX: Duration = Duration::from_secs(30);
/// A stream with nothing to say sends a comment this often.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Text up to this many bytes is tokenised on the spot; longer text on a thread that may block.
pub const INLINE_TEXT_BYTES_MAX: usize = 4 << 10;
/// Long texts that are tokenised at once; others wait for their turn.
pub const LONG_TEXTS_MAX: usize = 4;
/// Messages of one chat.
pub const MESSAGES_MAX: usize = 4096;
/// Ignored parameters that are named in the answer.
pub const IGNORED_PARAMS_MAX: usize = 16;
/// Bytes of a caller's own request id.
pub const REQUEST_ID_BYTES_MAX: usize = 128;

//! The byte alphabet of byte-level BPE: every byte has one printable character, so that merges are plain strings.
//!
//! Bytes that are printable in Latin-1 stand for themselves, the other 68 are numbered upwards from U+0100. The table was
//! introduced with GPT-2 and is the same in all its descendants.

/// First character that stands for an unprintable byte.
const SHIFTED: u32 = 256;
/// One past the last character of the alphabet.
const END: usize = SHIFTED as usize + 68;

/// The character of each byte.
pub(super) const ALPHABET: [char; 256] = alphabet();
const BYTES: [Option<u8>; END] = inverse();

const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

const fn alphabet() -> [char; 256] {
    let mut table = ['\0'; 256];
    let (mut byte, mut shifted) = (0, SHIFTED);
    while byte < 256 {
        table[byte] = if is_printable(byte as u8) {
            byte as u8 as char
        } else {
            shifted += 1;
            match char::from_u32(shifted - 1) {
                Some(character) => character,
                None => '\0',
            }
        };
        byte += 1;
    }
    table
}

const fn inverse() -> [Option<u8>; END] {
    let mut table = [None; END];
    let mut byte = 0;
    while byte < 256 {
        table[ALPHABET[byte] as usize] = Some(byte as u8);
        byte += 1;
    }
    table
}

/// Appends the bytes that a token's spelling stands for. A character outside the alphabet stands for its own UTF-8 bytes.
pub(super) fn push_decoded(token: &str, out: &mut Vec<u8>) {
    for character in token.chars() {
        match BYTES.get(character as usize).copied().flatten() {
            Some(byte) => out.push(byte),
            None => out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ALPHABET, push_decoded};

    #[test]
    fn every_byte_has_its_own_character() {
        for byte in 0..=255u8 {
            let mut decoded = Vec::new();
            push_decoded(&ALPHABET[byte as usize].to_string(), &mut decoded);
            assert_eq!(decoded, [byte]);
        }
        assert_eq!((ALPHABET[b' ' as usize], ALPHABET[b'\n' as usize], ALPHABET[b'a' as usize]), ('Ġ', 'Ċ', 'a'));
    }

    #[test]
    fn a_foreign_character_keeps_its_utf8_bytes() {
        let mut decoded = Vec::new();
        push_decoded("Ġ世", &mut decoded);
        assert_eq!(decoded, " 世".as_bytes());
    }
}

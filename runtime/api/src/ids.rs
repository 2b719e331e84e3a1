//! Random numbers for ids and for requests without a seed.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use pointsman_engine::ids::RequestId;

/// 64 random bits. The standard library keys every `RandomState` from the operating system's randomness, which is plenty
/// for ids and sampling seeds; nothing secret is made from it.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Hides the engine's numbers in ids, which would tell any client how many requests there are.
static VEIL: LazyLock<u64> = LazyLock::new(random);

/// The id of an answer: `prefix-` and 32 hexadecimal digits, of which the last 16 stand for the engine's number of its (first)
/// request, so that an operator can ask this process why it went where it went.
pub(crate) fn answer(prefix: &str, request: RequestId) -> String {
    format!("{prefix}-{:016x}{:016x}", random(), request.0 ^ *VEIL)
}

/// The engine's number in the id of an answer, or a plain number.
pub(crate) fn request_of(id: &str) -> Option<u64> {
    if let Ok(number) = id.parse() {
        return Some(number);
    }
    let (_, digits) = id.rsplit_once('-')?;
    let number = digits.get(16..).filter(|_| digits.len() == 32)?;
    u64::from_str_radix(number, 16).ok().map(|number| number ^ *VEIL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_request() {
        let id = answer("chatcmpl", RequestId(0xabc));
        assert_eq!((id.len(), request_of(&id)), (41, Some(0xabc)));
        assert_eq!(request_of("17"), Some(17));
        for wrong in
            ["", "-", "cmpl-12", "cmpl-000000000000000é000000000000000", "chatcmpl-000000000000000000000000000000zz"]
        {
            assert_eq!(request_of(wrong), None, "{wrong}");
        }
    }
}

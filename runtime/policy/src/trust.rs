//! Who may put a policy into a slot: ed25519 signatures over a component's digest, and a list of signers for each slot.
//!
//! A signature is a small text beside the component, so that the bytes whose digest is pinned everywhere stay the same:
//!
//! ```text
//! pointsman-signature-1
//! digest sha256:…
//! slots route
//! contract 0.1.0
//! not-after 1893456000        seconds since 1970, or never
//! key 64 hexadecimal digits
//! signature 128 hexadecimal digits
//! ```
//!
//! What is signed is all lines before the last, byte for byte, so there is nothing to agree on beside the text itself. A slot without
//! signers takes anything; the policies that ship inside the binary are as trusted as the binary.

use std::collections::BTreeMap;
use std::fmt;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};

use crate::artifact::Digest;

const HEAD: &str = "pointsman-signature-1";
/// A signature's text, far more than one takes.
pub const SIGNATURE_BYTES_MAX: usize = 4 << 10;

/// A secret key. Never printed.
pub struct SecretKey(SigningKey);

/// A signer, by public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signer([u8; 32]);

/// Those who may sign for each slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    signers: BTreeMap<String, Vec<Signer>>,
}

impl SecretKey {
    /// A key from 32 random bytes.
    #[must_use]
    pub fn from_random(bytes: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&bytes))
    }

    /// Reads 64 hexadecimal digits.
    ///
    /// # Errors
    /// They are none; the digits are not repeated.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = unhex(text.trim()).ok_or("the key is not 64 hexadecimal digits")?;
        Ok(Self::from_random(bytes))
    }

    /// 64 hexadecimal digits, for the file that it is kept in.
    #[must_use]
    pub fn to_text(&self) -> String {
        hex(self.0.as_bytes())
    }

    /// The public half.
    #[must_use]
    pub fn signer(&self) -> Signer {
        Signer(self.0.verifying_key().to_bytes())
    }

    /// Signs a component for these slots of the newest contract. `not_after` is in seconds since 1970.
    #[must_use]
    pub fn sign(&self, digest: Digest, slots: &[String], contract: &str, not_after: Option<u64>) -> String {
        let until = not_after.map_or_else(|| "never".to_owned(), |seconds| seconds.to_string());
        let (slots, signer) = (slots.join(" "), self.signer());
        let signed =
            format!("{HEAD}\ndigest {digest}\nslots {slots}\ncontract {contract}\nnot-after {until}\nkey {signer}\n");
        let signature = hex(&self.0.sign(signed.as_bytes()).to_bytes());
        format!("{signed}signature {signature}\n")
    }
}

impl Signer {
    /// Reads 64 hexadecimal digits.
    ///
    /// # Errors
    /// They are none, or no point of the curve.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = unhex(text).ok_or_else(|| format!("`{text}` is not 64 hexadecimal digits"))?;
        VerifyingKey::from_bytes(&bytes).map_err(|_| format!("`{text}` is not a public key"))?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Trust {
    /// Adds the signers of a slot: one public key a line; `#` begins a comment.
    ///
    /// # Errors
    /// A line that is no key, by its number; or no key at all.
    pub fn allow(&mut self, slot: &str, lines: &str) -> Result<(), String> {
        let signers = self.signers.entry(slot.to_owned()).or_default();
        for (number, line) in (1..).zip(lines.lines()) {
            let key = line.split('#').next().unwrap_or_default().trim();
            if !key.is_empty() {
                signers.push(Signer::parse(key).map_err(|why| format!("line {number}: {why}"))?);
            }
        }
        if signers.is_empty() { Err("it names no signer".into()) } else { Ok(()) }
    }

    /// Whether any slot takes signed policies only.
    #[must_use]
    pub fn is_any(&self) -> bool {
        !self.signers.is_empty()
    }

    /// Whether a slot takes signed policies only.
    #[must_use]
    pub fn is_needed(&self, slot: &str) -> bool {
        self.signers.contains_key(slot)
    }

    /// May this component come into this slot now (seconds since 1970)? `signature` is what came with it. Says who signed, if
    /// that was needed.
    ///
    /// # Errors
    /// Why not, and what to do.
    pub fn check(
        &self,
        slot: &str,
        digest: Digest,
        signature: Option<&str>,
        now: u64,
    ) -> Result<Option<Signer>, String> {
        let Some(signers) = self.signers.get(slot) else { return Ok(None) };
        let text = signature.ok_or_else(|| {
            format!("the slot `{slot}` takes signed policies only, and this one has no signature; see `pointsman policy sign`")
        })?;
        let parsed = Parsed::read(text)?;
        if !signers.contains(&parsed.signer) {
            return Err(format!("its signer {} may not sign for the slot `{slot}`", parsed.signer));
        }
        if parsed.digest != digest.to_string() {
            return Err(format!("its signature is for {}, but the component is {digest}", parsed.digest));
        }
        if !parsed.slots.split(' ').any(|signed| signed == slot) {
            return Err(format!("its signature is for the slots `{}`, not for `{slot}`", parsed.slots));
        }
        if !crate::CONTRACTS.contains(&parsed.contract) {
            let taken = crate::CONTRACTS.join(", ");
            return Err(format!("its signature is for contract {}, and this host takes {taken}", parsed.contract));
        }
        if parsed.not_after.is_some_and(|until| until < now) {
            return Err("its signature has expired; have it signed again".into());
        }
        Ok(Some(parsed.signer))
    }
}

/// A signature whose own text is intact.
struct Parsed<'a> {
    digest: &'a str,
    slots: &'a str,
    contract: &'a str,
    not_after: Option<u64>,
    signer: Signer,
}

impl<'a> Parsed<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let damaged = |what: &str| format!("its signature is damaged: {what}");
        if text.len() > SIGNATURE_BYTES_MAX {
            return Err(damaged("it is too long"));
        }
        let lines: Vec<&str> = text.lines().collect();
        let [HEAD, digest, slots, contract, until, key, signature] = lines.as_slice() else {
            return Err(damaged("it has not the seven lines that one has"));
        };
        let field = |line: &'a str, name: &str| -> Result<&'a str, String> {
            let value = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' '));
            value.ok_or_else(|| damaged(&format!("the line `{name}` is missing")))
        };
        let signer = Signer::parse(field(key, "key")?).map_err(|why| damaged(&why))?;
        let bytes = unhex(field(signature, "signature")?).ok_or_else(|| damaged("its last line"))?;
        let signed = text.rfind("signature ").map_or("", |at| &text[..at]);
        let verifier = VerifyingKey::from_bytes(&signer.0).map_err(|_| damaged("its key"))?;
        // Strict: no weak keys, and one signature for one text.
        let valid = verifier.verify_strict(signed.as_bytes(), &Signature::from_bytes(&bytes));
        valid.map_err(|_| damaged("it does not belong to what it signs"))?;
        let not_after = match field(until, "not-after")? {
            "never" => None,
            seconds => Some(seconds.parse().map_err(|_| damaged("its time is no number"))?),
        };
        let (digest, slots, contract) =
            (field(digest, "digest")?, field(slots, "slots")?, field(contract, "contract")?);
        Ok(Self { digest, slots, contract, not_after, signer })
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRACT: &str = crate::CONTRACTS[0];

    fn setting() -> (SecretKey, Trust, Digest) {
        let key = SecretKey::from_random([7; 32]);
        let mut trust = Trust::default();
        trust.allow("route", &format!("# the team\n{}  # alpha\n\n", key.signer())).unwrap();
        (key, trust, Digest::of(b"component"))
    }

    fn route() -> Vec<String> {
        vec!["route".to_owned()]
    }

    #[test]
    fn a_good_signature_by_a_known_signer_is_taken() {
        let (key, trust, digest) = setting();
        let signature = key.sign(digest, &["batch".into(), "route".into()], CONTRACT, Some(100));
        assert_eq!(trust.check("route", digest, Some(&signature), 100), Ok(Some(key.signer())));
        assert!(trust.is_needed("route") && !trust.is_needed("batch"));
        assert_eq!(trust.check("batch", digest, None, 0), Ok(None), "a slot without signers takes anything");
        let again = SecretKey::parse(&key.to_text()).unwrap();
        assert_eq!(again.signer(), key.signer());
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        let (key, trust, digest) = setting();
        let stranger = SecretKey::from_random([8; 32]);
        for (signature, why) in [
            (stranger.sign(digest, &route(), CONTRACT, None), "may not sign"),
            (key.sign(Digest::of(b"other"), &route(), CONTRACT, None), "but the component is"),
            (key.sign(digest, &["batch".into()], CONTRACT, None), "not for `route`"),
            (key.sign(digest, &route(), "9.9.9", None), "contract 9.9.9"),
            (key.sign(digest, &route(), CONTRACT, Some(99)), "expired"),
            (String::new(), "seven lines"),
            ("x".repeat(SIGNATURE_BYTES_MAX + 1), "too long"),
        ] {
            let refused = trust.check("route", digest, Some(&signature), 100).unwrap_err();
            assert!(refused.contains(why), "{why}: {refused}");
        }
        assert!(trust.check("route", digest, None, 0).unwrap_err().contains("policy sign"));
    }

    #[test]
    fn no_changed_byte_goes_unnoticed() {
        let (key, trust, digest) = setting();
        let good = key.sign(digest, &route(), CONTRACT, None);
        for at in 0..good.len() {
            let mut damaged = good.clone().into_bytes();
            damaged[at] ^= 1;
            let damaged = String::from_utf8(damaged).unwrap();
            // A capital digit of the signature means the same number; its last line feed means nothing.
            let same = damaged.trim_end().eq_ignore_ascii_case(good.trim_end());
            assert!(same || trust.check("route", digest, Some(&damaged), 0).is_err(), "byte {at}");
        }
    }

    #[test]
    fn lists_of_signers_are_checked_line_by_line() {
        let mut trust = Trust::default();
        assert_eq!(trust.allow("route", "# nobody\n"), Err("it names no signer".into()));
        assert!(trust.allow("route", "\nnot a key\n").unwrap_err().starts_with("line 2"));
        assert!(SecretKey::parse("12").is_err());
    }
}

//! Frames are read as they were written, and damaged ones are errors.

use pointsman_engine::decision::FaultClass;
use pointsman_engine::ids::{ChainId, Micros, RequestId};
use pointsman_engine::port::{Pick, Pull};
use pointsman_engine::snapshot::{ChainView, Snapshot};
use pointsman_engine::window::{Ask, Kind};

use super::*;

const DONE: Outcome = Outcome { fault: None, answer: 0, fuel: 77 };

fn ask() -> Pick {
    Pick {
        id: RequestId(9),
        seq: 8,
        now: Micros(7),
        rnd: u64::MAX,
        tenant: 6,
        class: 5,
        prompt: 4,
        reserve: u32::MAX,
        deadline: Micros(3),
        session: 2,
        hints: 1,
    }
}

fn snapshot() -> Snapshot {
    let chain = |id| ChainView {
        id: ChainId(id),
        capacity: 8,
        busy: id,
        free_tokens: u32::MAX,
        open: id == 1,
        service: Micros(id.into()),
    };
    Snapshot { epoch: 3, seq: 4, chains: (0..3).map(chain).collect(), queued: 5 }
}

#[test]
fn every_kind_is_read_as_it_was_written() {
    let mut words = Vec::new();
    let mut writer = Writer(&mut words);
    let faulty = Outcome { fault: Some(FaultClass::Fuel), answer: 0, fuel: 0 };
    let saved = Saved { schema: "s/1".into(), seq: 4, bytes: (0..13).collect() };
    let digest = Some(Digest::of(b"x"));
    writer.start(1, SlotKind::Batch, 2, digest, "name", "{\"a\": 1}", &snapshot(), Some(&saved), DONE);
    writer.start(0, SlotKind::Route, 2, None, "", "", &snapshot(), None, faulty);
    writer.apply(0, 9, &[1, 2, 3, 4], DONE);
    writer.pick(0, &ask(), None, DONE);
    writer.pick(1, &ask(), Some(&[]), faulty);
    writer.pick(1, &ask(), Some(&[5]), DONE);
    let pull = Pull { seq: 1, now: Micros(2), rnd: 3, chain: ChainId(4) };
    writer.pull(0, &pull, &[1, 2, 3, 4], DONE);
    let step = Ask { seq: 1, now: Micros(2), rnd: 3, chain: ChainId(4), want: 5, have: 6 };
    let window = [1, 2, 3, 4, 5, 6, 7, 8];
    writer.ask(0, Kind::Step, &step, &window, DONE, &[]);
    writer.ask(1, Kind::Victims, &step, &window, faulty, &[1, 0]);
    writer.refused(0, FaultClass::Invalid);
    writer.replaced(1, 1 << 60);
    writer.lost(12);

    let start = |slot, digest, name: &str, config: &str, previous, outcome| {
        let (name, config) = (name.to_owned(), config.to_owned());
        let generation = 2;
        Body::Start(Box::new(Start { slot, generation, digest, name, config, snapshot: snapshot(), previous, outcome }))
    };
    let asked = |kind, outcome, answer| {
        Body::Ask(Box::new(Asked { kind, ask: step, window: window.to_vec(), outcome, answer }))
    };
    let expected = [
        (1, start(SlotKind::Batch, digest, "name", "{\"a\": 1}", Some(saved), DONE)),
        (0, start(SlotKind::Route, None, "", "", None, faulty)),
        (0, Body::Apply(9, vec![1, 2, 3, 4], DONE)),
        (0, Body::Pick(ask(), None, DONE)),
        (1, Body::Pick(ask(), Some(vec![]), faulty)),
        (1, Body::Pick(ask(), Some(vec![5]), DONE)),
        (0, Body::Pull(pull, vec![1, 2, 3, 4], DONE)),
        (0, asked(Kind::Step, DONE, vec![])),
        (1, asked(Kind::Victims, faulty, vec![1, 0])),
        (0, Body::Refused(FaultClass::Invalid)),
        (1, Body::Replaced(1 << 60)),
        (0, Body::Lost(12)),
    ];
    let mut rest = words.as_slice();
    for (arm, body) in expected {
        let (frame, after) = rest.split_at(frame_words(rest[0]));
        assert_eq!(Frame::decode(frame), Ok(Frame { arm, body }));
        rest = after;
    }
    assert!(rest.is_empty());
}

#[test]
fn damaged_frames_are_errors() {
    let mut words = Vec::new();
    Writer(&mut words).start(0, SlotKind::Route, 2, None, "name", "{}", &snapshot(), None, DONE);
    for len in 0..words.len() {
        assert!(Frame::decode(&words[..len]).is_err());
    }
    for at in 0..words.len() {
        for bit in 0..64 {
            let mut damaged = words.clone();
            damaged[at] ^= 1 << bit;
            // Any answer will do, as long as there is one.
            let _ = Frame::decode(&damaged);
        }
    }
}

//! Tests of slabs and frames.

use super::*;

#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape {
    number: u64,
    small: u8,
}

fn filled(space: Space, number: u64) -> Frame<Shape> {
    let mut filling = space.fill(Shape { number, small: 9 }, 3, 5);
    let (words, bytes) = filling.parts_mut();
    words.fill(number);
    bytes.fill(number as u8);
    filling.share()
}

fn check(frame: &Frame<Shape>, number: u64) {
    assert_eq!((frame.shape().number, frame.shape().small), (number, 9));
    assert_eq!(
        (frame.words(), frame.bytes()),
        (&[number; 3][..], &[number as u8; 5][..])
    );
}

#[test]
fn a_frame_is_free_again_after_its_last_reference() {
    let slab = Slab::new(3, 128, 2);
    let first = filled(slab.claim(0).expect("free"), 7);
    let second = filled(slab.claim(1).expect("free"), 8);
    assert_eq!(second.place(), Some(Place { slab: 3, index: 1 }));
    let again = first.clone();
    assert!(again.is(&first) && !again.is(&second));
    drop(first);
    assert!(!slab.is_free(0) && slab.claim(0).is_none());
    check(&again, 7);
    drop(again);
    assert!(slab.is_free(0));
    check(&filled(slab.claim(0).expect("free"), 70), 70);
    check(&second, 8);
}

#[test]
fn a_frame_outlives_its_slab() {
    let slab = Slab::new(0, 192, 4);
    let frame = filled(slab.claim(3).expect("free"), 7);
    drop(slab);
    check(&frame, 7);
}

#[test]
fn only_the_last_reference_becomes_space() {
    let frame = filled(Space::alone(128), 7);
    assert_eq!(frame.place(), None);
    let other = frame.clone();
    let Err(frame) = frame.into_any().into_space() else {
        panic!("another reference exists");
    };
    drop(other);
    let Ok(space) = frame.into_space() else {
        panic!("no other reference exists");
    };
    assert_eq!(space.bytes(), 128);
    check(&filled(space, 8), 8);
}

#[test]
fn a_frame_takes_content_up_to_its_size() {
    let room = frame_bytes::<Shape>(3, 0);
    let bytes = 4096 - room;
    let mut filling = Space::alone(4000).fill(
        Shape {
            number: 1,
            small: 9,
        },
        3,
        bytes - 64,
    );
    filling.parts_mut().1.fill(1);
    let space = Space::alone(4096);
    let fits = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        space.fill(
            Shape {
                number: 1,
                small: 9,
            },
            3,
            bytes + 1,
        )
    }));
    assert!(fits.is_err());
}

#[test]
fn threads_that_claim_one_frame_take_turns() {
    let slab = Slab::new(0, 128, 1);
    let rounds = if cfg!(miri) { 30 } else { 3_000 };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let slab = &slab;
            scope.spawn(move || {
                for round in 0..rounds {
                    let number = thread * rounds + round;
                    if let Some(space) = slab.claim(0) {
                        let frame = filled(space, number);
                        check(&frame.clone(), number);
                        check(&frame, number);
                    }
                }
            });
        }
    });
    assert!(slab.is_free(0));
}

#[test]
fn the_size_of_a_slab_is_known_before_it_exists() {
    let frames = [64, 4_032, 4_352, 65_536, 300_032].into_iter();
    let counts = [1, 2, 15, 16, 31, 480, 481, 482];
    for (frame, count) in frames.flat_map(|frame| counts.map(|count| (frame, count))) {
        if cfg!(miri) && frame * count as usize > 200_000 {
            continue;
        }
        let slab = Slab::new(0, frame, count);
        assert_eq!(slab.bytes(), slab_bytes(frame, count), "{count} of {frame}");
        let content = frame * count as usize;
        assert!(slab.bytes() >= content && slab.bytes() <= content + frame.max(65_536));
        drop(slab.claim(count - 1));
    }
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_large_slab_asks_for_huge_pages() {
    let slab = Slab::new(0, 4_352, 481);
    assert_eq!(slab.bytes(), 2 << 20);
    let frame = filled(slab.claim(0).expect("free"), 7);
    let start = format!("{:x}-", std::ptr::from_ref(frame.shape()).addr() & !0xFFF);
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
    let own = maps.split("VmFlags:").find(|part| part.contains(&start));
    let own = own.expect("its mapping begins there");
    let flags = maps
        .split_once(own)
        .and_then(|(_, rest)| rest.lines().next());
    assert!(
        flags.is_some_and(|flags| flags.contains(" hg")),
        "{flags:?}"
    );
}

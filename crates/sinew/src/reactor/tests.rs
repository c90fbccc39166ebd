//! What a descriptor's word remembers, one step after the other.

use super::readiness::{Direction, Readiness};
use crate::sys::epoll::{HANG_UP, IN, OUT, PRIORITY, READ_END};

fn hear(readiness: &Readiness, events: u32) {
    readiness.hear(events).fire();
}

#[test]
fn a_short_read_proves_nothing_beside_an_urgent_byte() {
    let readiness = Readiness::new();
    hear(&readiness, IN | OUT | PRIORITY);
    // A writer that would block knows nothing of it.
    readiness.would_block(readiness.look(), Direction::Write);
    readiness.drained(readiness.look(), Direction::Read);
    assert!(readiness.look().is_ready(Direction::Read));
    // Only a read that would block does.
    readiness.would_block(readiness.look(), Direction::Read);
    assert!(!readiness.look().is_ready(Direction::Read));
    hear(&readiness, IN);
    readiness.drained(readiness.look(), Direction::Read);
    assert!(!readiness.look().is_ready(Direction::Read));
}

#[test]
fn an_event_after_the_look_is_not_cleared() {
    let readiness = Readiness::new();
    let look = readiness.look();
    hear(&readiness, IN);
    readiness.would_block(look, Direction::Read);
    readiness.drained(look, Direction::Read);
    assert!(readiness.look().is_ready(Direction::Read));
}

#[test]
fn an_event_is_not_cleared_however_many_came_after_the_look() {
    let readiness = Readiness::new();
    let look = readiness.look();
    // As many as would bring a tick of 22 bits round.
    for _ in 0..1 << 22 {
        hear(&readiness, IN);
    }
    readiness.would_block(look, Direction::Read);
    assert!(readiness.look().is_ready(Direction::Read));
}

#[test]
fn the_end_outlives_a_short_read_but_not_a_read_that_would_block() {
    let readiness = Readiness::new();
    hear(&readiness, IN | READ_END);
    readiness.drained(readiness.look(), Direction::Read);
    assert!(readiness.look().is_ready(Direction::Read));
    readiness.would_block(readiness.look(), Direction::Read);
    assert!(!readiness.look().is_ready(Direction::Read));
    hear(&readiness, HANG_UP);
    assert!(readiness.look().is_ready(Direction::Read));
    assert!(readiness.look().is_ready(Direction::Write));
}

#[test]
fn what_is_known_is_more_than_what_is_assumed() {
    let readiness = Readiness::new();
    assert!(readiness.look().is_ready(Direction::Read));
    assert!(!readiness.look().has_more(Direction::Read));
    readiness.seems_ready(Direction::Read);
    assert!(readiness.look().has_more(Direction::Read));
    readiness.drained(readiness.look(), Direction::Read);
    assert!(!readiness.look().has_more(Direction::Read));
}

#[test]
fn closed_is_closed() {
    let readiness = Readiness::new();
    readiness.close().fire();
    readiness.would_block(readiness.look(), Direction::Read);
    assert!(readiness.look().is_closed());
    assert!(readiness.look().is_ready(Direction::Read));
}

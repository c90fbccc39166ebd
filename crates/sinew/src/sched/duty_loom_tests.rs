//! A model of the slot of a spare worker.

use super::duty::Duty;
use crate::primitive::model::Plain;
use loom::sync::Arc;
use loom::thread;

/// The monitor calls a retired spare back while its thread is about to end.
#[test]
fn a_spare_is_called_back_or_leaves_and_its_slot_is_taken_only_after_that() {
    loom::model(|| {
        let slot = Arc::new((Duty::vacant(), Plain::new(0)));
        assert!(slot.0.fill());
        assert!(slot.0.retire());
        let spare = thread::spawn({
            let slot = slot.clone();
            move || {
                let left = slot.0.leave();
                if left {
                    slot.1.set(1); // what the thread leaves to the next one
                    slot.0.vacate();
                }
                left
            }
        });
        let recalled = slot.0.recall();
        let filled = slot.0.fill();
        if filled {
            assert_eq!(slot.1.get(), 1);
        }
        let left = spare.join().unwrap();
        assert!(recalled != left, "both, or neither");
        assert!(!filled || left);
    });
}

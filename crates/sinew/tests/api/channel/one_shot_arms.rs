//! What `select!` expands to can be called by hand: an arm serves one select.

use super::everywhere;
use sinew::__select as raw;
use sinew::channel::unbounded;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn an_arm_that_was_chosen_cannot_be_used_for_another_select() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        (0..3).for_each(|i| tx.send(i).unwrap());
        let mut arm = raw::recv(&rx);
        let choice = raw::run([arm.as_arm()], false, raw::Wait::forever(), false);
        assert!(matches!(choice, raw::Choice::Arm(0)));
        let again = catch_unwind(AssertUnwindSafe(|| {
            raw::run([arm.as_arm()], false, raw::Wait::forever(), false)
        }));
        assert!(again.is_err());
        assert_eq!(arm.take(), Ok(0), "what it yielded is still there");
        assert_eq!(rx.len(), 2, "and nothing else was taken");

        let (full, _keep) = unbounded();
        let mut arm = raw::send(&full);
        raw::run([arm.as_arm()], false, raw::Wait::forever(), false);
        assert!(catch_unwind(AssertUnwindSafe(|| format!("{:?}", arm.as_arm()))).is_err());
        arm.take().send(1).unwrap();
    });
}

#[test]
fn an_arm_that_was_not_chosen_can_be_used_again() {
    everywhere(|| {
        let (tx, rx) = unbounded();
        let mut arm = raw::recv(&rx);
        let choice = raw::run([arm.as_arm()], false, raw::Wait::not_at_all(), false);
        assert!(matches!(choice, raw::Choice::Default));
        tx.send(1).unwrap();
        let choice = raw::run([arm.as_arm()], false, raw::Wait::not_at_all(), false);
        assert!(matches!(choice, raw::Choice::Arm(0)));
        assert_eq!(arm.take(), Ok(1));
    });
}
